"""The REST API: `/v1` over the client, with problem+json errors. It never touches the core's state itself."""

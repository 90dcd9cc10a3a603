"""The routes of `/v1`, one module per thing."""

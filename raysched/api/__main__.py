"""`python -m raysched.api`: serve the REST API of a running cluster.

Starts also while the scheduler is away, and answers 503 until it is back."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from raysched.api.app import create_app
from raysched.api.auth import LOOPBACK, Auth, read_tokens
from raysched.client.client import Client, default_user
from raysched.client.errors import RayschedError
from raysched.client.ray_transport import ActorTransport

ANSWER_S = 20.0
RETRY_S = 2.0  # a caller is told soon that the scheduler is away, and asks again


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until stopped; returns the exit status: 2 for arguments that cannot be served with."""
    options = _parser().parse_args(arguments)
    try:
        auth = _auth(options)
    except RayschedError as error:
        print(f"raysched api: {error}", file=sys.stderr)
        return 2
    client = Client(transport=ActorTransport(options.address, answer_s=ANSWER_S, retry_s=RETRY_S))
    uvicorn.run(
        create_app(client, auth), host=options.host, port=options.port, log_level="warning", timeout_graceful_shutdown=5
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m raysched.api", description="Serve raysched's REST API.")
    parser.add_argument("--address", help="Ray's head, HOST:PORT (default: RAYSCHED_ADDRESS, then `raysched up`'s)")
    parser.add_argument("--host", default="127.0.0.1", help="interface to listen on (default: loopback)")
    parser.add_argument("--port", type=int, default=8266, help="port to listen on (default: 8266)")
    parser.add_argument("--token-file", type=Path, help="JSON or YAML {token: user}; needed beyond loopback")
    parser.add_argument("--user", help="who callers without a name are, on loopback (default: the process's user)")
    return parser


def _auth(options: argparse.Namespace) -> Auth:
    if options.token_file is None and options.host not in LOOPBACK:
        raise RayschedError(f"--host {options.host} is not loopback: callers need tokens, give --token-file")
    tokens = None if options.token_file is None else read_tokens(options.token_file)
    return Auth(options.user or default_user(), tokens)


if __name__ == "__main__":
    sys.exit(main())

"""What a command gets from the words before it: the client, and the options that many commands share."""

from dataclasses import dataclass
from typing import Annotated

import typer

from raysched.client.client import Client

Json = Annotated[bool, typer.Option("--json", help="print plain JSON")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="only say what would change")]
JobName = Annotated[str, typer.Argument(metavar="JOB", show_default=False)]


@dataclass(frozen=True)
class Session:
    """The cluster and the caller; `given` is a client that the embedding program made."""

    address: str | None
    user: str | None
    given: Client | None = None

    def client(self) -> Client:
        """The client; it connects on its first call."""
        if self.given is None:
            return Client(self.address, user=self.user)
        return self.given.as_user(self.user) if self.user else self.given


def client_of(context: typer.Context) -> Client:
    """The client of this run."""
    session = context.obj
    assert isinstance(session, Session)
    return session.client()

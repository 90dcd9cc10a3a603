"""`raysched` over the real service, as root."""

from collections.abc import Callable

from typer.testing import CliRunner, Result

from raysched.cli.main import app
from raysched.client import Client, LocalTransport
from tests.api.real_service import RealService

Run = Callable[..., Result]


class Desk:
    """A cluster of its own, and the words one gives it."""

    def __init__(self) -> None:
        self.service = RealService()
        self.client = Client(user="root", transport=LocalTransport(self.service))

    def __call__(self, *words: str) -> Result:
        return CliRunner().invoke(app, list(words), obj=self.client)

    def done(self, *words: str) -> str:
        """What a command that must succeed printed."""
        ran = self(*words)
        assert ran.exit_code == 0, (words, ran.output)
        return ran.stdout

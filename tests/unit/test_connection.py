"""What a namespace is asked at start, answered by a played server."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from horarium.encryption import is_encrypting
from tests.encryption import keys_file
from workers.connection import ServerTooOld, open_client, register_search_attributes, require_recent_server
from workers.settings import Settings
from workflows.contracts import SEARCH_ATTRIBUTES

ALL = {key.name: int(key.indexed_value_type) for key in SEARCH_ATTRIBUTES}


@dataclass
class PlayedServer:
    """Knows some search attributes, and may refuse to learn more."""

    version: str = "1.32.0"
    known: dict[str, int] = field(default_factory=dict)
    refusal: RPCStatusCode | None = None
    asked_to_add: list[str] = field(default_factory=list)

    @property
    def client(self) -> Client:
        """What the code under test needs of a client."""
        return cast(Client, SimpleNamespace(workflow_service=self, operator_service=self, namespace="default"))

    async def get_system_info(self, _: object) -> Any:
        """Say the version."""
        return SimpleNamespace(server_version=self.version)

    async def list_search_attributes(self, _: object) -> Any:
        """Say what is known."""
        return SimpleNamespace(custom_attributes=self.known)

    async def add_search_attributes(self, request: AddSearchAttributesRequest) -> None:
        """Learn, or refuse."""
        self.asked_to_add = list(request.search_attributes)
        if self.refusal is RPCStatusCode.ALREADY_EXISTS:
            self.known = self.known | ALL
        if self.refusal is not None:
            raise RPCError("no", self.refusal, b"")
        self.known = self.known | {name: int(kind) for name, kind in request.search_attributes.items()}


@pytest.mark.parametrize("version", ["1.32.0", "1.32.0-rc.1", "1.33.1", "2.0.0", "", "cloud"])
async def test_a_recent_server_will_do(version: str) -> None:
    """One that does not say its version is given the benefit of the doubt."""
    await require_recent_server(PlayedServer(version=version).client)


@pytest.mark.parametrize("version", ["1.31.9", "1.9.0", "0.99.0"])
async def test_an_old_server_is_refused(version: str) -> None:
    """Jobs that sleep the long way would not wake early as promised."""
    with pytest.raises(ServerTooOld, match=f"is {version}; Horarium needs 1.32 or later"):
        await require_recent_server(PlayedServer(version=version).client)


async def test_missing_search_attributes_are_registered() -> None:
    """Only those; the namespace may have others."""
    first, *others = ALL
    server = PlayedServer(known={first: ALL[first], "TheirOwn": 1})
    assert await register_search_attributes(server.client)
    assert sorted(server.asked_to_add) == sorted(others)


async def test_nothing_is_registered_twice() -> None:
    """Every start asks."""
    server = PlayedServer(known=dict(ALL))
    assert await register_search_attributes(server.client)
    assert server.asked_to_add == []


async def test_another_process_may_be_faster() -> None:
    """All start at once."""
    assert await register_search_attributes(PlayedServer(refusal=RPCStatusCode.ALREADY_EXISTS).client)


@pytest.mark.parametrize("refusal", [RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED])
async def test_jobs_run_without_search_attributes_where_we_may_not_register_them(refusal: RPCStatusCode) -> None:
    """One that the namespace does not know would stop every job that sets it."""
    assert not await register_search_attributes(PlayedServer(refusal=refusal).client)


async def test_jobs_run_without_search_attributes_where_a_name_is_taken_by_another_type() -> None:
    """As above."""
    name = next(iter(ALL))
    assert not await register_search_attributes(PlayedServer(known=ALL | {name: 1}).client)


async def test_a_server_that_is_away_is_not_a_refusal() -> None:
    """Whoever asked tries again."""
    with pytest.raises(RPCError):
        await register_search_attributes(PlayedServer(refusal=RPCStatusCode.UNAVAILABLE).client)


async def test_every_client_encrypts_where_there_are_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """There is one place that makes clients. A file that everybody may read is said so, once."""
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "none.toml"))
    caplog.set_level("WARNING")
    file = keys_file(tmp_path / "keys", "a")
    plain = await open_client(Settings(temporal_address="127.0.0.1:1"), name="test")
    assert not is_encrypting(plain.data_converter)
    for mode, warnings in ((0o600, 0), (0o644, 1)):
        file.chmod(mode)
        caplog.clear()
        settings = Settings(temporal_address="127.0.0.1:1", encryption_keys_file=file)
        assert is_encrypting((await open_client(settings, name="test")).data_converter)
        assert sum(record.levelname == "WARNING" for record in caplog.records) == warnings

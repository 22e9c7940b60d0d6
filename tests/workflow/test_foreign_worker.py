"""Workers that answer in ways of their own: whatever comes, the run ends clearly, and the job goes on."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import EncodingPayloadConverter, PayloadCodec
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from tests.temporal_servers import unique
from tests.workflow.harness import Harness, every, job, side_by_side
from workers.devserver import DevServer
from workflows.job import JobDefinition
from workflows.run import Run, RunStatus
from workflows.target import ActivityTarget

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENOUGH = timedelta(seconds=40)
ENCRYPTED = unique("encrypted")
ODD = unique("odd")


class Rotation(PayloadCodec):
    """Encrypts, after a fashion."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Turn the bytes around."""
        turned = [payload.SerializeToString()[::-1] for payload in payloads]
        return [Payload(metadata={"encoding": b"binary/encrypted"}, data=data) for data in turned]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Turn them back."""
        return [self._decode(payload) for payload in payloads]

    def _decode(self, payload: Payload) -> Payload:
        if payload.metadata["encoding"] != b"binary/encrypted":
            return payload
        decoded = Payload()
        decoded.ParseFromString(payload.data[::-1])
        return decoded


class Raw(EncodingPayloadConverter):
    """Sends bytes as if they were JSON."""

    @property
    def encoding(self) -> str:
        """What it is called."""
        return "json/plain"

    def to_payload(self, value: Any) -> Payload | None:
        """Write bytes as they stand."""
        return Payload(metadata={"encoding": b"json/plain"}, data=value) if isinstance(value, bytes) else None

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        """Leave it."""
        return payload.data


class RawConverter(pydantic_data_converter.payload_converter_class):  # type: ignore[name-defined, misc]
    """A converter of a worker in another language, which may write what Python would not."""

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        """Write."""
        raw = Raw()
        return [raw.to_payload(value) or super(RawConverter, self).to_payloads([value])[0] for value in values]


@activity.defn
async def answer(_: Any) -> str:
    """Answer."""
    return "done"


@activity.defn
async def fail(_: Any) -> None:
    """Fail, and tell more about it."""
    raise ApplicationError("no", {"more": 1}, type="Odd", non_retryable=True)


@activity.defn
async def beat(_: Any) -> None:
    """Tell something in a heartbeat, and then nothing."""
    activity.heartbeat({"row": 7})
    await asyncio.sleep(3600)


@activity.defn
async def say(run: dict[str, Any]) -> bytes:
    """Answer with these very bytes."""
    said: str = run["payload"]
    return said.encode("latin-1")


ONCE = {"max_attempts": 1}


def on(queue: str, name: str, **fields: Any) -> JobDefinition:
    """A job that fires once."""
    target = ActivityTarget(activity=name, task_queue=queue)
    return job(name, schedule=every(1, max_runs=1), target=target, retry=ONCE, **fields)


JOBS = {
    "answer": on(ENCRYPTED, "answer"),
    "fail": on(ENCRYPTED, "fail"),
    "beat": on(ENCRYPTED, "beat", heartbeat_timeout=timedelta(seconds=1)),
    "surrogate": on(ODD, "say", payload='"\\ud800"'),
    "nan": on(ODD, "say", payload='{"rate": NaN}'),
    "infinite": on(ODD, "say", payload="1e400"),
    "half": on(ODD, "say", payload='{"a": '),
    "no_text": on(ODD, "say", payload="\xff\xfe"),
    "deep": on(ODD, "say", payload="[" * 20_000 + "]" * 20_000),
    "plain": on(ODD, "say", payload='{"a": [1, "\\u00e9"]}'),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(temporal_server: DevServer) -> AsyncIterator[Harness]:
    """All of them, and two workers without our SDK."""
    address = temporal_server.options.address
    encrypting = dataclasses.replace(pydantic_data_converter, payload_codec=Rotation())
    odd = dataclasses.replace(pydantic_data_converter, payload_converter_class=RawConverter)
    first = await Client.connect(address, data_converter=encrypting)
    second = await Client.connect(address, data_converter=odd)
    async with (
        Worker(first, task_queue=ENCRYPTED, activities=[answer, fail, beat]),
        Worker(second, task_queue=ODD, activities=[say]),
        side_by_side(temporal_server, JOBS) as harness,
    ):
        yield harness


async def end_of(harness: Harness, name: str) -> Run:
    """Wait for the end of a job's run."""
    [run] = await harness.until_runs(harness.named[name], 1, limit=ENOUGH)
    return run


async def test_a_result_that_we_cannot_decrypt_is_left_out(harness: Harness) -> None:
    """It is in Temporal's history, for whoever has the key."""
    run = await end_of(harness, "answer")
    assert run.status is RunStatus.SUCCESS
    assert "binary/encrypted" in str(run.result)


async def test_a_failure_with_encrypted_details_is_a_failure(harness: Harness) -> None:
    """Its type and message are not encrypted unless somebody wants that."""
    run = await end_of(harness, "fail")
    assert run.status is RunStatus.DEAD
    assert run.failure is not None
    assert (run.failure.type, run.failure.message) == ("Odd", "no")


async def test_a_worker_is_lost_whatever_it_said_before(harness: Harness) -> None:
    """Its last heartbeat is encrypted, so there is no checkpoint."""
    run = await end_of(harness, "beat")
    assert run.failure is not None
    assert (run.failure.type, run.checkpoint) == ("lost", None)


@pytest.mark.parametrize("name", ["surrogate", "nan", "infinite", "half", "no_text", "deep"])
async def test_a_result_that_is_no_plain_json_is_left_out(harness: Harness, name: str) -> None:
    """SQL has no place for it, and other readers would fail."""
    run = await end_of(harness, name)
    assert run.status is RunStatus.SUCCESS
    assert "that are no plain JSON" in str(run.result)


async def test_a_result_without_an_envelope_is_the_result(harness: Harness) -> None:
    """Workers in other languages need not know our report."""
    assert (await end_of(harness, "plain")).result == {"a": [1, "é"]}

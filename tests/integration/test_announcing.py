"""Workers of teams tell a real server what they can run, and everybody can read it."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from pydantic import BaseModel
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client, WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import PayloadCodec
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer, Worker

from api.temporal_probe import TemporalProbe
from horarium import HorariumPlugin, announcing
from horarium.catalogue import CATALOGUE_TASK_QUEUE, HEARD_OF_FOR, catalogue_workflow_id
from horarium.clock import now, reading
from tests.eventually import eventually
from tests.temporal_servers import unique
from workers.devserver import DevServer
from workers.workflow_runner import strict_runner
from workflows.catalogue import Catalogue, WorkerVersion
from workflows.catalogue_workflow import ANNOUNCEMENTS_A_RUN, CatalogueWorkflow


class Report(BaseModel):
    """A payload."""

    kind: str


@activity.defn(name="send_report")
async def send_report(report: Report) -> None:
    """The first version."""


@activity.defn(name="send_report")
async def send_report_in_copies(kind: str, copies: int) -> None:
    """The next version."""


@workflow.defn(sandboxed=False)
class LongSleep:
    """A workflow of the team's."""

    @workflow.run
    async def run(self) -> str:
        """Sleep."""
        await workflow.sleep(timedelta(days=30))
        return "slept"


@asynccontextmanager
async def scheduler(client: Client) -> AsyncIterator[None]:
    """Run the catalogues, in the sandbox."""
    async with Worker(
        client, task_queue=CATALOGUE_TASK_QUEUE, workflows=[CatalogueWorkflow], workflow_runner=strict_runner()
    ):
        yield


@asynccontextmanager
async def team_worker(
    server: DevServer, queue: str, functions: Sequence[Callable[..., Any]], **how: Any
) -> AsyncIterator[None]:
    """Run a worker of a team."""
    client = await Client.connect(server.options.address, **how)
    async with Worker(client, task_queue=queue, activities=functions, plugins=[HorariumPlugin()]):
        yield


async def versions_of(client: Client, queue: str) -> Sequence[WorkerVersion]:
    """Read a catalogue as the API does."""
    catalogue: Catalogue | None = await TemporalProbe(client).catalogue_of(queue)
    return catalogue.versions if catalogue else ()


async def signals_of(client: Client, queue: str) -> int:
    """Count what a catalogue was told in its current run."""
    history = await client.get_workflow_handle(catalogue_workflow_id(queue)).fetch_history()
    return sum(event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED for event in history.events)


async def knows(client: Client, queue: str, count: int) -> Sequence[WorkerVersion]:
    """Wait until a catalogue knows so many versions."""

    async def look() -> Sequence[WorkerVersion]:
        found = await versions_of(client, queue)
        return found if len(found) == count else ()

    return await eventually(look)


class TestAnnouncing:
    """What a worker can run is known from its start on."""

    async def test_a_schema_outlives_its_worker_and_the_scheduler(
        self, temporal_server: DevServer, temporal_client: Client
    ) -> None:
        """It is read from the server alone: a job may be registered while no worker is there."""
        queue = unique("reports")
        async with scheduler(temporal_client), team_worker(temporal_server, queue, [send_report]):
            await knows(temporal_client, queue, 1)
        [version] = await versions_of(temporal_client, queue)
        schema = version.activities["send_report"].payload_schema
        assert isinstance(schema, dict)
        assert schema["required"] == ["kind"]

    async def test_a_worker_that_starts_before_the_scheduler_is_heard_soon(self, temporal_server: DevServer) -> None:
        """It looks again. In a namespace without a scheduler it starts nothing, which nobody would ever end."""
        namespace, queue = unique("namespace"), unique("reports")
        await create_namespace(temporal_server, namespace)
        scheduler_client = await Client.connect(
            temporal_server.options.address, namespace=namespace, data_converter=pydantic_data_converter
        )
        async with team_worker(temporal_server, queue, [send_report], namespace=namespace):
            assert not await announcing._has_scheduler(scheduler_client)
            async with scheduler(scheduler_client):
                await knows(scheduler_client, queue, 1)

    async def test_a_teams_own_tests_may_skip_time(self, time_skipping: WorkflowEnvironment) -> None:
        """Their workers have the plugin, and their test server has no scheduler."""
        async with Worker(time_skipping.client, task_queue="team", workflows=[LongSleep], plugins=[HorariumPlugin()]):
            slept = await time_skipping.client.execute_workflow(LongSleep.run, id="long", task_queue="team")
        assert slept == "slept"

    async def test_two_versions_are_known_at_once(self, temporal_server: DevServer, temporal_client: Client) -> None:
        """A rolling deployment, and one that is rolled back."""
        queue = unique("reports")
        async with (
            scheduler(temporal_client),
            team_worker(temporal_server, queue, [send_report]),
        ):
            [old] = await knows(temporal_client, queue, 1)
            async with team_worker(temporal_server, queue, [send_report_in_copies]):
                first, second = await knows(temporal_client, queue, 2)
        assert first.version == old.version
        assert second.activities["send_report"] != old.activities["send_report"]

    async def test_a_fleet_that_starts_at_once_leaves_one_signal(
        self, temporal_server: DevServer, temporal_client: Client
    ) -> None:
        """And a worker that starts again finds its version known, and says nothing."""
        queue, started_at = unique("reports"), now()
        async with scheduler(temporal_client):
            # One instant for all: otherwise a fleet that starts across a border of five minutes leaves two.
            with reading(lambda: started_at):
                async with AsyncExitStack() as fleet:
                    workers = [team_worker(temporal_server, queue, [send_report]) for _ in range(12)]
                    await asyncio.gather(*map(fleet.enter_async_context, workers))
                    await knows(temporal_client, queue, 1)
            async with team_worker(temporal_server, queue, [send_report]):
                assert await announcing._is_known(temporal_client, queue, await version_of(temporal_client, queue))
            assert await signals_of(temporal_client, queue) == 1

    async def test_a_stale_version_is_renewed(self, temporal_server: DevServer, temporal_client: Client) -> None:
        """By any of its workers, once its last word is some minutes old."""
        queue = unique("reports")
        async with scheduler(temporal_client), team_worker(temporal_server, queue, [send_report]):
            [before] = await knows(temporal_client, queue, 1)
            later = now() + HEARD_OF_FOR
            with reading(lambda: later):
                assert not await announcing._is_known(temporal_client, queue, before.version)
                async with team_worker(temporal_server, queue, [send_report]):
                    await eventually(lambda: is_newer(temporal_client, queue, before))

    async def test_a_codec_of_the_team_does_not_hide_what_it_tells(
        self, temporal_server: DevServer, temporal_client: Client
    ) -> None:
        """The scheduler has no key of the team's."""
        queue = unique("reports")
        secret = replace(pydantic_data_converter, payload_codec=Codec())
        async with (
            scheduler(temporal_client),
            team_worker(temporal_server, queue, [send_report], data_converter=secret),
        ):
            [version] = await knows(temporal_client, queue, 1)
        assert "send_report" in version.activities

    async def test_a_worker_that_may_not_tell_works_all_the_same(
        self, temporal_server: DevServer, temporal_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It says so in its log, and tries again."""
        tried = asyncio.Event()

        async def refuse(*_: Any) -> None:
            tried.set()
            raise RPCError("not allowed", RPCStatusCode.PERMISSION_DENIED, b"")

        monkeypatch.setattr(announcing, "_tell", refuse)
        queue = unique("reports")
        async with (
            scheduler(temporal_client),
            team_worker(temporal_server, queue, [send_report], data_converter=pydantic_data_converter),
        ):
            async with asyncio.timeout(20):
                await tried.wait()
            handle = await temporal_client.start_activity(
                "send_report",
                {"kind": "weekly"},
                id=unique("activity"),
                task_queue=queue,
                start_to_close_timeout=timedelta(seconds=10),
            )
            await handle.result()
        assert await versions_of(temporal_client, queue) == ()


class TestCatalogueWorkflow:
    """The workflow that keeps it."""

    async def test_many_announcements_leave_a_short_history(self, temporal_client: Client) -> None:
        """It continues as new, and its memo with it; what was recorded replays."""
        queue = unique("reports")
        handle = await temporal_client.start_workflow(
            CatalogueWorkflow.run, id=catalogue_workflow_id(queue), task_queue=CATALOGUE_TASK_QUEUE
        )
        first_run = handle.first_execution_run_id
        async with scheduler(temporal_client):
            for number in range(ANNOUNCEMENTS_A_RUN + 5):
                version = {"version": f"v{number}", "activities": {"job": {"payload_schema": {}}}}
                await handle.signal("announce", version)

            async def last_run() -> WorkflowHistory:
                """A run that has taken in the last announcement, or begun with it."""
                found = await versions_of(temporal_client, queue)
                assert [each.version for each in found][-1:] == [f"v{ANNOUNCEMENTS_A_RUN + 4}"]
                history = await temporal_client.get_workflow_handle(handle.id).fetch_history()
                assert history.run_id != first_run
                kinds = [event.event_type for event in history.events]
                assert EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED in kinds, "there is nothing to replay"
                return history

            last = await eventually(last_run)
        assert len(await versions_of(temporal_client, queue)) == 3
        first = await temporal_client.get_workflow_handle(handle.id, run_id=first_run).fetch_history()
        histories = (first, last)
        assert len(histories[0].events) < 500
        replayer = Replayer(
            workflows=[CatalogueWorkflow],
            data_converter=pydantic_data_converter,
            workflow_runner=strict_runner(),
        )
        for history in histories:
            await replayer.replay_workflow(history)

    async def test_nonsense_is_not_taken_in(self, temporal_client: Client) -> None:
        """A worker of another make cannot stop the catalogue for the others."""
        queue = unique("reports")
        handle = await temporal_client.start_workflow(
            CatalogueWorkflow.run, id=catalogue_workflow_id(queue), task_queue=CATALOGUE_TASK_QUEUE
        )
        async with scheduler(temporal_client):
            for argument in ("nonsense", 1, {"activities": [1]}, {"version": "v1", "activities": {"job": {}}}):
                await handle.signal("announce", argument)
            [version] = await knows(temporal_client, queue, 1)
        assert version.version == "v1"


class Codec(PayloadCodec):
    """Stands for an encryption of the team's own."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Hide."""
        return [
            Payload(metadata={"encoding": b"binary/secret"}, data=base64.b64encode(each.SerializeToString()))
            for each in payloads
        ]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Show what was hidden, and nothing else."""
        return [Payload.FromString(base64.b64decode(each.data, validate=True)) for each in payloads]


async def create_namespace(server: DevServer, name: str) -> None:
    """Make a namespace, and wait until it can be used."""
    client = await Client.connect(server.options.address)
    retention = Duration(seconds=86_400)
    await client.workflow_service.register_namespace(
        RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=retention)
    )

    async def is_there() -> bool:
        try:
            await (await Client.connect(server.options.address, namespace=name)).count_workflows()
        except RPCError:
            return False
        return True

    await eventually(is_there)


async def version_of(client: Client, queue: str) -> str:
    """Name the one version that a catalogue knows."""
    [version] = await versions_of(client, queue)
    return version.version


async def is_newer(client: Client, queue: str, before: WorkerVersion) -> bool:
    """Say whether a version was heard of since."""
    return (await versions_of(client, queue))[-1].seen_at > before.seen_at

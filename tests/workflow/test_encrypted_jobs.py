"""Jobs whose payloads are encrypted, on a real server: what it holds, keys that change, and keys that are missing."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Worker

from horarium import HorariumPlugin, JobRun, checkpoint, current_run
from horarium.encrypted_payload import is_encrypted, key_id_of, tenant_of_payload
from horarium.encryption_keys import EncryptionKey
from tests.encryption import connect_with, keys_file, new_key
from tests.eventually import eventually
from tests.temporal_servers import unique
from tests.workflow.harness import QUICK, Harness, JobCode, chain_of, every, is_gapless, job, running
from tests.workflow.test_long_sleep import until_asleep
from workers.devserver import DevServer
from workers.encryption_use import count_keys_in_use
from workers.settings import Settings
from workflows.job import Backoff, Isolation
from workflows.run import PayloadOverride, RunStatus
from workflows.target import ActivityTarget

SECRET = "walnut-4711"

OLD, NEW = new_key("old"), new_key("new")

SHORT_RUNS = QUICK.model_copy(update={"history_limit": 50})


class TalkativeCode(JobCode):
    """Job code that repeats what it was told wherever it can."""

    @activity.defn
    async def tell(self, secret: str) -> str:
        """Save it, fail with it, and answer with it."""
        checkpoint({"told": secret})
        if current_run().attempt == 1:
            raise ValueError(f"{secret} was refused")
        return f"done with {secret}"

    def activities(self) -> list[Callable[..., Any]]:
        """All of them, and this one."""
        return [*super().activities(), self.tell]


def talkative(**fields: Any) -> Any:
    """A job whose payload, description and failure must not be read."""
    retry = {"max_attempts": 2, "backoff": Backoff.FIXED}
    return job("tell", payload=SECRET, description=f"about {SECRET}", owner=SECRET, retry=retry, **fields)


async def bytes_of(harness: Harness, job_id: str, histories: list[WorkflowHistory]) -> bytes:
    """All that the server holds of a job: histories, and what lists and pages show."""
    described = await harness.handle(job_id).describe()
    listed = [each.raw_info async for each in harness.client.list_workflows(f"WorkflowId = '{described.id}'")]
    events = [event for history in histories for event in history.events]
    return b"".join(each.SerializeToString() for each in (*events, described.raw_description, *listed))


def payloads_in(message: Any) -> list[Payload]:
    """Find all payloads in a message of Temporal."""
    if isinstance(message, Payload):
        return [message]
    found = []
    for field, value in message.ListFields():
        if field.message_type is None or field.name in ("search_attributes", "header"):
            continue
        if field.message_type.GetOptions().map_entry:
            # Of a local activity the SDK itself notes its name and its times, in the clear.
            is_note = field.name == "details"
            inner = [
                each for name, each in value.items() if hasattr(each, "ListFields") and not (is_note and name == "data")
            ]
        else:
            inner = list(value) if field.is_repeated else [value]
        found += [payload for each in inner for payload in payloads_in(each)]
    return found


@pytest.mark.parametrize("keys", [(NEW,), ()], ids=["with keys", "without"])
async def test_the_server_holds_nothing_readable(temporal_server: DevServer, keys: tuple[EncryptionKey, ...]) -> None:
    """Payloads, results, failures, checkpoints, updates, memo and state, of the job and of a run of its own workflow."""
    client = await connect_with(temporal_server, *keys)
    async with running(client, code=TalkativeCode()) as harness:
        inline = await harness.register(talkative(schedule=every(1, max_runs=1)))
        apart = await harness.register(talkative(every_seconds=86_400, isolation=Isolation.WORKFLOW))
        await harness.trigger(apart, override=PayloadOverride(payload=SECRET))
        await harness.pause(apart, reason=SECRET)
        [run] = await harness.until_runs(inline, 1)
        [detached] = await harness.until_runs(apart, 1)
        for each in (run, detached):
            assert (each.status, each.result) == (RunStatus.SUCCESS, f"done with {SECRET}")
        histories = [*await harness.histories(inline), *await harness.histories(apart)]
        histories += await chain_of(client, f"run/default/{detached.run_id}")
        held = b"".join([await bytes_of(harness, each, histories) for each in (inline, apart)])
        assert (SECRET.encode() in held) is not bool(keys)
        found = [payload for history in histories for event in history.events for payload in payloads_in(event)]
        assert len(found) > 20
        assert {is_encrypted(payload) for payload in found} == {bool(keys)}
        assert {tenant_of_payload(payload) for payload in found} == {"default" if keys else None}


async def test_keys_change_while_jobs_go_on(temporal_server: DevServer) -> None:
    """From none to one, to another one, to that one alone: no fire is lost, and in the end nothing needs the old key."""
    steps = [(), (OLD,), (OLD, NEW), (NEW, OLD), (NEW,)]
    async with running(await connect_with(temporal_server), tuning=SHORT_RUNS) as harness:
        job_id = await harness.register(job("take", payload=0.0))
        sleeper = await harness.register(job("take", every_seconds=86_400, payload=0.0))
        await until_asleep(harness, sleeper)
        for count, keys in enumerate(steps, start=1):
            await harness.stop_workers()
            harness.client = await connect_with(temporal_server, *keys)
            await harness.start_workers()
            answer = await harness.trigger(sleeper)
            assert answer.triggered.run_id
            await harness.until_runs(sleeper, count)
            await harness.until_runs(job_id, 2 * count)
            await eventually(partial(begins_with_key, harness, job_id, keys[0].key_id if keys else ""))
        runs = await harness.until_runs(job_id, 2 * len(steps) + 1)
        assert {run.status for run in runs} == {RunStatus.SUCCESS}
        assert is_gapless([run.scheduled_at for run in runs], runs[1].scheduled_at - runs[0].scheduled_at)


async def begins_with_key(harness: Harness, job_id: str, key_id: str) -> bool:
    """Whether the present run of a job, and of the sleeper, needs no other key than this one."""
    latest = await harness.handle(job_id).fetch_history()
    return {key_id_of(payload) for event in latest.events for payload in payloads_in(event)} == {key_id}


@pytest.mark.parametrize("memo", [None, {"about": SECRET}], ids=["without a memo", "with one"])
async def test_a_key_is_in_use_as_long_as_an_open_history_holds_it(
    temporal_server: DevServer, memo: dict[str, str] | None
) -> None:
    """What a process told a workflow that still wrote with the old key, after the workflow went on with the new one."""
    old, new = new_key(unique("old")), new_key(unique("new"))
    settings = Settings(temporal_address=temporal_server.options.address)
    client = await connect_with(temporal_server, new, old)
    handle = await client.start_workflow(
        "Waiting", SECRET, id=unique("job/default/waiting"), task_queue=unique("nobody"), memo=memo
    )

    async def counted() -> tuple[int, int]:
        counts = await count_keys_in_use(settings)
        return counts[new.key_id], counts[old.key_id]

    async def is_counted(*expected: int) -> bool:
        return await counted() == expected

    await eventually(partial(is_counted, 1, 0))
    late = await connect_with(temporal_server, old, new)
    await late.get_workflow_handle(handle.id).signal("told", SECRET)
    assert await counted() == (1, 1)
    await handle.terminate()
    await eventually(partial(is_counted, 0, 0))


async def test_workers_with_old_keys_destroy_nothing(temporal_server: DevServer) -> None:
    """Their tasks fail, and name the key; with it the job goes on where it was."""
    async with running(await connect_with(temporal_server, NEW), may_fail_tasks=True) as harness:
        job_id = await harness.register(job("take", payload=0.0))
        await harness.until_runs(job_id, 1)
        await harness.stop_workers()
        knowing = harness.client
        harness.client = await connect_with(temporal_server, OLD)
        await harness.start_workers()

        async def why_it_fails() -> set[str]:
            latest = await harness.handle(job_id).fetch_history()
            failures = [event.workflow_task_failed_event_attributes.failure.message for event in latest.events]
            return {message for message in failures if message}

        [reason] = await eventually(why_it_fails)
        assert "key 'new', which this process does not have; it has 'old'" in reason
        known = len(harness.mirror.outcomes(job_id))
        await harness.stop_workers()
        harness.client = knowing
        await harness.start_workers()
        runs = await harness.until_runs(job_id, known + 2)
        assert is_gapless([nominal for nominal, _ in harness.mirror.outcomes(job_id)], every(1).rule.every)  # type: ignore[union-attr]
        assert {run.status for run in runs} == {RunStatus.SUCCESS}


@activity.defn(name="greet")
async def greet(run: JobRun[Any]) -> str:
    """Answer."""
    return f"hello {run.payload}"


@activity.defn(name="greet")
async def greet_bare(run: Any) -> str:
    """Answer, on a worker without our SDK."""
    return f"hello {run['payload']}"


async def test_an_attempt_waits_for_a_worker_that_has_the_key(temporal_server: DevServer, tmp_path: Path) -> None:
    """Parked, with the reason, whether the worker has another key, none, or knows nothing of us; no attempt is used up."""
    address = temporal_server.options.address
    file = keys_file(tmp_path / "keys", "team")
    client = await Client.connect(address, plugins=[HorariumPlugin(encryption_keys=file, announce=False)])
    stranger = HorariumPlugin(encryption_keys=keys_file(tmp_path / "others", "strange"), announce=False)
    strange_client = await Client.connect(address, plugins=[stranger])
    queues = {name: unique(name) for name in ("other-key", "no-key", "no-sdk")}
    plain = await Client.connect(address)
    keyless = {
        "other-key": Worker(strange_client, task_queue=queues["other-key"], activities=[greet]),
        "no-key": Worker(
            plain, task_queue=queues["no-key"], activities=[greet], plugins=[HorariumPlugin(announce=False)]
        ),
        "no-sdk": Worker(plain, task_queue=queues["no-sdk"], activities=[greet_bare]),
    }
    words = {
        "other-key": "key 'team', which this process does not have; it has 'strange'",
        "no-key": "key 'team', and this worker has no keys: set HORARIUM_ENCRYPTION_KEYS_FILE",
        "no-sdk": "cannot read encrypted payloads",
    }
    from horarium.encryption_keys import read_keys

    async with running(await connect_with(temporal_server, *read_keys(file))) as harness:
        jobs = {
            name: await harness.register(
                job(
                    "greet",
                    schedule=every(1, max_runs=1),
                    target=ActivityTarget(activity="greet", task_queue=queue),
                    payload="you",
                    retry={"max_attempts": 1},
                )
            )
            for name, queue in queues.items()
        }
        workers = [asyncio.create_task(worker.run()) for worker in keyless.values()]

        def all_are_parked() -> bool:
            runs = {
                name: next(iter(harness.mirror.runs.get(job_id, {}).values()), None) for name, job_id in jobs.items()
            }
            for name, run in runs.items():
                assert run is not None
                assert run.status is RunStatus.PARKED, run
                assert words[name] in (run.reason or ""), run.reason
            return True

        await eventually(all_are_parked)
        await asyncio.gather(*(worker.shutdown() for worker in keyless.values()))
        await asyncio.gather(*workers)
        able = [Worker(client, task_queue=queue, activities=[greet]) for queue in queues.values()]
        working = [asyncio.create_task(worker.run()) for worker in able]
        for job_id in jobs.values():
            [run] = await harness.until_runs(job_id, 1)
            assert (run.status, run.result, run.attempt) == (RunStatus.SUCCESS, "hello you", 1)
        await asyncio.gather(*(worker.shutdown() for worker in able))
        await asyncio.gather(*working)


async def test_a_plugin_with_keys_belongs_to_the_client(temporal_client: Client, tmp_path: Path) -> None:
    """A worker alone cannot decrypt what its client hands it, and says so before it takes anything."""
    plugin = HorariumPlugin(encryption_keys=keys_file(tmp_path / "keys", "team"))
    with pytest.raises(ValueError, match="give the plugin to the client"):
        Worker(temporal_client, task_queue="any", activities=[greet], plugins=[plugin])

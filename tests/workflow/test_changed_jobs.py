"""Changed, paused and triggered by updates: awake, asleep the long way, and again under the same key."""

import asyncio
from datetime import UTC, datetime, timedelta

from temporalio.client import Client

from tests.eventually import eventually
from tests.workflow.harness import QUICK, SLEEPY, count_kind, every, is_gapless, job, kinds_of, refusal_of, running
from tests.workflow.test_long_sleep import until_asleep
from workflows.alert_rule import AlertKind, AlertRules
from workflows.command import ChangeCommand, PauseCommand
from workflows.contracts import INVALID_SCHEDULE, REVISION_MISMATCH, UPDATE_CHANGE, UPDATE_PAUSE
from workflows.job import Isolation, JobRecord, Lifecycle, OverlapPolicy, Pause, PausedFires, TriggerOutcome
from workflows.run import Outcome, PayloadOverride, RunKind, RunStatus

MONTHLY = 86_400 * 30


async def test_a_sleeping_job_is_changed_at_once_to_an_earlier_time(temporal_client: Client) -> None:
    """In a sleep of a month: the answer has the new next fire, nothing runs at once, and the fire comes at its time."""
    async with running(temporal_client, tuning=SLEEPY) as harness:
        job_id = await harness.register(job(every_seconds=MONTHLY, payload=1))
        await until_asleep(harness, job_id)
        asked_at = datetime.now(UTC)
        record = await asyncio.wait_for(harness.change(job_id, job(every_seconds=3)), 10)
        assert record.revision == 2
        assert record.next_run_at is not None
        assert asked_at < record.next_run_at <= asked_at + timedelta(seconds=9)
        runs = await harness.until_runs(job_id, 2)
        assert runs[0].scheduled_at == record.next_run_at
        assert {run.revision for run in runs} == {2}
        assert is_gapless([run.scheduled_at for run in runs], timedelta(seconds=3))


async def test_a_sleeping_job_is_changed_to_a_later_time_and_sleeps_on(temporal_client: Client) -> None:
    """Without its old fire, and without a history."""
    async with running(temporal_client, tuning=SLEEPY) as harness:
        job_id = await harness.register(job(schedule=every(6)))
        await until_asleep(harness, job_id)
        record = await harness.change(job_id, job(schedule=every(MONTHLY)))
        await until_asleep(harness, job_id, sleeps=2)
        assert record.next_run_at is not None
        assert record.next_run_at > datetime.now(UTC) + timedelta(hours=1)
        assert harness.mirror.outcomes(job_id) == []


async def test_a_job_that_fires_every_second_is_changed_again_and_again(temporal_client: Client) -> None:
    """Twenty payloads, while it also continues as new: no nominal time is lost or told twice, and each run has its own."""
    async with running(temporal_client, tuning=QUICK.model_copy(update={"history_limit": 60})) as harness:
        job_id = await harness.register(job("take", payload=0.0))
        await harness.until_runs(job_id, 1)
        for number in range(1, 21):
            await harness.change(job_id, job("take", payload=number / 1000))
        await harness.until_runs(job_id, 5, limit=timedelta(seconds=60))
        outcomes = harness.mirror.outcomes(job_id)
        assert is_gapless([nominal for nominal, _ in outcomes], timedelta(seconds=1))
        for call in harness.code.of(job_id):
            revision = harness.mirror.runs[job_id][call.run.run_id].revision
            assert call.run.payload == (revision - 1) / 1000
        await eventually(lambda: harness.mirror.jobs[job_id].revision == 21)


async def test_a_stale_or_repeated_change_changes_nothing(temporal_client: Client) -> None:
    """Refused by its revision without a trace in the history; under its key answered as before."""
    async with running(temporal_client) as harness:
        job_id = await harness.register(job(every_seconds=MONTHLY))
        command = ChangeCommand(key="k", definition=job(every_seconds=MONTHLY, payload=1), expected=1)

        async def change(command: ChangeCommand) -> JobRecord:
            record: JobRecord = await harness.handle(job_id).execute_update(
                UPDATE_CHANGE, command, result_type=JobRecord
            )
            return record

        assert (await change(command)).revision == 2
        assert (await change(command)).revision == 2
        stale = command.model_copy(update={"key": "other", "definition": job(every_seconds=MONTHLY, payload=2)})
        assert await refusal_of(change(stale)) == REVISION_MISMATCH
        # The same key names another kind of command: it is not answered by what the change was.
        pause = PauseCommand(key="k", pause=Pause(at=datetime.now(UTC)))
        record = await harness.handle(job_id).execute_update(UPDATE_PAUSE, pause, result_type=JobRecord)
        assert record.lifecycle is Lifecycle.PAUSED
        histories = await harness.histories(job_id)
        assert count_kind(histories, "workflow_execution_update_accepted") == 3


async def test_a_change_waits_for_a_planner_that_does_not_answer(temporal_client: Client) -> None:
    """Nothing is applied halfway: what lies before it must be known first."""
    async with running(temporal_client) as harness:
        job_id = await harness.register(job(every_seconds=MONTHLY))
        await eventually(lambda: harness.mirror.jobs.get(job_id))
        harness.planner.broken.add(job_id)
        changing = asyncio.ensure_future(harness.change(job_id, job(every_seconds=3)))
        await asyncio.sleep(1)  # the absence itself
        assert not changing.done()
        harness.planner.broken.clear()
        assert (await asyncio.wait_for(changing, 30)).revision == 2
        await harness.until_runs(job_id, 1)


async def test_a_pause_is_told_and_ends_as_it_was_asked_to(temporal_client: Client) -> None:
    """Awake: what falls into it is a line of the ledger; with a catch-up it is one run."""
    async with running(temporal_client) as harness:
        job_id = await harness.register(job())
        await harness.until_runs(job_id, 1)
        record = await harness.pause(job_id, reason="why", by="whom")
        assert (record.lifecycle, record.next_run_at) == (Lifecycle.PAUSED, None)
        assert record.pause is not None
        assert (record.pause.reason, record.pause.by) == ("why", "whom")

        def has_ended_what_was_begun() -> bool:
            row = harness.mirror.jobs[job_id]
            return row.version >= record.version and row.active_runs == 0

        await eventually(has_ended_what_was_begun)
        known = len(harness.code.of(job_id))
        await asyncio.sleep(3)  # the pause itself
        assert len(harness.code.of(job_id)) == known
        await harness.resume(job_id)
        await harness.until_runs(job_id, known + 1)
        paused = [each for each in harness.mirror.ledger[job_id].values() if each.outcome is Outcome.PAUSED]
        assert sum(each.count for each in paused) >= 2
        assert harness.mirror.jobs[job_id].counts.missed == 0

        await harness.pause(job_id, until=await harness.now() + timedelta(seconds=3), catch_up=PausedFires.APPLY)
        await eventually(
            lambda: any(
                run.kind is RunKind.CATCH_UP and run.finished_at for run in harness.mirror.runs[job_id].values()
            )
        )
        assert harness.mirror.jobs[job_id].lifecycle is Lifecycle.ACTIVE


async def test_a_sleeping_job_is_paused_until_a_time_and_sleeps_until_then(temporal_client: Client) -> None:
    """The long way, if the pause ends no sooner than it was to wake; then it fires again."""
    async with running(temporal_client, tuning=SLEEPY) as harness:
        job_id = await harness.register(job(every_seconds=4))
        await until_asleep(harness, job_id)
        until = await harness.now() + timedelta(seconds=9)
        await harness.pause(job_id, until=until)
        # On a busy machine a fire may have come before the pause did.
        before = {nominal for nominal, _ in harness.mirror.outcomes(job_id)}
        runs = await harness.until_runs(job_id, len(before) + 1)
        assert runs[len(before)].scheduled_at >= until
        outcomes = harness.mirror.outcomes(job_id)
        assert {outcome for at, outcome in outcomes if at < until and at not in before} == {Outcome.PAUSED}


async def test_a_sleeping_job_is_triggered_at_once_and_goes_back_to_sleep(temporal_client: Client) -> None:
    """With a payload of its own; its fire stays where it was. Again, paused."""
    async with running(temporal_client, tuning=SLEEPY) as harness:
        job_id = await harness.register(job("take", every_seconds=MONTHLY, payload=60))
        await until_asleep(harness, job_id)
        before = harness.mirror.jobs[job_id].next_run_at
        answer = await harness.trigger(job_id, override=PayloadOverride(payload=0.1))
        assert answer.triggered.outcome is TriggerOutcome.STARTED
        [run] = await harness.until_runs(job_id, 1)
        assert (run.run_id, run.kind, run.status) == (answer.triggered.run_id, RunKind.MANUAL, RunStatus.SUCCESS)
        await until_asleep(harness, job_id, sleeps=2)
        assert harness.mirror.jobs[job_id].next_run_at == before
        await harness.pause(job_id)
        await harness.trigger(job_id, override=PayloadOverride(payload=0.1))
        await harness.until_runs(job_id, 2)
        assert harness.mirror.jobs[job_id].lifecycle is Lifecycle.PAUSED


async def test_a_repeated_trigger_is_one_run_and_fifty_at_once_are_fifty(temporal_client: Client) -> None:
    """The job remembers what it answered; ten updates at a time are let in."""
    async with running(temporal_client) as harness:
        job_id = await harness.register(job(every_seconds=MONTHLY, overlap="allow", max_concurrent=100))
        first = await harness.trigger(job_id, key="k", request_id="a")
        assert (await harness.trigger(job_id, key="k", request_id="a")).triggered == first.triggered
        room = asyncio.Semaphore(8)

        async def trigger() -> str:
            async with room:
                return (await harness.trigger(job_id)).triggered.run_id

        names = await asyncio.gather(*(trigger() for _ in range(50)))
        assert len({*names, first.triggered.run_id}) == 51
        runs = await harness.until_runs(job_id, 51, limit=timedelta(seconds=60))
        assert {run.status for run in runs} == {RunStatus.SUCCESS}


async def test_runs_are_cancelled_running_detached_and_waiting(temporal_client: Client) -> None:
    """A running one within its heartbeat; each once."""
    async with running(temporal_client) as harness:
        monthly = job("take", every_seconds=MONTHLY, payload=60, heartbeat_timeout=timedelta(seconds=1.5))
        inline = await harness.register(monthly.model_copy(update={"overlap": OverlapPolicy.BUFFER_ALL}))
        apart = await harness.register(monthly.model_copy(update={"isolation": Isolation.WORKFLOW}))
        running_one, waiting_one = [(await harness.trigger(inline)).triggered.run_id for _ in range(2)]
        detached = (await harness.trigger(apart)).triggered.run_id
        await eventually(lambda: len(harness.code.of(inline)) + len(harness.code.of(apart)) == 2)
        for job_id, run_id in ((inline, waiting_one), (inline, running_one), (inline, running_one), (apart, detached)):
            await harness.cancel_run(job_id, run_id)
        await harness.until_runs(inline, 2)
        await harness.until_runs(apart, 1)
        for job_id in (inline, apart):
            assert set(harness.mirror.statuses(job_id)) == {RunStatus.CANCELLED}
        assert [call.how for call in harness.code.of(inline)] == ["CancelledError"]
        histories = await harness.histories(inline)
        assert "workflow_task_failed" not in {kind for history in histories for kind in kinds_of(history)}


async def test_a_job_whose_alerts_are_taken_away_while_one_is_awaited_goes_on(temporal_client: Client) -> None:
    """Its fire has not finished in time, and nobody is to be told: it does nothing, and can be told everything."""
    rules = AlertRules(on=(AlertKind.NOT_FINISHED,), finish_within=timedelta(seconds=3))
    async with running(temporal_client) as harness:
        job_id = await harness.register(job("take", every_seconds=3, payload=30, alerts=rules))
        await eventually(lambda: len(harness.code.of(job_id)) == 1)
        await harness.change(job_id, job("take", every_seconds=MONTHLY, payload=30))
        await asyncio.sleep(4)
        record = await asyncio.wait_for(harness.pause(job_id), 5)
        assert record.lifecycle is Lifecycle.PAUSED


async def test_a_trigger_that_needs_a_zone_that_its_worker_does_not_know_is_refused(temporal_client: Client) -> None:
    """Without a trace in the history: the job goes on to be told other things, here and where the zone is known."""
    async with running(temporal_client) as harness:
        elsewhere = every(3600).model_copy(update={"timezone": "Mars/Olympus"})
        job_id = await harness.register(job(schedule=elsewhere))
        assert await asyncio.wait_for(refusal_of(harness.trigger(job_id)), 10) == INVALID_SCHEDULE
        [history] = await harness.histories(job_id)
        assert count_kind([history], "workflow_execution_update_accepted") == 0
        await asyncio.wait_for(harness.delete(job_id), 10)

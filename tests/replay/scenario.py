"""What is recorded: small jobs that take a job's workflow through everything it does.

Each scenario is played on a real server with production's workers. What is kept of it are the histories of the runs of the job's
workflow that it names, of the workflows of detached runs and backlogs, and the arguments that any of them was given.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tests.eventually import eventually
from tests.replay.steering import (
    cancel_run,
    change,
    hold_and_release,
    hold_for_a_while,
    pause_and_resume,
    pause_for_a_while,
    show,
    trigger,
    trigger_together,
)
from tests.workflow.harness import QUICK, SLEEPY, Harness, every, job, kinds_of, lateness, refusal_of
from workflows.alert_rule import AlertKind, AlertRules
from workflows.job import JobDefinition, Tuning
from workflows.linger import CROWDED
from workflows.run import RunStatus
from workflows.target import WorkflowTarget

ENOUGH = timedelta(seconds=60)
SECOND = timedelta(seconds=1)

OFTEN = {"max_attempts": 3, "base": timedelta(milliseconds=1), "cap": timedelta(milliseconds=1)}
LISTENS = timedelta(seconds=1.5)
"""A heartbeat timeout that lets a cancellation through soon."""

NIGHT = datetime(2026, 6, 1, tzinfo=UTC)

CONTINUED = "workflow_execution_continued_as_new"

AWAY = 5
"""Seconds without workers, for what is missed."""

Play = Callable[[Harness, str], Awaitable[None]]
"""Takes a job as far as its scenario wants it."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One job and what is to happen to it."""

    definition: JobDefinition
    play: Play
    tuning: Tuning = QUICK


def until_runs(count: int) -> Play:
    """Wait for so many runs."""

    async def play(harness: Harness, job_id: str) -> None:
        await harness.until_runs(job_id, count, limit=ENOUGH)

    return play


def until_told(count: int) -> Play:
    """Wait until so many fires have an outcome."""

    async def play(harness: Harness, job_id: str) -> None:
        await eventually(lambda: len(harness.mirror.outcomes(job_id)) >= count, limit=ENOUGH)

    return play


def until_successes(count: int) -> Play:
    """Wait for so many runs that succeeded."""

    async def play(harness: Harness, job_id: str) -> None:
        await eventually(lambda: harness.mirror.statuses(job_id)[RunStatus.SUCCESS] >= count, limit=ENOUGH)

    return play


async def until_the_crowd_is_through(harness: Harness, job_id: str) -> None:
    """Wait until the run of a fire that came late sleeps the long way again."""

    async def sleeps_again() -> bool:
        late = {run.workflow_run_id for run in harness.mirror.runs[job_id].values() if lateness(run) >= CROWDED}
        histories = {history.run_id: history for history in await harness.histories(job_id)}
        return bool(late) and all(kinds_of(histories[run_id])[-1] == CONTINUED for run_id in late if run_id)

    await eventually(sleeps_again, limit=2 * ENOUGH)


async def update_while_sleeping(harness: Harness, job_id: str) -> None:
    """Wake it for nothing, and then delete it."""
    await harness.until_runs(job_id, 1, limit=ENOUGH)
    assert await refusal_of(harness.register_again(job(), job_id=job_id)) == "Conflict"
    await harness.delete(job_id)
    await harness.started[job_id].result()


async def delete_and_register_again(harness: Harness, job_id: str) -> None:
    """While a run is active, which then fails and is not tried again."""
    await eventually(lambda: harness.code.of(job_id), limit=ENOUGH)
    await harness.delete(job_id)
    await harness.register_again(job(), job_id=job_id)
    await harness.until_runs(job_id, 3, limit=ENOUGH)


async def delete_with_its_runs(harness: Harness, job_id: str) -> None:
    """While one runs and one waits."""
    await eventually(lambda: len(harness.mirror.outcomes(job_id)) >= 2, limit=ENOUGH)
    await harness.delete(job_id, cancel_active=True)
    await harness.started[job_id].result()


async def restore(harness: Harness, job_id: str) -> None:
    """Let it go on from what the mirror knows."""
    await harness.until_runs(job_id, 2, limit=ENOUGH)
    await harness.restore(job_id)
    await harness.until_runs(job_id, 4, limit=ENOUGH)


async def redrive_the_first(harness: Harness, job_id: str) -> None:
    """A dead run, once more; it dies again."""
    [first, *_] = await harness.until_runs(job_id, 1, limit=ENOUGH)
    answer = await harness.redrive(first, job_id=job_id)

    def is_dead_again() -> bool:
        redriven = harness.mirror.runs[job_id].get(answer.run_id)
        return redriven is not None and redriven.status is RunStatus.DEAD

    await eventually(is_dead_again, limit=ENOUGH)


async def until_alerts(harness: Harness, job_id: str) -> None:
    """Wait until somebody was told that a run is dead, and that another one will not finish in time."""

    def are_told() -> bool:
        return {alert.kind for alert in harness.alerts.taken if alert.job_id == job_id} >= {*ALERTS.on}

    await eventually(are_told, limit=ENOUGH)


async def cancel_in_temporal(harness: Harness, job_id: str) -> None:
    """While a run is active."""
    await eventually(lambda: harness.code.of(job_id), limit=ENOUGH)
    await harness.handle(job_id).cancel()
    await harness.started[job_id].result()


async def backfill(harness: Harness, job_id: str) -> None:
    """Some hours of a night, beside its own fires; then once more, when all of them have run."""
    await harness.until_runs(job_id, 1, limit=ENOUGH)
    for _ in range(2):
        asked = await harness.backfill(job_id, start=NIGHT, end=NIGHT + 8 * SECOND, max_concurrent=2)
        await harness.until_backfilled(asked, limit=ENOUGH)


ALERTS = AlertRules(on=(AlertKind.DEAD, AlertKind.NOT_FINISHED), finish_within=2 * SECOND)

TEAM = "team-of-the-recordings"
"""Task queue of the workflows that jobs start."""


def woken_ahead(*, seconds: float) -> Tuning:
    """Sleep the long way, and be woken so long before a fire at most."""
    return SLEEPY.model_copy(update={"wake_ahead": timedelta(seconds=seconds)})


TOGETHER: dict[str, Scenario] = {
    "plain-fires": Scenario(definition=job(every_seconds=2), play=until_runs(8)),
    "planned-anew": Scenario(
        definition=job(every_seconds=2), play=until_runs(6), tuning=QUICK.model_copy(update={"batch_size": 2})
    ),
    "excluded-fires": Scenario(
        definition=job(schedule=every(1, exclude={"cron": ("*/2 * * * * *",)})),
        play=until_told(6),
    ),
    "long-sleep": Scenario(definition=job(every_seconds=3), play=until_runs(3), tuning=SLEEPY),
    "woken-ahead": Scenario(definition=job(every_seconds=4), play=until_runs(3), tuning=woken_ahead(seconds=2)),
    "continued": Scenario(
        definition=job(every_seconds=2), play=until_runs(3), tuning=QUICK.model_copy(update={"history_limit": 12})
    ),
    "update-while-sleeping": Scenario(definition=job(every_seconds=3), play=update_while_sleeping, tuning=SLEEPY),
    "overlap-skip": Scenario(definition=job("take", payload=3.5), play=until_runs(2)),
    "overlap-buffer-one": Scenario(definition=job("take", payload=2.5, overlap="buffer_one"), play=until_runs(3)),
    "overlap-buffer-all": Scenario(
        definition=job("take", payload=2.5, overlap="buffer_all", max_buffered=2), play=until_runs(4)
    ),
    "overlap-cancel-other": Scenario(
        definition=job("take", every_seconds=3, payload=60, overlap="cancel_other", heartbeat_timeout=LISTENS),
        play=until_runs(2),
    ),
    "overlap-terminate-other": Scenario(
        definition=job("ignore_cancel", every_seconds=2, payload=5, overlap="terminate_other"), play=until_runs(3)
    ),
    "overlap-allow": Scenario(definition=job("take", payload=4, overlap="allow", max_concurrent=3), play=until_runs(6)),
    "retry": Scenario(definition=job("fail", every_seconds=5, payload=2, retry=OFTEN), play=until_runs(1)),
    "dead": Scenario(definition=job("fail_for_good", every_seconds=2), play=until_runs(2)),
    "unknown-activity": Scenario(definition=job("nobody_knows_it"), play=until_told(4)),
    "silent": Scenario(definition=job("take", every_seconds=5, payload=4), play=until_runs(1)),
    "detached": Scenario(
        definition=job("fail", every_seconds=5, payload=1, retry=OFTEN, isolation="workflow"), play=until_runs(1)
    ),
    "detached-replaced": Scenario(
        definition=job(
            "take",
            every_seconds=4,
            payload=60,
            overlap="cancel_other",
            isolation="workflow",
            heartbeat_timeout=LISTENS,
        ),
        play=until_runs(1),
    ),
    "detached-continued": Scenario(
        definition=job("fail", every_seconds=20, payload=3, retry={**OFTEN, "max_attempts": 4}, isolation="workflow"),
        play=until_runs(1),
        tuning=QUICK.model_copy(update={"history_limit": 12}),
    ),
    "workflow-target": Scenario(
        definition=job(
            "Settlement",
            every_seconds=5,
            payload="fail twice",
            retry=OFTEN,
            target=WorkflowTarget(workflow="Settlement", task_queue=TEAM),
        ),
        play=until_runs(1),
    ),
    "redriven": Scenario(definition=job("fail_for_good", every_seconds=5), play=redrive_the_first),
    "backfilled": Scenario(definition=job(every_seconds=2), play=backfill),
    "restored": Scenario(definition=job(every_seconds=2), play=restore),
    "alerts": Scenario(definition=job("fail_for_good", every_seconds=3, alerts=ALERTS), play=until_alerts),
    "alerts-of-a-run": Scenario(
        definition=job("fail_for_good", every_seconds=5, alerts=AlertRules(), isolation="workflow"), play=until_runs(1)
    ),
    "registered-again": Scenario(
        definition=job("fail", every_seconds=1, payload=9, retry=OFTEN), play=delete_and_register_again
    ),
    "deleted": Scenario(
        definition=job("take", payload=60, overlap="buffer_one", heartbeat_timeout=LISTENS), play=delete_with_its_runs
    ),
    "changed": Scenario(definition=job("take", every_seconds=3, payload=1), play=change),
    "changed-while-sleeping": Scenario(definition=job("take", every_seconds=5, payload=0), play=change, tuning=SLEEPY),
    "paused": Scenario(definition=job(), play=pause_and_resume),
    "paused-while-sleeping": Scenario(definition=job(every_seconds=3), play=pause_and_resume, tuning=SLEEPY),
    "paused-for-a-while": Scenario(definition=job(), play=pause_for_a_while),
    "held": Scenario(definition=job(), play=hold_and_release),
    "held-while-sleeping": Scenario(definition=job(every_seconds=3), play=hold_and_release, tuning=SLEEPY),
    "held-for-a-while": Scenario(definition=job(), play=hold_for_a_while),
    "triggered": Scenario(definition=job("take", every_seconds=3, payload=2), play=trigger),
    "triggered-while-sleeping": Scenario(
        definition=job("take", every_seconds=4, payload=0), play=trigger, tuning=SLEEPY
    ),
    "triggered-together": Scenario(
        definition=job("take", every_seconds=86_400, payload=0, overlap="allow"), play=trigger_together, tuning=SLEEPY
    ),
    "shown": Scenario(definition=job(every_seconds=2), play=show),
    "shown-while-sleeping": Scenario(definition=job(every_seconds=4), play=show, tuning=SLEEPY),
    "run-cancelled": Scenario(definition=job("take", payload=60, heartbeat_timeout=LISTENS), play=cancel_run),
    "detached-cancelled": Scenario(
        definition=job("take", payload=60, heartbeat_timeout=LISTENS, isolation="workflow"), play=cancel_run
    ),
    "cancelled": Scenario(definition=job("take", payload=60, heartbeat_timeout=LISTENS), play=cancel_in_temporal),
}
"""Played side by side, some at a time: on a busy machine they would be in each other's way."""

AT_A_TIME = 6

MISSED: dict[str, Scenario] = {
    "catch-up-skip": Scenario(definition=job(missed_window="SKIP", misfire_grace=SECOND), play=until_told(10)),
    "catch-up-run-once": Scenario(definition=job(missed_window="RUN_ONCE", misfire_grace=SECOND), play=until_told(10)),
    "catch-up-run-all": Scenario(
        definition=job(missed_window="RUN_ALL", misfire_grace=SECOND, max_missed=3, catch_up_rate=120),
        play=until_told(12),
    ),
    "catch-up-paced": Scenario(
        definition=job(missed_window="RUN_ALL", misfire_grace=SECOND, max_missed=3, catch_up_rate=600),
        play=until_told(12),
        tuning=QUICK.model_copy(update={"paces_catch_up": True}),
    ),
    "catch-up-deadline": Scenario(definition=job(missed_window="DEADLINE", max_delay=2 * SECOND), play=until_told(10)),
    "catch-up-too-old": Scenario(
        definition=job(missed_window="RUN_ALL", misfire_grace=SECOND, lookback=2 * SECOND), play=until_told(8)
    ),
    # Asleep when they go; due shortly before they are back.
    "woken-ahead-late": Scenario(
        definition=job(every_seconds=4), play=until_the_crowd_is_through, tuning=woken_ahead(seconds=2)
    ),
}
"""Their first run ends, and then nobody is there for some seconds."""

WITHOUT_MIRROR: dict[str, Scenario] = {
    "mirror-away": Scenario(definition=job(), play=until_runs(6)),
    "backlog": Scenario(definition=job(), play=until_runs(12), tuning=QUICK.model_copy(update={"outbox_limit": 6})),
}
"""The mirror is away until they have fired for a while."""


DOWNSTREAM: dict[str, Scenario] = {
    "downstream-outage": Scenario(
        definition=job("call_out", downstream="bank", overlap="allow"), play=until_successes(2)
    ),
    "downstream-outage-detached": Scenario(
        definition=job("call_out", downstream="post", overlap="allow", isolation="workflow"), play=until_successes(2)
    ),
}
"""What they call is down when they begin."""


async def play_downstream(harness: Harness) -> None:
    """Let runs die of the retry budget, and wait for an open breaker; then a probe closes it."""
    harness.code.is_downstream_down = True
    told = {RunStatus.DEAD, RunStatus.PARKED}
    await eventually(
        lambda: all(told <= {*harness.mirror.statuses(harness.named[name])} for name in DOWNSTREAM), limit=ENOUGH
    )
    harness.code.is_downstream_down = False
    await asyncio.gather(*(each.play(harness, harness.named[name]) for name, each in DOWNSTREAM.items()))


async def play_missed(harness: Harness) -> None:
    """Let all jobs miss some fires, and see them told."""
    for name in MISSED:
        await harness.until_runs(harness.named[name], 1, limit=ENOUGH)
    await harness.stop_workers()
    await asyncio.sleep(AWAY)  # the absence itself
    harness.catch_up_per_second = 0.4
    await harness.start_workers()
    await asyncio.gather(*(each.play(harness, harness.named[name]) for name, each in MISSED.items()))


async def play_without_mirror(harness: Harness) -> None:
    """Let all jobs fire with nobody to record it, and then record it."""
    harness.mirror.trouble = "down"
    await eventually(
        lambda: all(len(harness.code.of(harness.named[name])) >= 12 for name in WITHOUT_MIRROR), limit=ENOUGH
    )
    harness.mirror.trouble = ""
    await asyncio.gather(*(each.play(harness, harness.named[name]) for name, each in WITHOUT_MIRROR.items()))

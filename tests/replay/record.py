"""Records the histories and states of this version: ``python -m tests.replay.record [SCENARIO...]``.

Before the first tagged version the files are made anew whenever a workflow changes; from then on files are added only,
when ``LOGIC_VERSION`` has been raised, and never edited.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory

from tests.replay.recordings import history_path, state_path, write_history, write_state
from tests.replay.scenario import (
    AT_A_TIME,
    MISSED,
    TOGETHER,
    WITHOUT_MIRROR,
    Scenario,
    play_missed,
    play_without_mirror,
)
from tests.temporal_servers import server_options
from tests.workflow.harness import Harness, chain_of, job, kinds_of, side_by_side, skipping_time
from workers.devserver import DevServer
from workflows.contracts import JOB_WORKFLOW, LOGIC_VERSION, RECORDS_WORKFLOW, RUN_WORKFLOW, job_workflow_id

CLASSES = {JOB_WORKFLOW: "JobWorkflow", RUN_WORKFLOW: "RunWorkflow", RECORDS_WORKFLOW: "RecordsWorkflow"}
ARGUMENTS = {JOB_WORKFLOW: "JobInput", RUN_WORKFLOW: "RunInput", RECORDS_WORKFLOW: "MirrorBatch"}
COMMANDS = {"register": "RegisterCommand", "delete": "DeleteCommand"}

KEPT = 3
"""Runs of one workflow that are kept: the first, and the last ones, which have what a scenario is about."""

NEW_YORK = ZoneInfo("America/New_York")

Played = Callable[[Harness], Awaitable[None]]


async def main(names: list[str]) -> None:
    """Record the scenarios named, or all."""
    with tempfile.TemporaryDirectory() as folder:
        server = DevServer(server_options(Path(folder)))
        server.wait_until_ready()
        try:
            await record_together(server, names)
            await record_group(server, MISSED, play_missed, names)
            await record_group(server, WITHOUT_MIRROR, play_without_mirror, names)
        finally:
            server.stop()
    if not names or "dst-night" in names:
        await record_dst_night()


async def record_together(server: DevServer, names: list[str]) -> None:
    """Play the scenarios that need nothing special, some at a time."""
    wanted = [name for name in TOGETHER if not names or name in names]
    for first in range(0, len(wanted), AT_A_TIME):
        group = {name: TOGETHER[name] for name in wanted[first : first + AT_A_TIME]}

        async def play(harness: Harness, group: Mapping[str, Scenario] = group) -> None:
            await asyncio.gather(*(each.play(harness, harness.named[name]) for name, each in group.items()))

        await record_group(server, group, play, names)


async def record_group(server: DevServer, scenarios: Mapping[str, Scenario], play: Played, names: list[str]) -> None:
    """Play scenarios that go together; write what is kept of those named."""
    if names and not set(names) & scenarios.keys():
        return
    definitions = {name: each.definition for name, each in scenarios.items()}
    tunings = {name: each.tuning for name, each in scenarios.items()}
    async with side_by_side(server, definitions, **tunings) as harness:
        await play(harness)
        for name in scenarios:
            if not names or name in names:
                await write_scenario(harness, name, job_workflow_id(tenant="default", job_id=harness.named[name]))


async def record_dst_night() -> None:
    """Sleep through a winter to the night in which 02:30 does not exist in New York."""
    async with skipping_time() as (environment, harness):
        now = await environment.get_current_time()
        night = next_gap(now)
        schedule = {
            "rule": {"kind": "cron", "expression": "30 2 * * *"},
            "timezone": "America/New_York",
            "jitter_window_seconds": 0,
            "start_at": night - timedelta(days=3),
            "end_at": night + timedelta(hours=1),
        }
        job_id = await harness.register(job(schedule=schedule))
        await harness.started[job_id].result()
        await write_scenario(harness, "dst-night", job_workflow_id(tenant="default", job_id=job_id))


def next_gap(now: datetime) -> datetime:
    """The next instant at which the clocks of New York jump over 02:30."""
    moment = now.replace(minute=0, second=0, microsecond=0)
    while True:
        moment += timedelta(hours=1)
        before, after = ((moment - timedelta(hours=1)).astimezone(NEW_YORK), moment.astimezone(NEW_YORK))
        if after.hour - before.hour == 2:
            return moment


async def write_scenario(harness: Harness, name: str, workflow_id: str) -> None:
    """Write the kept runs of a job's workflow, of its children, and their arguments."""
    # One that still sleeps has decided nothing, and there is nothing to replay.
    chain = [
        each for each in await chain_of(harness.client, workflow_id) if "workflow_task_completed" in kinds_of(each)
    ]
    kept = [*chain[:1], *chain[1:][-(KEPT - 1) :]]
    children = [child for history in chain for child in children_of(history)]
    for child in children[:2]:
        kept += (await chain_of(harness.client, child))[:1]
    for number, history in enumerate(kept, start=1):
        kind = history.events[0].workflow_execution_started_event_attributes.workflow_type.name
        title = f"{LOGIC_VERSION}-{name}" if len(kept) == 1 else f"{LOGIC_VERSION}-{name}-{number}"
        write_history(history_path(CLASSES[kind], title), history)
        for value, data in arguments_of(history.events, ARGUMENTS[kind]):
            write_state(state_path(value, title), data)
    print(f"{name}: {len(kept)} histories, {sum(len(history.events) for history in kept)} events")


def children_of(history: WorkflowHistory) -> Iterator[str]:
    """Name the workflows that a run started."""
    for event in history.events:
        if event.HasField("child_workflow_execution_started_event_attributes"):
            yield event.child_workflow_execution_started_event_attributes.workflow_execution.workflow_id


def arguments_of(events: Sequence[HistoryEvent], value: str) -> Iterator[tuple[str, bytes]]:
    """List what a run was given: its input, and the commands that came."""
    [given] = events[0].workflow_execution_started_event_attributes.input.payloads
    yield value, given.data
    for event in events:
        accepted = event.workflow_execution_update_accepted_event_attributes.accepted_request.input
        payloads: list[Payload] = list(accepted.args.payloads)
        if accepted.name in COMMANDS and payloads:
            yield COMMANDS[accepted.name], payloads[0].data


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
    sys.stdout.flush()
    os._exit(0)  # the SDK sometimes aborts while the interpreter ends

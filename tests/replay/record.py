"""Records the histories and states of this version: ``python -m tests.replay.record [SCENARIO...]``.

What no release has frozen is made anew. From a release on its files are kept, so recordings of a change that alters commands are
added, under a raised ``LOGIC_VERSION``; a scenario that is new is added as it is.
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
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Worker

from horarium.catalogue import ANNOUNCE, CATALOGUE_WORKFLOW
from tests.release.frozen import REPOSITORY, frozen_files
from tests.replay.lone_scenario import play_all
from tests.replay.recordings import history_path, list_recordings, state_path, write_history, write_state
from tests.replay.scenario import (
    AT_A_TIME,
    DOWNSTREAM,
    MISSED,
    TEAM,
    TOGETHER,
    WITHOUT_MIRROR,
    Scenario,
    play_downstream,
    play_missed,
    play_without_mirror,
)
from tests.temporal_servers import connect_to, server_options
from tests.workflow.harness import Harness, chain_of, job, kinds_of, side_by_side, skipping_time
from tests.workflow.team_workflow import Settlement, hang, refuse
from workers.devserver import DevServer
from workflows.contracts import (
    ALERT_WORKFLOW,
    BACKFILL_WORKFLOW,
    BULK_REDRIVE_WORKFLOW,
    DOWNSTREAM_WORKFLOW,
    HOLD_WORKFLOW,
    JOB_WORKFLOW,
    LOGIC_VERSION,
    RECORDS_WORKFLOW,
    RUN_WORKFLOW,
    SIGNAL_RUN_ENDED,
    UPDATE_ASK_PROBE,
    UPDATE_BACKFILL,
    UPDATE_CANCEL_BACKFILL,
    UPDATE_CANCEL_RUN,
    UPDATE_CHANGE,
    UPDATE_DELETE,
    UPDATE_END_PROBE,
    UPDATE_HOLD,
    UPDATE_PAUSE,
    UPDATE_PAUSE_BACKFILL,
    UPDATE_REDRIVE,
    UPDATE_REGISTER,
    UPDATE_RELEASE,
    UPDATE_RESUME,
    UPDATE_RESUME_BACKFILL,
    UPDATE_SHOW,
    UPDATE_TRIGGER,
    UPKEEP_WORKFLOW,
    job_workflow_id,
)

CLASSES = {
    JOB_WORKFLOW: ("JobWorkflow", "JobInput"),
    RUN_WORKFLOW: ("RunWorkflow", "RunInput"),
    RECORDS_WORKFLOW: ("RecordsWorkflow", "MirrorBatch"),
    ALERT_WORKFLOW: ("AlertWorkflow", "Alert"),
    BACKFILL_WORKFLOW: ("BackfillWorkflow", "BackfillState"),
    BULK_REDRIVE_WORKFLOW: ("BulkRedriveWorkflow", "BulkRequest"),
    CATALOGUE_WORKFLOW: ("CatalogueWorkflow", "CatalogueInput"),
    DOWNSTREAM_WORKFLOW: ("DownstreamWorkflow", "DownstreamInput"),
    UPKEEP_WORKFLOW: ("UpkeepWorkflow", "UpkeepInput"),
    HOLD_WORKFLOW: ("HoldWorkflow", "HoldOrder"),
}
"""By the name of a workflow: its class, and that of its argument."""

COMMANDS = {
    UPDATE_REGISTER: "RegisterCommand",
    UPDATE_DELETE: "DeleteCommand",
    UPDATE_REDRIVE: "RedriveCommand",
    UPDATE_CHANGE: "ChangeCommand",
    UPDATE_PAUSE: "PauseCommand",
    UPDATE_RESUME: "ResumeCommand",
    UPDATE_HOLD: "HoldCommand",
    UPDATE_RELEASE: "ReleaseCommand",
    UPDATE_TRIGGER: "TriggerCommand",
    UPDATE_CANCEL_RUN: "CancelCommand",
    UPDATE_SHOW: "ShowCommand",
    UPDATE_BACKFILL: "BackfillCommand",
    UPDATE_PAUSE_BACKFILL: "SteerBackfill",
    UPDATE_RESUME_BACKFILL: "SteerBackfill",
    UPDATE_CANCEL_BACKFILL: "SteerBackfill",
    UPDATE_ASK_PROBE: "ProbeRequest",
    UPDATE_END_PROBE: "ProbeReport",
}
SIGNALS = {SIGNAL_RUN_ENDED: "Run", ANNOUNCE: "Announcement"}

KEPT = 3
"""Runs of one workflow that are kept: the first, and the last ones, which have what a scenario is about."""

NEW_YORK = ZoneInfo("America/New_York")

Played = Callable[[Harness], Awaitable[None]]


async def main(names: list[str]) -> None:
    """Record the scenarios named, or all."""
    with tempfile.TemporaryDirectory() as folder:
        server = DevServer(server_options(Path(folder)))
        server.wait_until_ready()
        client = await connect_to(server)
        team = Worker(client, task_queue=TEAM, workflows=[Settlement], activities=[refuse, hang])
        try:
            async with team:
                await record_together(server, names)
            await record_group(server, DOWNSTREAM, play_downstream, names)
            await record_group(server, MISSED, play_missed, names)
            await record_group(server, WITHOUT_MIRROR, play_without_mirror, names)
            for name, workflow_id in (await play_all(client, names)).items():
                await write_scenario(client, name, workflow_id)
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
                workflow_id = job_workflow_id(tenant="default", job_id=harness.named[name])
                await write_scenario(harness.client, name, workflow_id)


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
        await write_scenario(harness.client, "dst-night", job_workflow_id(tenant="default", job_id=job_id))


def next_gap(now: datetime) -> datetime:
    """The next instant at which the clocks of New York jump over 02:30."""
    moment = now.replace(minute=0, second=0, microsecond=0)
    while True:
        moment += timedelta(hours=1)
        before, after = ((moment - timedelta(hours=1)).astimezone(NEW_YORK), moment.astimezone(NEW_YORK))
        if after.hour - before.hour == 2:
            return moment


async def write_scenario(client: Client, name: str, workflow_id: str) -> None:
    """Write the kept runs of a workflow, of its children, and their arguments."""
    # One that still sleeps has decided nothing, and there is nothing to replay.
    chain = [each for each in await chain_of(client, workflow_id) if "workflow_task_completed" in kinds_of(each)]
    kept = [*chain[:1], *chain[1:][-(KEPT - 1) :]]
    children = [child for history in chain for child in children_of(history)]
    for child in children[:2]:
        kept += (await chain_of(client, child))[:2]
    recorded = list_recordings(LOGIC_VERSION, name)
    if {path.relative_to(REPOSITORY).as_posix() for path in recorded} & frozen_files(REPOSITORY).keys():
        print(f"{name}: kept as a release has it; raise LOGIC_VERSION if it does not replay any more")
        return
    for path in recorded:
        path.unlink()
    for number, history in enumerate(kept, start=1):
        workflow, argument = CLASSES[type_of(history)]
        title = f"{LOGIC_VERSION}-{name}" if len(kept) == 1 else f"{LOGIC_VERSION}-{name}-{number}"
        write_history(history_path(workflow, title), history)
        for value, data in arguments_of(history.events, argument):
            write_state(state_path(value, title), data)
    print(f"{name}: {len(kept)} histories, {sum(len(history.events) for history in kept)} events")


def type_of(history: WorkflowHistory) -> str:
    """Name the type of a workflow."""
    return history.events[0].workflow_execution_started_event_attributes.workflow_type.name


def children_of(history: WorkflowHistory) -> Iterator[str]:
    """Name the workflows of ours that a run started."""
    for event in history.events:
        started = event.child_workflow_execution_started_event_attributes
        if started.workflow_type.name in CLASSES:
            yield started.workflow_execution.workflow_id


def arguments_of(events: Sequence[HistoryEvent], value: str) -> Iterator[tuple[str, bytes]]:
    """List what a run was given: its input, if it has any, and the commands and signals that came."""
    for given in events[0].workflow_execution_started_event_attributes.input.payloads:
        yield value, given.data
    for event in events:
        accepted = event.workflow_execution_update_accepted_event_attributes.accepted_request.input
        payloads: list[Payload] = list(accepted.args.payloads)
        if accepted.name in COMMANDS and payloads:
            yield COMMANDS[accepted.name], payloads[0].data
        signalled = event.workflow_execution_signaled_event_attributes
        if signalled.signal_name in SIGNALS:
            yield SIGNALS[signalled.signal_name], signalled.input.payloads[0].data


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
    sys.stdout.flush()
    os._exit(0)  # the SDK sometimes aborts while the interpreter ends

"""An upgrade never breaks a sleeping job: everything recorded replays against the workflows as they are now."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

import workflows.fire_times
import workflows.planner
from tests.replay.recordings import HISTORIES, history_path, list_histories, read_history, scenario_of
from tests.workflow.harness import SLEEPY, job, kinds_of, running
from workers.worker import WORKFLOWS
from workers.workflow_runner import strict_runner
from workflows.contracts import LOGIC_VERSION
from workflows.job import Tuning

pytestmark = pytest.mark.timeout(600, method="thread")
"""For the first test, which waits for all recordings, on a machine with much else to do. The process is ended then: a worker that
replays hears of no cancellation, and the event loop would wait for it for ever."""


def name_of(path: Path) -> str:
    """A history's name in a report."""
    return str(path.relative_to(HISTORIES))


def make_replayer() -> Replayer:
    """Replay in the sandbox."""
    return Replayer(workflows=WORKFLOWS, data_converter=pydantic_data_converter, workflow_runner=strict_runner())


async def replay(history: WorkflowHistory) -> None:
    """Replay one history. Raises what does not fit."""
    await make_replayer().replay_workflow(history)


async def replay_all(paths: Collection[Path]) -> dict[Path, Exception | None]:
    """Replay recordings, one after another by the same worker, and say what does not fit."""

    async def read_all() -> AsyncIterator[WorkflowHistory]:
        for path in paths:
            yield read_history(path)

    async with make_replayer().workflow_replay_iterator(read_all()) as results:
        failures = [each.replay_failure async for each in results]
    return dict(zip(paths, failures, strict=True))


@pytest.fixture(scope="module")
def replayed(request: pytest.FixtureRequest) -> dict[Path, Exception | None]:
    """What became of all recordings that are to be tested: a worker for each of them would take twice as long."""
    items = (each for each in request.session.items if isinstance(each, pytest.Function))
    given = {each.callspec.params.get("recording") for each in items if hasattr(each, "callspec")}
    return asyncio.run(replay_all([path for path in list_histories() if path in given]))


@pytest.mark.parametrize("recording", list_histories(), ids=name_of)
def test_a_recorded_history_replays(recording: Path, replayed: dict[Path, Exception | None]) -> None:
    """Whichever released version made it: the same commands in the same order."""
    if (failure := replayed[recording]) is not None:
        raise failure


def test_this_version_has_recordings_of_all_workflows() -> None:
    """``make record-history`` makes them; each scenario has at least one."""
    names = {path.parent.name: path.name for path in list_histories() if path.name.startswith(f"{LOGIC_VERSION}-")}
    assert names.keys() == {each.__name__ for each in WORKFLOWS}


async def test_a_history_that_does_not_fit_is_noticed() -> None:
    """The test of the test: a recording whose attempt was of another activity must not replay."""
    history = read_history(_recording("plain-fires"))
    event = next(e for e in history.events if e.HasField("activity_task_scheduled_event_attributes"))
    event.activity_task_scheduled_event_attributes.activity_type.name = "another"
    with pytest.raises(Exception, match=r"another|[Nn]ondeterminism"):
        await replay(history)


SAMPLE = ["plain-fires", "long-sleep", "woken-ahead", "dst-night", "catch-up-run-all", "overlap-skip"]


@pytest.mark.parametrize("name", SAMPLE)
async def test_a_replay_does_not_notice_other_settings(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds reach a job with its plan, which is in the history; what the workers' settings are now is of no account."""
    changes: dict[str, Any] = {
        "history_limit": 5,
        "batch_size": 1,
        "outbox_limit": 1,
        "long_sleep_threshold": Tuning().long_sleep_threshold / 1000,
        "wake_ahead": timedelta(seconds=1),
    }
    for field, default in changes.items():
        monkeypatch.setattr(Tuning.model_fields[field], "default", default)
    Tuning.model_rebuild(force=True)
    try:
        assert Tuning().batch_size == 1
        for path in _recordings(name):
            await replay(read_history(path))
    finally:
        monkeypatch.undo()
        Tuning.model_rebuild(force=True)
    assert Tuning().batch_size == 14


@pytest.mark.parametrize("name", SAMPLE)
async def test_a_replay_does_not_notice_other_fire_time_rules(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SB-127: fire times are the answer of a local activity, in the history; the calculator is not asked again."""

    def changed(*_: object, **__: object) -> object:
        raise AssertionError("the calculator was asked in a replay")

    for module in (workflows.fire_times, workflows.planner):
        for function in ("next_fires", "survey_fires", "shortest_gap", "jitter_offset"):
            monkeypatch.setattr(module, function, changed)
    for path in _recordings(name):
        await replay(read_history(path))


@pytest.mark.parametrize(("name", "tuning"), [("plain-fires", None), ("long-sleep", SLEEPY)])
async def test_a_fresh_run_makes_the_events_of_the_recorded_one(
    temporal_client: Client, name: str, tuning: Tuning | None
) -> None:
    """A change of what a fire costs, or of the order of things, is seen here and meant."""
    recorded = _usual_fire([read_history(path) for path in _recordings(name)])
    async with running(temporal_client) as harness:
        seconds = 3 if tuning else 2
        job_id = await harness.register(job(every_seconds=seconds), tuning=tuning)
        await harness.until_runs(job_id, 5)
        fresh = _usual_fire(await harness.histories(job_id))
    assert fresh == recorded


def _usual_fire(histories: list[WorkflowHistory]) -> tuple[str, ...]:
    """The events from one fire to the next, as they most often were; on a busy machine tasks are lost now and then."""
    kinds = [kind for history in histories for kind in kinds_of(history)]
    fires = [index for index, kind in enumerate(kinds) if kind == "activity_task_scheduled"]
    cycles = [tuple(kinds[first:second]) for first, second in pairwise(fires)]
    # The first fire differs: it shows its outcome in the list. Of equally many the later ones count.
    [(usual, _)] = Counter(each for each in reversed(cycles) if "workflow_task_timed_out" not in each).most_common(1)
    return usual


def _recordings(name: str) -> list[Path]:
    """The histories of a job's workflow in a scenario, in order."""
    folder = history_path("JobWorkflow", "").parent
    found = [path for path in sorted(folder.glob(f"{LOGIC_VERSION}-{name}*.json.gz")) if scenario_of(path) == name]
    assert found, f"{name} was not recorded"
    return found


def _recording(name: str) -> Path:
    return _recordings(name)[0]

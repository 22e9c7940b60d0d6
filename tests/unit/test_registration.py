"""What a new job begins with, and how it is shown before its workflow has said anything."""

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import JsonValue

from api.job_body import JobRequest, read_job
from api.registration import deleted_record, first_state, new_job_id
from workflows.contracts import SA_NEXT_FIRE
from workflows.error import InvalidSchedule
from workflows.job import JobDefinition, JobRecord, JobState, Lifecycle, Tuning
from workflows.lifecycle import PASSED_BEFORE, begin, register_again
from workflows.outbox import job_record
from workflows.planner import make_plan
from workflows.run import Outcome
from workflows.visibility import job_search_attributes
from workflows.wake import needs_plan, plan_request

NOW = datetime(2026, 6, 1, 12, 0, 0, 250_000, tzinfo=UTC)
NOON = NOW.replace(microsecond=0)
NOW_IN_MICROSECONDS = 1_780_315_200_250_000


def request_of(**fields: str | bool) -> JobRequest:
    body: dict[str, JsonValue] = {
        "name": "report",
        "schedule": "0 9 * * 1",
        "timezone": "America/New_York",
        "time_critical": True,
        **fields,
    }
    return read_job(body, default_id="j_1")


def state_of(request: JobRequest, *, before: JobRecord | None = None) -> JobState:
    return first_state(request, tenant="default", key="k", before=before, now=NOW)


def old_record(**changes: object) -> JobRecord:
    record = JobRecord(job_id="j_1", version=7, revision=3, fence=9, registered_at=NOW, updated_at=NOW, high_water=NOW)
    return record.model_copy(update={"lifecycle": Lifecycle.DELETED, **changes})


def test_a_new_job_shows_its_first_fire() -> None:
    """Who has just registered a job is told when it fires: 9 o'clock in New York is 13:00 UTC in June."""
    record = job_record(state_of(request_of()))
    assert record.next_run_at == record.next_target_at == datetime(2026, 6, 1, 13, tzinfo=UTC)
    assert record.version == NOW_IN_MICROSECONDS
    assert job_search_attributes(state_of(request_of()))[SA_NEXT_FIRE] == record.next_run_at


def test_the_first_fire_is_shown_and_still_planned() -> None:
    """The planner is asked all the same: the front door does not decide fires."""
    assert needs_plan(state_of(request_of()), now=NOW)


def test_a_job_that_is_not_enabled_is_paused_and_has_no_next_fire() -> None:
    """``enabled: false`` creates it paused."""
    record = job_record(state_of(request_of(enabled=False)))
    assert record.lifecycle is Lifecycle.PAUSED
    assert record.next_run_at is None


def test_the_request_itself_is_remembered_under_its_key() -> None:
    """A request that is repeated after a crash finds its own answer; the definition is not kept twice."""
    (answer,) = state_of(request_of()).answers
    assert answer.key == "k"
    assert answer.record is not None
    assert answer.record.definition == JobDefinition()
    assert answer.refusal == ""


def test_a_registration_of_a_deleted_id_goes_on_from_where_the_old_one_ended() -> None:
    """Fence, version and revision never fall, so that late writes and old ETags of the old one do not fit."""
    state = state_of(request_of(), before=old_record(version=NOW_IN_MICROSECONDS + 5))
    assert state.version == NOW_IN_MICROSECONDS + 6
    assert state.revision == 4
    assert state.fence == 9
    assert state_of(request_of(), before=old_record()).version == NOW_IN_MICROSECONDS


@pytest.mark.parametrize(
    ("schedule", "end_at", "pointer"),
    [
        ("2026-06-01T12:00:00Z", None, "/schedule"),
        ("1970-01-01T00:00:00Z", None, "/schedule"),
        ("0 0 30 2 *", None, "/schedule"),
        ("0 9 * * 1", "2026-06-01T00:00:00Z", "/end_at"),
    ],
)
def test_a_job_that_would_never_fire_is_refused(schedule: str, end_at: str | None, pointer: str) -> None:
    """A time that has passed, a date that does not exist, an end before the first fire."""
    fields = {"schedule": schedule} | ({"end_at": end_at} if end_at else {})
    with pytest.raises(InvalidSchedule, match="never fires") as refusal:
        state_of(request_of(**fields))
    assert refusal.value.pointer == pointer


def test_ids_are_drawn_and_with_a_key_always_the_same() -> None:
    """A repeated request must find its job; tenants and keys do not meet."""
    assert new_job_id(tenant="a", key=None) != new_job_id(tenant="a", key=None)
    assert new_job_id(tenant="a", key="k") == new_job_id(tenant="a", key="k")
    ids = {new_job_id(tenant=tenant, key=key) for tenant in ("a", "b") for key in ("k", "l", "")}
    assert len(ids) == 6
    assert all(len(each) == 26 and each.startswith("j_") for each in ids)


def test_a_job_without_a_workflow_is_shown_as_deleted() -> None:
    """Nobody is left to say so, and later records of the lost workflow, if any, must not undo it."""
    record = deleted_record(old_record(lifecycle=Lifecycle.ACTIVE, next_run_at=NOW, active_runs=1), now=NOW)
    assert record.lifecycle is Lifecycle.DELETED
    assert (record.next_run_at, record.active_runs, record.version) == (None, 0, NOW_IN_MICROSECONDS)
    assert deleted_record(old_record(version=2**60), now=NOW + timedelta(1)).version == 2**60 + 1


def one_off(due: datetime) -> JobRequest:
    return request_of(schedule=due.isoformat())


@pytest.mark.parametrize("ahead", [timedelta(minutes=10), timedelta(0), timedelta(minutes=-10)], ids=str)
def test_a_one_off_fires_at_its_time_though_the_clock_of_the_front_door_is_off(ahead: timedelta) -> None:
    """SB-116: ten minutes, either way: the engine's clock decides when it is due."""
    due = NOON + timedelta(minutes=15)
    told = first_state(one_off(due), tenant="default", key="k", before=None, now=NOW + ahead)
    state = begin(told, now=NOW)
    assert needs_plan(state, now=NOW)
    plan = make_plan(plan_request(state, now=NOW), tuning=Tuning())
    assert [(fire.nominal, fire.target) for fire in plan.upcoming] == [(due, due)]
    assert plan.missed is None


def missed_of(state: JobState) -> list[tuple[datetime, str | None]]:
    """The fires that a job's unsent entries call missed, and why."""
    entries = [record.entry for record in state.outbox.ledger]
    assert {(entry.outcome, entry.count, entry.last == entry.first) for entry in entries} <= {(Outcome.MISSED, 1, True)}
    return [(entry.first, entry.reason) for entry in entries]


@pytest.mark.parametrize(("after", "is_missed"), [(-4, False), (0, False), (4, False), (6, True), (600, True)])
def test_a_one_off_that_the_engine_finds_in_the_past_is_told_as_missed(after: int, is_missed: bool) -> None:
    """SB-116: the front door's clock is behind, and took it for one to come. It fires where that is a matter of seconds; else it
    never does, and the ledger says so, rather than a job that is completed without a word."""
    due = NOON + timedelta(minutes=15)
    told = first_state(one_off(due), tenant="default", key="k", before=None, now=NOW)
    began = due + timedelta(seconds=after)
    state = begin(told, now=began)
    plan = make_plan(plan_request(state, now=began), tuning=Tuning())
    assert [fire.nominal for fire in plan.upcoming] == ([] if is_missed else [due])
    assert plan.exhausted
    assert missed_of(state) == ([(due, PASSED_BEFORE)] if is_missed else [])
    assert state.counts.missed == int(is_missed)


def test_fires_of_a_recurring_job_before_its_registration_are_none() -> None:
    """Whatever the front door has shown as the first: by the engine's clock, the job was not there yet."""
    state = begin(state_of(request_of(schedule="0 13 * * *", timezone="UTC")), now=NOW + timedelta(days=2))
    assert missed_of(state) == []


def test_what_a_registration_tells_of_the_past_is_told_where_a_deleted_job_still_drains() -> None:
    """Both what a request passes over, and what the engine finds to have passed; and newer than all that is on its way."""
    drains = JobState(job_id="j_1", lifecycle=Lifecycle.DELETED, version=2**60, high_water=NOW - timedelta(hours=1))
    before, hour = NOON - timedelta(minutes=30), timedelta(hours=1)
    skipped = state_of(request_of(schedule=before.isoformat(), if_past="skip"))
    state = register_again(drains, skipped, now=NOW)
    [(first, reason)] = missed_of(state)
    assert first == before
    assert reason is not None
    assert "if_past: skip" in reason
    assert [record.version for record in state.outbox.ledger] == [state.version]
    assert state.version > 2**60

    passed = state_of(one_off(NOON + timedelta(minutes=30)))
    assert missed_of(register_again(drains, passed, now=NOW + hour)) == [(NOON + timedelta(minutes=30), PASSED_BEFORE)]
    decided = drains.model_copy(update={"high_water": NOW + timedelta(minutes=45)})
    assert missed_of(register_again(decided, passed, now=NOW + hour)) == []


def test_past_is_what_is_before_the_request_by_the_clock_of_the_front_door() -> None:
    """SB-116: without tolerance: one that is ten minutes ahead refuses what is due in five, and nothing is registered."""
    ahead = NOW + timedelta(minutes=10)
    with pytest.raises(InvalidSchedule, match="its time has passed"):
        first_state(one_off(NOON + timedelta(minutes=5)), tenant="default", key="k", before=None, now=ahead)
    first_state(one_off(NOON + timedelta(minutes=10, seconds=1)), tenant="default", key="k", before=None, now=ahead)

"""What the Temporal Web UI shows of a job."""

from datetime import UTC, datetime, timedelta

import pytest

from workflows.contracts import SA_JOB, SA_LAST_OUTCOME, SA_MISSED, SA_NEXT_FIRE, SA_STATE, SA_TARGET, SEARCH_ATTRIBUTES
from workflows.job import FirePlan, JobCounts, JobDefinition, JobState, Lifecycle
from workflows.run import Failure, Run, RunKind, RunStatus
from workflows.schedule import CronRule, Fire, IntervalRule, OneOffRule, RRuleRule, Rule, Schedule
from workflows.target import ActivityTarget
from workflows.visibility import (
    is_first_success_amid_delay,
    job_memo,
    job_search_attributes,
    job_summary,
    next_fire,
    rule_text,
    standing_memo,
)

NOON = datetime(2026, 6, 8, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def fire(nominal: datetime) -> Fire:
    return Fire(nominal=nominal, target=nominal + timedelta(seconds=7))


def state_of(**changes: object) -> JobState:
    definition = JobDefinition(
        name="report",
        owner="team-a",
        target=ActivityTarget(activity="send_report"),
        schedule=Schedule(rule=CronRule(expression="0 * * * *"), timezone="Europe/Berlin"),
    )
    plan = FirePlan(planned_at=NOON, upcoming=(fire(NOON), fire(NOON + HOUR)))
    state = JobState(job_id="j_1", definition=definition, plan=plan, high_water=NOON)
    return state.model_copy(update=changes)


def ended(status: RunStatus, *, failure: Failure | None = None) -> Run:
    return Run(
        run_id="j_1:x",
        scheduled_at=NOON,
        target_at=NOON,
        created_at=NOON,
        finished_at=NOON,
        status=status,
        failure=failure,
    )


def test_the_next_fire_is_the_first_planned_one_after_the_high_water_mark() -> None:
    """A decided fire is not a next one, and a job that does not fire has none."""
    assert next_fire(state_of()) == fire(NOON + HOUR)
    assert next_fire(state_of(plan=None)) is None
    assert next_fire(state_of(lifecycle=Lifecycle.PAUSED)) is None


def test_search_attributes_tell_job_target_state_and_next_fire() -> None:
    """An operator filters sleeping jobs by next fire."""
    attributes = job_search_attributes(state_of(counts=JobCounts(missed=3)))
    assert attributes[SA_JOB] == "j_1"
    assert attributes[SA_TARGET] == "send_report"
    assert attributes[SA_STATE] == "active"
    assert attributes[SA_NEXT_FIRE] == NOON + HOUR
    assert attributes[SA_MISSED] == 3
    assert attributes.get(SA_LAST_OUTCOME) is None


def test_only_registered_search_attributes_are_used() -> None:
    """An attribute that the namespace does not know blocks the job."""
    attributes = job_search_attributes(state_of(last=ended(RunStatus.SUCCESS)))
    assert {pair.key.name for pair in attributes} == {key.name for key in SEARCH_ATTRIBUTES}


@pytest.mark.parametrize(
    ("last", "last_missed_at", "expected"),
    [
        (ended(RunStatus.SUCCESS), None, "success"),
        (ended(RunStatus.DEAD), NOON - HOUR, "dead"),
        (ended(RunStatus.SUCCESS), NOON + HOUR, "missed"),
        (None, NOON, "missed"),
    ],
)
def test_a_miss_after_the_last_run_is_the_last_outcome(
    last: Run | None, last_missed_at: datetime | None, expected: str
) -> None:
    """An old success must not hide a newer miss."""
    attributes = job_search_attributes(state_of(last=last, last_missed_at=last_missed_at))
    assert attributes[SA_LAST_OUTCOME] == expected


@pytest.mark.parametrize(
    ("changes", "shown", "may_wait"),
    [
        ({}, None, True),
        ({"dispatched_at": NOON + timedelta(seconds=1)}, None, False),
        ({"status": RunStatus.DEAD}, None, False),
        ({"kind": RunKind.CATCH_UP}, None, False),
        ({"attempt": 2}, None, False),
        ({}, "dead", False),
    ],
)
def test_a_first_success_may_wait_to_be_seen_while_fires_come_late(
    changes: dict[str, object], shown: str | None, may_wait: bool
) -> None:
    """Nothing else may: a list that shows another outcome, or hides a bad one, misleads."""
    late = ended(RunStatus.SUCCESS).model_copy(
        update={"attempt": 1, "dispatched_at": NOON + timedelta(seconds=1.1)} | changes
    )
    assert is_first_success_amid_delay(state_of(last=late), shown=shown) is may_wait


def test_a_long_target_is_cut_between_characters() -> None:
    """A keyword has at most 255 bytes on every visibility store."""
    target = ActivityTarget(activity="é" * 200)
    definition = state_of().definition.model_copy(update={"target": target})
    assert job_search_attributes(state_of(definition=definition))[SA_TARGET] == "é" * 127


def test_the_memo_says_name_schedule_zone_owner_and_last_error() -> None:
    """What a person needs to recognise a sleeping job, in bounded size."""
    failure = Failure(type="ValueError", message="x" * 1000)
    memo = job_memo(state_of(last=ended(RunStatus.DEAD, failure=failure)))
    assert memo["name"] == "report"
    assert memo["schedule"] == "0 * * * *"
    assert memo["timezone"] == "Europe/Berlin"
    assert memo["owner"] == "team-a"
    assert memo["last_error"].startswith("ValueError: xxx")
    assert len(memo["last_error"]) == 500
    assert job_memo(state_of(last=ended(RunStatus.SUCCESS)))["last_error"] == ""


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (CronRule(expression="@daily"), "@daily"),
        (IntervalRule(every=timedelta(minutes=15)), "@every 900s"),
        (OneOffRule(at=NOON), "at 2026-06-08 12:00:00+00:00"),
        (OneOffRule(local=NOON.replace(tzinfo=None)), "at 2026-06-08 12:00:00"),
        (RRuleRule(rrule="FREQ=DAILY"), "RRULE:FREQ=DAILY"),
    ],
)
def test_every_kind_of_rule_has_a_short_text(rule: Rule, expected: str) -> None:
    """The Web UI shows schedules of any kind."""
    assert rule_text(rule) == expected


def test_the_summary_names_job_and_schedule() -> None:
    """One line in the Web UI's list."""
    assert job_summary(state_of()) == "report (0 * * * *)"


def test_the_memo_says_what_the_mirror_is_compared_by() -> None:
    """Revision, state and when they changed last; nothing that changes with a fire."""
    state = state_of()
    memo = job_memo(state)
    assert (memo["revision"], memo["state"]) == (str(state.revision), state.lifecycle.value)
    assert datetime.fromisoformat(memo["updated_at"]) == state.updated_at
    fired = state.model_copy(update={"version": state.version + 9, "high_water": state.high_water + timedelta(hours=1)})
    assert standing_memo(fired) == standing_memo(state)
    assert standing_memo(state).items() <= memo.items()

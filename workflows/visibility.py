"""What an operator sees of a job in the Temporal Web UI: search attributes and memo.

Built from the job's state alone, by whoever starts or continues its workflow. Pure.
"""

from datetime import timedelta
from typing import assert_never

from temporalio.common import SearchAttributePair, TypedSearchAttributes

from workflows.contracts import (
    SA_JOB,
    SA_LAST_OUTCOME,
    SA_MISSED,
    SA_NEXT_FIRE,
    SA_STATE,
    SA_TARGET,
    SA_TENANT,
)
from workflows.hold import is_held, release_time
from workflows.job import JobState, Lifecycle
from workflows.policies import is_used_up
from workflows.run import RunKind, RunStatus
from workflows.schedule import CronRule, Fire, IntervalRule, OneOffRule, RRuleRule, Rule
from workflows.target import target_name

KEYWORD_LIMIT = 255
"""Bytes of a keyword attribute. The server's SQL visibility stores refuse longer ones, and with them the task."""

MEMO_LIMIT = 500
"""Characters of one memo value: a memo is carried by every row of the Web UI's list."""

LATE = timedelta(seconds=1)
"""From when on what is only nice to see is left out."""

REVISION_MEMO = "revision"
STATE_MEMO = "state"
UPDATED_AT_MEMO = "updated_at"


def next_fire(state: JobState) -> Fire | None:
    """Name the next fire of a job as far as its plan tells; ``None`` for a job that does not fire.

    That of a held job is the first after the hold, where its end is known.
    """
    if state.lifecycle is not Lifecycle.ACTIVE or is_used_up(state):
        return None
    if state.carried and not is_held(state):
        return state.carried[0].fire
    released_at = release_time(state.holds)
    if state.plan is None or (is_held(state) and released_at is None):
        return None
    after = state.high_water if released_at is None else max(state.high_water, released_at)
    return next((fire for fire in state.plan.upcoming if fire.nominal > after), None)


def last_outcome(state: JobState) -> str | None:
    """Say how the last run ended, or ``missed`` when a miss came after it; ``None`` before the first."""
    if state.last is None:
        return None if state.last_missed_at is None else "missed"
    ended_at = state.last.finished_at
    if state.last_missed_at is not None and (ended_at is None or state.last_missed_at > ended_at):
        return "missed"
    return state.last.status.value


def is_first_success_amid_delay(state: JobState, *, shown: str | None) -> bool:
    """Say whether the list lacks nothing but the outcome of a job's first run, a success, at a time when fires come late.

    Temporal then has more to do than it can, and each change of its list costs as much as a timer and its task. The list is
    silent about such a job until a run of it is on time, or it continues as new.
    """
    last = state.last
    if shown is not None or last is None or last_outcome(state) != RunStatus.SUCCESS.value:
        return False
    if last.kind is not RunKind.SCHEDULED or last.attempt != 1 or last.dispatched_at is None:
        return False
    return last.dispatched_at - last.target_at > LATE


def job_search_attributes(state: JobState) -> TypedSearchAttributes:
    """List what jobs are filtered by. Replaces the attributes of the run before: what is unknown is left out."""
    upcoming = next_fire(state)
    outcome = last_outcome(state)
    pairs: list[SearchAttributePair[str] | SearchAttributePair[int]] = [
        SearchAttributePair(SA_JOB, _clip_bytes(state.job_id)),
        SearchAttributePair(SA_TENANT, _clip_bytes(state.tenant)),
        SearchAttributePair(SA_TARGET, _clip_bytes(target_name(state.definition.target))),
        SearchAttributePair(SA_STATE, state.lifecycle.value),
        SearchAttributePair(SA_MISSED, state.counts.missed),
    ]
    timed = [SearchAttributePair(SA_NEXT_FIRE, upcoming.nominal)] if upcoming else []
    ended = [SearchAttributePair(SA_LAST_OUTCOME, outcome)] if outcome else []
    return TypedSearchAttributes([*pairs, *timed, *ended])


def standing_memo(state: JobState) -> dict[str, str]:
    """Say what the mirror is compared by. Changes with the definition and the lifecycle, and with nothing else."""
    return {
        REVISION_MEMO: str(state.revision),
        STATE_MEMO: state.lifecycle.value,
        UPDATED_AT_MEMO: state.updated_at.isoformat(),
    }


def job_memo(state: JobState) -> dict[str, str]:
    """Say what the job is. Replaces the memo of the run before."""
    definition = state.definition
    failure = state.last.failure if state.last is not None and state.last.status is not RunStatus.SUCCESS else None
    return {
        "name": _clip(definition.name),
        "schedule": _clip(rule_text(definition.schedule.rule)),
        "timezone": _clip(definition.schedule.timezone),
        "owner": _clip(definition.owner),
        "last_error": _clip(f"{failure.type}: {failure.message}") if failure else "",
        **standing_memo(state),
    }


def job_summary(state: JobState) -> str:
    """Name the job in one line, for the Web UI's list."""
    return f"{state.definition.name[:100]} ({rule_text(state.definition.schedule.rule)[:60]})"


def rule_text(rule: Rule) -> str:
    """Write a rule shortly, in its own notation."""
    match rule:
        case CronRule():
            return rule.expression
        case IntervalRule():
            return f"@every {int(rule.every.total_seconds())}s"
        case OneOffRule():
            return f"at {(rule.at or rule.local)!s}"
        case RRuleRule():
            return f"RRULE:{rule.rrule}"
        case _:
            assert_never(rule)


def _clip(text: str) -> str:
    return text if len(text) <= MEMO_LIMIT else text[: MEMO_LIMIT - 1] + "…"


def _clip_bytes(text: str) -> str:
    """Cut to ``KEYWORD_LIMIT`` bytes, between characters."""
    return text.encode()[:KEYWORD_LIMIT].decode(errors="ignore")

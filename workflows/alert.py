"""Alerts: which are raised when, and what they say.

Pure. Most are read off what a job has just recorded; two are about what has not happened, and wait in the job's state as
expectations. An alert is named by what it is about, so that the same one, raised twice, is one.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

from pydantic import JsonValue

from workflows.alert_rule import AlertKind, AlertRules, Expectation
from workflows.job import JobDefinition, JobState, LedgerEntry, Lifecycle, Tuning
from workflows.job_news import JobNews, RunNews, news_of_job
from workflows.logic import has_fifth_rules
from workflows.run import Outcome, Run, RunKind, RunStatus
from workflows.target import SecretReference
from workflows.value import Value

EXPECTED_LIMIT = 100
"""Expectations that a job holds. One that has as many unmet raises alerts enough."""

_UNSEEN = frozenset({Outcome.MISSED, Outcome.DROPPED})
_WITHOUT_RUN = _UNSEEN | {Outcome.SKIPPED, Outcome.FAILED_TO_START, Outcome.THROTTLED}
"""Outcomes of fires that were wanted and have no run that could still succeed."""


class Alert(Value):
    """One alert, on its way to whoever is to be told."""

    alert_id: str = ""
    """Made from what it is about: receivers know a repeated one by it."""

    kind: AlertKind
    tenant: str = ""
    job_id: str = ""
    job_name: str = ""
    owner: str = ""
    labels: dict[str, str] = {}
    raised_at: datetime
    summary: str = ""
    run: Run | None = None
    """Without its checkpoint and result."""

    missed: tuple[LedgerEntry, ...] = ()
    due_at: datetime | None = None
    """Until when something was expected."""

    url: str | SecretReference = ""
    signature: SecretReference | None = None


def rules_in_force(definition: JobDefinition, tuning: Tuning) -> AlertRules | None:
    """Say what a job raises alerts for; ``None`` for one that raises none, which costs nothing then."""
    if definition.alerts is not None:
        return definition.alerts
    return AlertRules() if tuning.alerts_for_all else None


def watch_job(
    before: JobState, after: JobState, *, rules: AlertRules | None, now: datetime
) -> tuple[JobState, tuple[Alert, ...]]:
    """Take in what has happened to a job: say what alerts that raises, and what is expected from now on.

    Nothing is where there are no rules any more; under the logic versions before the fifth, nothing that is overdue.
    """
    if rules is None:
        kept = () if has_fifth_rules(after) else after.expected
        return _with_expected(after, [each for each in kept if not _is_overdue(after, each, now=now)]), ()
    news = news_of_job(before, after)
    raised = [] if news is None else [*_alerts_of_news(after, news, rules=rules, now=now)]
    raised += _alerts_of_catch_up(before, after, rules=rules, now=now)
    expected = _expectations_left(before, after, news, rules=rules)
    due = [each for each in expected if _is_overdue(after, each, now=now)]
    raised += [_unmet_alert(after, each, rules=rules, now=now) for each in due]
    return _with_expected(after, [each for each in expected if each not in due]), tuple(raised)


def _with_expected(state: JobState, expected: list[Expectation]) -> JobState:
    left = tuple(expected)
    return state if left == state.expected else state.model_copy(update={"expected": left})


def watch_silent_run(
    state: JobState, run_id: str, *, rules: AlertRules, now: datetime
) -> tuple[JobState, tuple[Alert, ...]]:
    """Say what it means that a run has just been seen not to have begun."""
    due = [each for each in state.expected if _is_late(each, run_id) and each.due_at <= now]
    run = next((each for each in state.active if each.run_id == run_id), None)
    if not due or run is None or run.status is not RunStatus.PENDING:
        return state, ()
    left = tuple(each for each in state.expected if each not in due)
    alerts = tuple(_unmet_alert(state, each, rules=rules, now=now) for each in due)
    return state.model_copy(update={"expected": left}), alerts


def alerts_of_run(
    news: RunNews, *, tenant: str, job_id: str, definition: JobDefinition, rules: AlertRules, now: datetime
) -> tuple[Alert, ...]:
    """Say what alerts the workflow of a detached run raises."""
    state = JobState(tenant=tenant, job_id=job_id, definition=definition)
    return tuple(_alerts_of_run(state, news, rules=rules, now=now))


def late_due(run: Run, *, rules: AlertRules | None) -> datetime | None:
    """Say when a run that has not begun is late; ``None`` where nobody is to be told, or it has begun."""
    if rules is None or rules.late_after is None or AlertKind.LATE not in rules.on:
        return None
    return None if run.kind is not RunKind.SCHEDULED or run.started_at is not None else run.target_at + rules.late_after


def alert_of_late_run(
    run: Run, *, due_at: datetime, tenant: str, job_id: str, definition: JobDefinition, rules: AlertRules, now: datetime
) -> Alert:
    """Say that a detached run has not begun by ``due_at``. Should it begin later, that is told under the same name."""
    state = JobState(tenant=tenant, job_id=job_id, definition=definition, active=(run,))
    unmet = Expectation(kind=AlertKind.LATE, nominal=run.scheduled_at, due_at=due_at, run_id=run.run_id)
    return _unmet_alert(state, unmet, rules=rules, now=now)


def late_look(state: JobState, run_id: str) -> datetime | None:
    """Say when a run that has not answered must be looked at, in order to tell that it is late."""
    return next((each.due_at for each in state.expected if _is_late(each, run_id)), None)


def without_met(expected: tuple[Expectation, ...], run: Run) -> tuple[Expectation, ...]:
    """Take out what the end of a run has settled, detached ones included, whose own workflow tells their news."""
    return tuple(each for each in expected if not _settles(RunNews(run=run, ended=True), each))


def next_unmet(state: JobState) -> datetime | None:
    """Say when the next expectation is over that needs no look at a worker."""
    return min((each.due_at for each in state.expected if not _needs_look(state, each)), default=None)


def _alerts_of_news(state: JobState, news: JobNews, *, rules: AlertRules, now: datetime) -> Iterator[Alert]:
    for each in news.runs:
        yield from _alerts_of_run(state, each, rules=rules, now=now)
    if AlertKind.MISSED in rules.on:
        missed = (*filter(_is_unseen, news.ledger), *_missed_runs(news))
        if sum(entry.count for entry in missed) > rules.missed_more_than:
            yield _missed_alert(state, missed, rules=rules, now=now)


def _alerts_of_run(state: JobState, news: RunNews, *, rules: AlertRules, now: datetime) -> Iterator[Alert]:
    run = news.run
    if news.ended and run.status is RunStatus.DEAD and AlertKind.DEAD in rules.on:
        said = f"run {run.run_id} of {_name(state)} is dead: {run.reason or 'no reason was recorded'}"
        yield _alert(state, AlertKind.DEAD, about=run.run_id, said=said, rules=rules, now=now, run=run)
    if not news.begun or run.kind is not RunKind.SCHEDULED or AlertKind.LATE not in rules.on:
        return
    if (
        rules.late_after is not None
        and run.started_at is not None
        and run.started_at > run.target_at + rules.late_after
    ):
        late = int((run.started_at - run.target_at).total_seconds())
        said = f"run {run.run_id} of {_name(state)} started {late} s late"
        yield _alert(state, AlertKind.LATE, about=run.run_id, said=said, rules=rules, now=now, run=run)


def _missed_alert(state: JobState, missed: tuple[LedgerEntry, ...], *, rules: AlertRules, now: datetime) -> Alert:
    count, first = sum(entry.count for entry in missed), min(entry.first for entry in missed)
    said = f"{_name(state)} has missed {count} {'fire' if count == 1 else 'fires'}, the first of {first.isoformat()}"
    said += _backfill_advice(state, missed)
    about = f"{state.job_id}:{first:%Y%m%dT%H%M%SZ}"
    alert = _alert(state, AlertKind.MISSED, about=about, said=said, rules=rules, now=now)
    return alert.model_copy(update={"missed": missed[:EXPECTED_LIMIT]})


def _backfill_advice(state: JobState, missed: tuple[LedgerEntry, ...]) -> str:
    """Name the command that runs what ``max_missed`` has dropped."""
    dropped = [entry for entry in missed if entry.outcome is Outcome.DROPPED]
    if not dropped:
        return ""
    first, last = min(entry.first for entry in dropped), max(entry.last for entry in dropped)
    count = sum(entry.count for entry in dropped)
    command = f"horarium backfill {state.job_id} --from {first:%Y-%m-%dT%H:%M:%SZ} --to {last:%Y-%m-%dT%H:%M:%SZ}"
    return f"; {count} of them will not be caught up, unless by: {command}"


def _alerts_of_catch_up(before: JobState, after: JobState, *, rules: AlertRules, now: datetime) -> Iterator[Alert]:
    if AlertKind.CATCH_UP not in rules.on:
        return
    known = {run.run_id for run in (*before.active, *before.catch_up)}
    held = (*after.active, *after.catch_up)
    new = [run for run in held if run.kind is RunKind.CATCH_UP and run.run_id not in known]
    count = sum(run.stands_for for run in new)
    if count <= rules.catch_up_more_than:
        return
    newest = max(run.scheduled_at for run in new)
    said = f"{_name(after)} catches up {count} fires, the last of {newest.isoformat()}"
    about = f"{after.job_id}:{newest:%Y%m%dT%H%M%SZ}"
    yield _alert(after, AlertKind.CATCH_UP, about=about, said=said, rules=rules, now=now)


def _unmet_alert(state: JobState, unmet: Expectation, *, rules: AlertRules, now: datetime) -> Alert:
    held = (*state.active, *state.waiting, *state.catch_up)
    run = next((each for each in held if each.run_id == unmet.run_id), None)
    what = "has not started" if unmet.kind is AlertKind.LATE else "has not finished"
    said = f"the fire of {unmet.nominal.isoformat()} of {_name(state)} {what} by {unmet.due_at.isoformat()}"
    about = f"{state.job_id}:{unmet.nominal:%Y%m%dT%H%M%SZ}"
    if unmet.kind is AlertKind.LATE:
        about = unmet.run_id or about
    alert = _alert(state, unmet.kind, about=about, said=said, rules=rules, now=now, run=run)
    return alert.model_copy(update={"due_at": unmet.due_at})


def _alert(
    state: JobState,
    kind: AlertKind,
    *,
    about: str,
    said: str,
    rules: AlertRules,
    now: datetime,
    run: Run | None = None,
) -> Alert:
    definition = state.definition
    return Alert(
        alert_id=f"{state.tenant}:{kind.value}:{about}",
        kind=kind,
        tenant=state.tenant,
        job_id=state.job_id,
        job_name=definition.name,
        owner=definition.owner,
        labels=definition.labels,
        raised_at=now,
        summary=said[:500],
        run=None if run is None else run.model_copy(update={"checkpoint": None, "result": None}),
        url=rules.url,
        signature=rules.signature,
    )


def _expectations_left(
    before: JobState, after: JobState, news: JobNews | None, *, rules: AlertRules
) -> tuple[Expectation, ...]:
    if after.lifecycle is Lifecycle.DELETED:
        return ()
    runs = () if news is None else news.runs
    kept = [each for each in after.expected if not any(_settles(run, each) for run in runs)]
    ledger = () if news is None else news.ledger
    new = [*_expectations_of_runs(before, after, runs, rules=rules), *_expectations_of_ledger(ledger, rules=rules)]
    kept += [each for each in new if not any(_settles(run, each) for run in runs)]
    return tuple(kept[:EXPECTED_LIMIT])


def _settles(news: RunNews, expected: Expectation) -> bool:
    """Say whether what happened to a run ends an expectation. A redrive answers for the nominal time of its dead run."""
    if expected.kind is AlertKind.LATE:
        return news.run.run_id == expected.run_id and (news.begun or news.ended)
    return news.ended and news.run.status is RunStatus.SUCCESS and news.run.scheduled_at == expected.nominal


def _expectations_of_runs(
    before: JobState, after: JobState, news: Iterable[RunNews], *, rules: AlertRules
) -> Iterator[Expectation]:
    known = {run.run_id for run in (*before.active, *before.waiting, *before.catch_up)}
    held = {run.run_id: run for run in (*after.active, *after.waiting, *after.catch_up)}
    held |= {each.run.run_id: each.run for each in news}
    for run in held.values():
        if run.run_id in known or run.kind not in (RunKind.SCHEDULED, RunKind.CATCH_UP):
            continue
        if rules.finish_within is not None and AlertKind.NOT_FINISHED in rules.on:
            due_at = run.scheduled_at + rules.finish_within
            yield Expectation(kind=AlertKind.NOT_FINISHED, nominal=run.scheduled_at, due_at=due_at, run_id=run.run_id)
        # A run of its own workflow is watched there; one that is caught up is late by nature.
        if rules.late_after is None or AlertKind.LATE not in rules.on or run.detached:
            continue
        if run.kind is RunKind.SCHEDULED:
            due_at = run.target_at + rules.late_after
            yield Expectation(kind=AlertKind.LATE, nominal=run.scheduled_at, due_at=due_at, run_id=run.run_id)


def _expectations_of_ledger(ledger: Iterable[LedgerEntry], *, rules: AlertRules) -> Iterator[Expectation]:
    """Expect the newest of several fires that have no run: it will not come, and is told when it should have."""
    if rules.finish_within is None or AlertKind.NOT_FINISHED not in rules.on:
        return
    for entry in ledger:
        if entry.outcome in _WITHOUT_RUN:
            due_at = entry.last + rules.finish_within
            yield Expectation(kind=AlertKind.NOT_FINISHED, nominal=entry.last, due_at=due_at)


def _missed_runs(news: JobNews) -> Iterator[LedgerEntry]:
    for each in news.runs:
        run = each.run
        if each.ended and run.outcome in _UNSEEN:
            yield LedgerEntry(first=run.scheduled_at, last=run.scheduled_at, outcome=run.outcome, reason=run.reason)


def _is_unseen(entry: LedgerEntry) -> bool:
    return entry.outcome in _UNSEEN


def _is_overdue(state: JobState, expected: Expectation, *, now: datetime) -> bool:
    return expected.due_at <= now and not _needs_look(state, expected)


def _needs_look(state: JobState, expected: Expectation) -> bool:
    """Say whether only a look at a dispatched run can tell that it has not begun."""
    is_out = any(run.run_id == expected.run_id and run.next_attempt_at is None for run in state.active)
    return expected.kind is AlertKind.LATE and is_out


def _is_late(expected: Expectation, run_id: str) -> bool:
    return expected.kind is AlertKind.LATE and expected.run_id == run_id


def _name(state: JobState) -> str:
    return f"{state.definition.name or state.job_id} ({state.job_id})"


def alert_body(alert: Alert) -> JsonValue:
    """Write what the receiver is sent."""
    return {
        "alert_id": alert.alert_id,
        "kind": alert.kind.value,
        "summary": alert.summary,
        "raised_at": alert.raised_at.isoformat(),
        "tenant": alert.tenant,
        "job_id": alert.job_id,
        "job_name": alert.job_name,
        "owner": alert.owner,
        "labels": dict(alert.labels),
        "due_at": None if alert.due_at is None else alert.due_at.isoformat(),
        "run": None if alert.run is None else _run_body(alert.run),
        "missed": [entry.model_dump(mode="json", include=_ENTRY_FIELDS) for entry in alert.missed],
    }


_ENTRY_FIELDS = {"first", "last", "count", "outcome", "reason"}

_RUN_FIELDS = {
    "run_id",
    "kind",
    "status",
    "scheduled_at",
    "target_at",
    "started_at",
    "finished_at",
    "attempt",
    "max_attempts",
    "reason",
    "idempotency_key",
}


def _run_body(run: Run) -> JsonValue:
    failure = run.failure
    error: JsonValue = None if failure is None else {"type": failure.type, "message": failure.message}
    told: dict[str, JsonValue] = run.model_dump(mode="json", include=_RUN_FIELDS)
    return {**told, "error": error}

"""What the API says of jobs, runs and fires: the shapes of its answers, and how values become them. Pure.

Times are aware and leave as RFC 3339 in UTC. A field is never renamed or reused; new ones may come at any time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self, assert_never

from pydantic import BaseModel, Field, JsonValue, TypeAdapter

from activities.ledger_listing import ListedEntry
from api.alert_body import AlertsAnswer, describe_alerts
from api.next_run import is_held_up, with_next_run
from workflows.fire_times import jitter_window, shortest_gap
from workflows.job import (
    Backoff,
    CatchUpPolicy,
    Isolation,
    JobCounts,
    JobDefinition,
    JobRecord,
    Lifecycle,
    OverlapPolicy,
    PausedFires,
)
from workflows.policies import decide_grace
from workflows.run import Attempt, AttemptStatus, Failure, Outcome, Run, RunKind, RunStatus
from workflows.schedule import (
    BusinessDays,
    CronRule,
    DstPolicy,
    Exclusions,
    Fire,
    IntervalRule,
    OneOffRule,
    OnlyOn,
    RRuleRule,
    Rule,
)
from workflows.schedule_description import describe_schedule
from workflows.target import Target, without_body
from workflows.zone import load_zone

Number = int | float
"""Seconds: whole ones are written without a fraction, as callers do."""

_SPAN = TypeAdapter(timedelta)


class BackoffAnswer(BaseModel):
    """As in the body of a job."""

    kind: Backoff
    base_seconds: Number
    cap_seconds: Number


class Health(BaseModel):
    """Whether anything keeps a job from doing what it should."""

    ok: bool
    reasons: list[str] = Field(description="For people; empty when ok.")


class HeldBy(BaseModel):
    """A hold over a job."""

    hold_id: str
    reason: str
    by: str
    until: datetime | None = Field(description="Then it ends by itself.")
    catch_up: PausedFires = Field(description="What its end does with the fires that fell into it.")


class JobSummary(BaseModel):
    """A job as lists show it: what it is, and how it stands."""

    job_id: str
    name: str
    state: Lifecycle
    health: Health
    stale: bool = Field(description="Temporal does not answer: this is what was known last.")
    next_run_at: datetime | None = Field(
        description="Nominal time of the next fire; null when paused or completed. Of a held job, the first after the hold, "
        "or null where its end is not known."
    )
    holds: list[HeldBy] = Field(description="While there is one, the job does not fire.")
    next_target_at: datetime | None = Field(description="The same with jitter: when it should start.")
    lag_seconds: Number = Field(description="How long the next fire is overdue; 0 when it is not.")
    revision: int = Field(description="Of the definition; also the ETag.")

    schedule: JsonValue
    timezone: str
    target: Target
    description: str
    owner: str
    labels: dict[str, str]

    counts: JobCounts = Field(
        description="Since the registration. `started` are scheduled and catch-up runs, which `max_runs` bounds; "
        "`succeeded` and `dead` are those of triggers, backfills and redrives as well."
    )
    active_runs: int
    waiting_runs: int
    last_run_id: str | None
    last_status: str | None = Field(description="Of the run that ended last, or `missed` when a miss came after it.")
    last_finished_at: datetime | None
    last_success_at: datetime | None
    last_error: str | None
    created_at: datetime
    updated_at: datetime


class PauseAnswer(BaseModel):
    """Why a job is paused, and until when."""

    at: datetime
    reason: str
    by: str
    until: datetime | None = Field(description="Then it resumes by itself.")
    catch_up: PausedFires = Field(description="What `until` does with the fires that fell into the pause.")


class JobAnswer(JobSummary):
    """A job with everything that its owner asked for, all defaults filled in."""

    temporal_url: str | None = Field(description="Its workflow in Temporal's Web UI; null where that is not known.")
    pause: PauseAnswer | None = Field(description="Of a paused job.")
    schedule_in_words: str
    dst: DstPolicy = Field(description="null: the rule of the schedule's kind.")
    exclude: Exclusions
    only: OnlyOn
    business_days: BusinessDays | None
    start_at: datetime | None
    end_at: datetime | None
    max_runs: int | None
    jitter_window_seconds: Number
    time_critical: bool

    enabled: bool
    payload: JsonValue
    idempotency_key_template: str
    missed_window: CatchUpPolicy
    max_missed: int
    catch_up_rate: int
    max_delay_seconds: Number | None
    misfire_grace_seconds: Number
    lookback_seconds: Number
    overlap: OverlapPolicy
    max_concurrent: int
    max_buffered: int
    timeout_seconds: Number
    heartbeat_timeout_seconds: Number | None
    queue_timeout_seconds: Number
    max_retries: int
    max_attempts: int
    retry_backoff: BackoffAnswer
    retry_on: list[str]
    no_retry_on: list[str]
    deadline_seconds: Number | None
    downstream: str
    isolation: Isolation
    alerts: AlertsAnswer | None = Field(description="null: as the installation has it for all jobs.")
    warnings: list[str] = Field(default=[], description="Of the request just made.")


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What is known of a job beside its record."""

    health: Health
    stale: bool
    temporal_url: str | None
    now: datetime


class AttemptAnswer(BaseModel):
    """One try of a run."""

    number: int
    status: AttemptStatus
    dispatched_at: datetime = Field(description="When it was handed to the task queue.")
    started_at: datetime | None = Field(
        description="When the job's code began, by the worker's clock, within dispatch and end."
    )
    finished_at: datetime | None
    duration: Number | None
    worker: str | None
    fence: int
    error: str | None
    error_type: str | None
    http_status: int | None = Field(description="Of the HTTP answer that it failed with, if it was one.")


class RunAnswer(BaseModel):
    """One intended execution of a job."""

    run_id: str
    job_id: str
    kind: RunKind
    status: RunStatus
    scheduled_at: datetime = Field(description="The nominal time; for manual runs the time of the request.")
    target_at: datetime
    created_at: datetime
    started_at: datetime | None = Field(description="When the first attempt began.")
    finished_at: datetime | None
    duration: Number | None = Field(description="Seconds from the start of the first attempt to the end of the last.")
    attempt: int = Field(description="Number of the last attempt; 0 before the first.")
    max_attempts: int
    next_attempt_at: datetime | None
    error: str | None = Field(description="Of the last attempt, if that failed.")
    error_type: str | None
    http_status: int | None = Field(description="Of the HTTP answer that the last attempt failed with, if it was one.")
    result: JsonValue
    reason: str | None = Field(description="Why it waits, is parked, was skipped or cancelled, or is dead.")
    stands_for: int = Field(description="How many fires it answers for, itself included.")
    backfill_id: str | None = Field(description="The backfill that it belongs to.")
    redrive_of: str | None = Field(description="The dead run that it repeats.")
    redriven_by: str | None = Field(description="Of a dead run: the run that repeats it.")
    idempotency_key: str
    fence: int
    revision: int
    payload: JsonValue = Field(description="Only of a run that was triggered with one of its own.")
    worker: str | None
    workflow_id: str = Field(description="The Temporal workflow in whose history it is found.")
    workflow_run_id: str
    temporal_url: str | None = Field(description="That history in Temporal's Web UI; null where that is not known.")
    attempts: list[AttemptAnswer] | None = Field(description="null unless asked for.")


class LedgerAnswer(BaseModel):
    """The outcome of one nominal fire, or of several neighbours alike."""

    first: datetime = Field(description="Nominal time of the first fire.")
    last: datetime = Field(description="Nominal time of the last fire; the same for a single one.")
    count: int
    outcome: Outcome
    reason: str | None
    run_id: str | None = Field(description="Its run, or the run that blocked it or stands for it.")
    revision: int
    backfilled: int = Field(
        description="How many of these fires have been backfilled since; their outcome stays what it was."
    )
    backfill_run_id: str | None = Field(description="Such a run.")


class FireAnswer(BaseModel):
    """A fire to come."""

    nominal: datetime
    target: datetime
    local: str = Field(description="The nominal time on the clock of the job's zone.")

    @classmethod
    def of(cls, fire: Fire, *, timezone: str) -> Self:
        """Say a fire, on the clock of ``timezone`` too."""
        local = fire.nominal.astimezone(load_zone(timezone)).isoformat()
        return cls(nominal=fire.nominal, target=fire.target, local=local)


def summarise_job(record: JobRecord, standing: Standing) -> JobSummary:
    """Say a job shortly."""
    definition, schedule = record.definition, record.definition.schedule
    upcoming = with_next_run(record, now=standing.now)
    return JobSummary(
        job_id=record.job_id,
        name=definition.name,
        state=record.lifecycle,
        health=standing.health,
        stale=standing.stale,
        next_run_at=upcoming.next_run_at,
        next_target_at=upcoming.next_target_at,
        holds=[HeldBy(**hold.model_dump(exclude={"at"})) for hold in record.holds],
        lag_seconds=_number(lag_of(record, now=standing.now)),
        revision=record.revision,
        schedule=spell_rule(schedule.rule),
        timezone=schedule.timezone,
        target=without_body(definition.target),
        description=definition.description,
        owner=definition.owner,
        labels=definition.labels,
        counts=record.counts,
        active_runs=record.active_runs,
        waiting_runs=record.waiting_runs,
        last_run_id=record.last_run_id,
        last_status=record.last_status,
        last_finished_at=record.last_finished_at,
        last_success_at=record.last_success_at,
        last_error=record.last_error,
        created_at=record.registered_at,
        updated_at=record.updated_at,
    )


def describe_job(record: JobRecord, standing: Standing, *, warnings: Sequence[str] = ()) -> JobAnswer:
    """Say all about a job. Takes up to a tenth of a second: what is in force depends on how close fires can come."""
    definition, schedule = record.definition, record.definition.schedule
    return JobAnswer(
        **{**dict(summarise_job(record, standing)), "target": definition.target},
        temporal_url=standing.temporal_url,
        pause=None if record.pause is None else PauseAnswer.model_validate(dict(record.pause)),
        schedule_in_words=describe_schedule(schedule, job_id=record.job_id),
        dst=schedule.dst,
        exclude=schedule.exclude,
        only=schedule.only,
        business_days=schedule.business_days,
        start_at=schedule.start_at,
        end_at=schedule.end_at,
        max_runs=schedule.max_runs,
        jitter_window_seconds=_number(jitter_window(schedule, job_id=record.job_id)),
        time_critical=schedule.time_critical,
        enabled=record.lifecycle is not Lifecycle.PAUSED,
        payload=definition.payload,
        idempotency_key_template=definition.idempotency_key_template,
        missed_window=definition.missed_window,
        max_missed=definition.max_missed,
        catch_up_rate=definition.catch_up_rate,
        max_delay_seconds=_seconds(definition.max_delay),
        misfire_grace_seconds=_number(_grace_of(record)),
        lookback_seconds=_number(definition.lookback),
        overlap=definition.overlap,
        max_concurrent=definition.max_concurrent,
        max_buffered=definition.max_buffered,
        timeout_seconds=_number(definition.timeout),
        heartbeat_timeout_seconds=_seconds(definition.heartbeat_timeout),
        queue_timeout_seconds=_number(definition.queue_timeout),
        max_retries=definition.retry.max_attempts - 1,
        max_attempts=definition.retry.max_attempts,
        retry_backoff=_describe_backoff(definition),
        retry_on=list(definition.retry.retry_on),
        no_retry_on=list(definition.retry.no_retry_on),
        deadline_seconds=_seconds(definition.deadline),
        downstream=definition.downstream,
        isolation=definition.isolation,
        alerts=describe_alerts(definition.alerts),
        warnings=list(warnings),
    )


def describe_run(
    run: Run, *, job_id: str, temporal_url: str | None, attempts: Sequence[Attempt] | None = None
) -> RunAnswer:
    """Say a run; with its attempts where they are given."""
    return RunAnswer(
        run_id=run.run_id,
        job_id=job_id,
        kind=run.kind,
        status=run.status,
        scheduled_at=run.scheduled_at,
        target_at=run.target_at,
        created_at=run.created_at,
        started_at=run.started_at,
        finished_at=run.finished_at,
        duration=_duration(run.started_at, run.finished_at),
        attempt=run.attempt,
        max_attempts=run.max_attempts,
        next_attempt_at=run.next_attempt_at,
        error=_error_text(run.failure),
        error_type=run.failure.type if run.failure else None,
        http_status=run.failure.http_status if run.failure else None,
        result=run.result,
        reason=run.reason,
        stands_for=run.stands_for,
        backfill_id=run.backfill_id,
        redrive_of=run.redrive_of,
        redriven_by=run.redriven_by,
        idempotency_key=run.idempotency_key,
        fence=run.fence,
        revision=run.revision,
        payload=None if run.override is None else run.override.payload,
        worker=run.worker,
        workflow_id=run.workflow_id,
        workflow_run_id=run.workflow_run_id,
        temporal_url=temporal_url,
        attempts=None if attempts is None else [describe_attempt(attempt) for attempt in attempts],
    )


def describe_attempt(attempt: Attempt) -> AttemptAnswer:
    """Say an attempt."""
    return AttemptAnswer(
        number=attempt.number,
        status=attempt.status,
        dispatched_at=attempt.dispatched_at,
        started_at=attempt.started_at,
        finished_at=attempt.finished_at,
        duration=_duration(attempt.started_at, attempt.finished_at),
        worker=attempt.worker,
        fence=attempt.fence,
        error=_error_text(attempt.failure),
        error_type=attempt.failure.type if attempt.failure else None,
        http_status=attempt.failure.http_status if attempt.failure else None,
    )


def describe_ledger_entry(entry: ListedEntry) -> LedgerAnswer:
    """Say what became of a fire, or of several."""
    return LedgerAnswer(
        first=entry.first,
        last=entry.last,
        count=entry.count,
        outcome=entry.outcome,
        reason=entry.reason,
        run_id=entry.run_id,
        revision=entry.revision,
        backfilled=entry.backfilled,
        backfill_run_id=entry.backfill_run_id,
    )


def lag_of(record: JobRecord, *, now: datetime) -> timedelta:
    """Say how long the next fire is overdue; zero when it is not, when a run blocks it, or when there is none."""
    if record.next_target_at is None or is_held_up(record, now=now):
        return timedelta(0)
    return max(now - record.next_target_at, timedelta(0))


def spell_rule(rule: Rule) -> JsonValue:
    """Write a rule as a ``schedule`` that callers may send."""
    match rule:
        case CronRule():
            return rule.expression
        case IntervalRule():
            return {"every": _SPAN.dump_python(rule.every, mode="json"), "anchor": _spell_time(rule.anchor)}
        case OneOffRule():
            return {"at": _spell_time(rule.at) if rule.at else rule.local.isoformat() if rule.local else None}
        case RRuleRule():
            start = {"dtstart": rule.dtstart.isoformat()} if rule.dtstart else {}
            return {"rrule": rule.rrule, **start}
        case _:
            assert_never(rule)


def _spell_time(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _grace_of(record: JobRecord) -> timedelta:
    gap = shortest_gap(record.definition.schedule, job_id=record.job_id)
    return decide_grace(record.definition, shortest_gap=gap)


def _describe_backoff(definition: JobDefinition) -> BackoffAnswer:
    retry = definition.retry
    return BackoffAnswer(kind=retry.backoff, base_seconds=_number(retry.base), cap_seconds=_number(retry.cap))


def _error_text(failure: Failure | None) -> str | None:
    if failure is None:
        return None
    return f"{failure.type}: {failure.message}" if failure.message else failure.type


def _duration(started_at: datetime | None, finished_at: datetime | None) -> Number | None:
    if started_at is None or finished_at is None:
        return None
    # The two may be read from clocks of two hosts.
    return _number(max(finished_at - started_at, timedelta(0)))


def _seconds(span: timedelta | None) -> Number | None:
    return None if span is None else _number(span)


def _number(span: timedelta) -> Number:
    seconds = span.total_seconds()
    return int(seconds) if seconds.is_integer() else seconds

"""Traces: what a trace is, and the spans that the scheduler's side contributes.

**A run is a trace**, from its target time to its end, all attempts included, whoever carries them out. Its ids are hashes of
the run itself, so that nothing has to be remembered while a job sleeps for months, processes that never speak to each other
agree, and a replay cannot change them:

```
scheduled run                      job's workflow, from target (or decision) to the run's end
 `- attempt                        the same, from dispatch to answer; one for each
     `- <name of the activity>     the worker, by the SDK; its context is what job code finds
         `- whatever job code does
```

**A registration is another trace**, that of the HTTP request; each run's first span has a link to it. It does not go on for
ever: the workflow only carries its context.

Spans of runs are made when what they tell is over, from the same news that are counted. Their ids are the same whenever
they are made, so one that is sent twice is one. Attributes bear the names of the fields in logs. Messages of errors are in
SQL and in the logs, and not in spans: they may quote what nobody should see.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Final

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TracerProvider,
)
from opentelemetry.util.types import AttributeValue

from workflows.job_news import JobNews, RunNews
from workflows.run import Attempt, AttemptStatus, Run, RunKind, RunStatus

TRACER: Final = "horarium"

_NANOSECONDS: Final = 1_000

_wanted_ids: ContextVar[tuple[int, int] | None] = ContextVar("horarium_wanted_ids", default=None)


class WantedIds(RandomIdGenerator):
    """Gives a span the ids that its maker wants, if it wants any."""

    def generate_trace_id(self) -> int:
        """Make the id of a new trace."""
        wanted = _wanted_ids.get()
        return super().generate_trace_id() if wanted is None else wanted[0]

    def generate_span_id(self) -> int:
        """Make the id of a new span."""
        wanted = _wanted_ids.get()
        return super().generate_span_id() if wanted is None else wanted[1]


def trace_id_of(run: Run, *, tenant: str) -> int:
    """Name the trace of a run. The moment of its decision keeps runs of other installations apart."""
    return _hashed(16, tenant, run.run_id, run.created_at.isoformat())


def run_span_id(run: Run, *, tenant: str) -> int:
    """Name the first span of a run's trace."""
    return _hashed(8, "run", tenant, run.run_id, run.created_at.isoformat())


def attempt_span_id(run: Run, *, tenant: str, number: int) -> int:
    """Name the span of an attempt, which is the parent of what the worker does."""
    return _hashed(8, "attempt", tenant, run.run_id, run.created_at.isoformat(), str(number))


def _hashed(size: int, *parts: str) -> int:
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode(errors="replace")).digest()[:size], "big") or 1


class RunTracer:
    """Makes the spans of runs. Needs a provider with ``WantedIds``."""

    def __init__(self, provider: TracerProvider, sampler: Sampler) -> None:
        self._tracer = provider.get_tracer(TRACER)
        self._sampler = sampler

    @contextmanager
    def enter_attempt(self, tenant: str, run: Run) -> Iterator[None]:
        """Let what is started inside be a child of the run's current attempt. Safe in workflows: ids and choice are functions
        of the run."""
        span_id = attempt_span_id(run, tenant=tenant, number=run.attempt)
        token = otel_context.attach(self._context_of(run, tenant=tenant, span_id=span_id))
        try:
            yield
        finally:
            otel_context.detach(token)

    def hear(self, news: JobNews, registration: SpanContext) -> None:
        """Make the spans of what has happened. ``registration`` is the span that the job's workflow was started in, if any."""
        if news.registered and registration.is_valid:
            self._make_registration_span(news, registration)
        for each in news.runs:
            if each.attempt is not None:
                self._make_attempt_span(news, each.run, each.attempt)
            if each.ended:
                self._make_run_span(news, each, registration)

    def _make_registration_span(self, news: JobNews, registration: SpanContext) -> None:
        parent = trace.set_span_in_context(NonRecordingSpan(registration), Context())
        span = self._tracer.start_span("job begins", parent, attributes={"tenant": news.tenant, "job_id": news.job_id})
        span.end()

    def _make_run_span(self, news: JobNews, told: RunNews, registration: SpanContext) -> None:
        run = told.run
        links = [Link(registration)] if registration.is_valid else []
        with _wanting(trace_id_of(run, tenant=news.tenant), run_span_id(run, tenant=news.tenant)):
            span = self._tracer.start_span(
                f"{run.kind.value} run",
                Context(),
                attributes=_about(news, run) | _about_run(run),
                links=links,
                start_time=_nanoseconds(_start_of(run)),
            )
        if run.status is RunStatus.DEAD:
            span.set_status(Status(StatusCode.ERROR, run.failure.type if run.failure else None))
        span.end(_nanoseconds(run.finished_at or run.created_at))

    def _make_attempt_span(self, news: JobNews, run: Run, attempt: Attempt) -> None:
        trace_id = trace_id_of(run, tenant=news.tenant)
        parent = self._context_of(run, tenant=news.tenant, span_id=run_span_id(run, tenant=news.tenant))
        with _wanting(trace_id, attempt_span_id(run, tenant=news.tenant, number=attempt.number)):
            span = self._tracer.start_span(
                "attempt",
                parent,
                kind=SpanKind.CLIENT,
                attributes=_about(news, run) | _about_attempt(attempt),
                start_time=_nanoseconds(attempt.dispatched_at),
            )
        if attempt.status not in (AttemptStatus.SUCCESS, AttemptStatus.CANCELLED):
            span.set_status(Status(StatusCode.ERROR, attempt.failure.type if attempt.failure else None))
        span.end(_nanoseconds(attempt.finished_at or attempt.dispatched_at))

    def _context_of(self, run: Run, *, tenant: str, span_id: int) -> Context:
        trace_id = trace_id_of(run, tenant=tenant)
        sampled = self._sampler.should_sample(Context(), trace_id, "run").decision is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
        span = NonRecordingSpan(SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags))
        return trace.set_span_in_context(span, Context())


@contextmanager
def _wanting(trace_id: int, span_id: int) -> Iterator[None]:
    token = _wanted_ids.set((trace_id, span_id))
    try:
        yield
    finally:
        _wanted_ids.reset(token)


def _start_of(run: Run) -> datetime:
    """Say when a run begins to matter: a live fire at its target, so that its lateness is seen; any other when it was decided."""
    return min(run.target_at, run.created_at) if run.kind is RunKind.SCHEDULED else run.created_at


def _about(news: JobNews, run: Run) -> dict[str, AttributeValue]:
    return {
        "tenant": news.tenant,
        "job_id": news.job_id,
        "run_id": run.run_id,
        "kind": run.kind.value,
        # As Temporal's own spans name them.
        "temporalWorkflowID": run.workflow_id,
        "temporalRunID": run.workflow_run_id,
    }


def _about_run(run: Run) -> dict[str, AttributeValue]:
    about: dict[str, AttributeValue] = {
        "status": run.status.value,
        "outcome": run.outcome.value,
        "attempt": run.attempt,
        "stands_for": run.stands_for,
        "scheduled_at": run.scheduled_at.isoformat(),
        "target_at": run.target_at.isoformat(),
    }
    if run.started_at is not None:
        about["lateness_seconds"] = max(0.0, (run.started_at - run.target_at).total_seconds())
    return about


def _about_attempt(attempt: Attempt) -> dict[str, AttributeValue]:
    about: dict[str, AttributeValue] = {"status": attempt.status.value, "attempt": attempt.number}
    if attempt.worker is not None:
        about["worker"] = attempt.worker
    if attempt.failure is not None:
        about["error.type"] = attempt.failure.type
    return about


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * _NANOSECONDS

"""Which spans a run leaves, whoever makes them and however often."""

from datetime import UTC, datetime, timedelta

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBasedTraceIdRatio, Sampler
from opentelemetry.trace import INVALID_SPAN_CONTEXT, SpanContext, StatusCode, TraceFlags

from workers.run_trace import RunTracer, WantedIds, attempt_span_id, run_span_id, trace_id_of
from workflows.job_news import JobNews, RunNews
from workflows.run import Attempt, AttemptStatus, Failure, Run, RunKind, RunStatus

NOON = datetime(2026, 6, 8, 12, tzinfo=UTC)

REGISTRATION = SpanContext(7, 8, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


class Traced:
    """A tracer, and what it has made."""

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=sampler, id_generator=WantedIds())
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = RunTracer(provider, sampler)

    def spans(self) -> dict[str, ReadableSpan]:
        """Spans by name."""
        return {span.name: span for span in self._exporter.get_finished_spans()}


def second(seconds: float) -> datetime:
    """A moment after noon."""
    return NOON + timedelta(seconds=seconds)


def run(**fields: object) -> Run:
    """A live run of noon, decided a second later."""
    values = {"run_id": "j:20260608T120000Z", "scheduled_at": NOON, "target_at": NOON, "created_at": second(1)}
    return Run.model_validate(values | fields)


def ended_news() -> JobNews:
    """A run that began and ended in its second attempt."""
    done = run(
        status=RunStatus.DEAD, attempt=2, started_at=second(2), finished_at=second(9), failure=Failure(type="Boom")
    )
    attempt = Attempt(
        scheduled_at=NOON,
        number=2,
        status=AttemptStatus.FAILED,
        dispatched_at=second(8),
        finished_at=second(9),
        worker="w",
        failure=Failure(type="Boom", message="S3CR3T"),
    )
    return JobNews(tenant="t", job_id="j", version=1, runs=(RunNews(run=done, ended=True, attempt=attempt),))


def nanoseconds(moment: datetime) -> int:
    """As spans count time."""
    return int(moment.timestamp() * 1_000) * 1_000_000


def test_a_run_is_a_trace_from_its_target_to_its_end() -> None:
    """Its lateness is seen at a glance; the attempt is a child; who registered the job is a link."""
    traced = Traced()
    traced.tracer.hear(ended_news(), REGISTRATION)
    whole, attempt = traced.spans()["scheduled run"], traced.spans()["attempt"]
    assert (whole.start_time, whole.end_time, whole.parent) == (nanoseconds(NOON), nanoseconds(second(9)), None)
    assert (attempt.start_time, attempt.end_time) == (nanoseconds(second(8)), nanoseconds(second(9)))
    assert attempt.parent is not None
    assert whole.context is not None
    assert attempt.context is not None
    assert attempt.parent.span_id == whole.context.span_id
    assert attempt.context.trace_id == whole.context.trace_id
    assert [link.context.trace_id for link in whole.links] == [REGISTRATION.trace_id]
    assert whole.attributes is not None
    assert attempt.attributes is not None
    assert {name: attempt.attributes[name] for name in ("tenant", "job_id", "run_id", "attempt")} == {
        "tenant": "t",
        "job_id": "j",
        "run_id": "j:20260608T120000Z",
        "attempt": 2,
    }
    assert whole.attributes["lateness_seconds"] == 2.0


def test_failures_show_by_their_type_and_never_by_their_text() -> None:
    """SB-154: a message may quote what nobody should see."""
    traced = Traced()
    traced.tracer.hear(ended_news(), INVALID_SPAN_CONTEXT)
    assert {span.status.status_code for span in traced.spans().values()} == {StatusCode.ERROR}
    assert "S3CR3T" not in "".join(span.to_json() for span in traced.spans().values())


def test_a_catch_up_run_begins_when_it_was_decided() -> None:
    """Its target may be days ago, and a span of days would hide everything in it."""
    traced = Traced()
    late = run(kind=RunKind.CATCH_UP, status=RunStatus.SUCCESS, finished_at=second(3))
    news = JobNews(tenant="t", job_id="j", version=1, runs=(RunNews(run=late, ended=True),))
    traced.tracer.hear(news, INVALID_SPAN_CONTEXT)
    assert traced.spans()["catch_up run"].start_time == nanoseconds(second(1))


def test_all_that_carry_a_run_out_agree_on_its_ids_without_a_word() -> None:
    """Another process, another attempt, another day: ids are functions of the run, and other runs have others."""
    one, later = run(attempt=1), run(attempt=4, fence=9, status=RunStatus.RETRYING, started_at=second(5))
    assert trace_id_of(one, tenant="t") == trace_id_of(later, tenant="t")
    assert run_span_id(one, tenant="t") == run_span_id(later, tenant="t")
    others = [run(run_id="j:2"), run(created_at=second(2))]
    ids = {trace_id_of(each, tenant=tenant) for each in (one, *others) for tenant in ("t", "u")}
    assert len(ids) == 6
    spans = {attempt_span_id(one, tenant="t", number=number) for number in range(1, 50)}
    assert len(spans | {run_span_id(one, tenant="t")}) == 50


def test_what_is_started_in_an_attempt_is_its_child() -> None:
    """The context that goes along with the activity names the span that is made when the attempt has ended."""
    traced = Traced()
    with traced.tracer.enter_attempt("t", run(attempt=2)):
        inside = trace.get_current_span().get_span_context()
    assert not trace.get_current_span().get_span_context().is_valid
    traced.tracer.hear(ended_news(), INVALID_SPAN_CONTEXT)
    made = traced.spans()["attempt"].context
    assert made is not None
    assert (inside.trace_id, inside.span_id) == (made.trace_id, made.span_id)
    assert inside.trace_flags.sampled


@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0])
def test_a_run_is_sampled_as_a_whole_or_not_at_all(ratio: float) -> None:
    """OTEL_TRACES_SAMPLER: the attempt's flag, which workers heed, and the run's own spans never contradict each other."""
    traced = Traced(ParentBasedTraceIdRatio(ratio))
    sampled = 0
    for number in range(200):
        done = run(run_id=f"j:{number}", status=RunStatus.SUCCESS, finished_at=second(3))
        with traced.tracer.enter_attempt("t", done):
            flag = trace.get_current_span().get_span_context().trace_flags.sampled
        before = len(traced.spans())
        traced._exporter.clear()
        traced.tracer.hear(
            JobNews(tenant="t", job_id="j", version=1, runs=(RunNews(run=done, ended=True),)), INVALID_SPAN_CONTEXT
        )
        assert (len(traced.spans()) == 1) is flag, before
        sampled += flag
    assert abs(sampled - 200 * ratio) < 40


def test_a_registration_goes_on_in_its_own_trace() -> None:
    """The job's first moment is a child of the call that started it; without such a call there is nothing to tell."""
    traced = Traced()
    news = JobNews(tenant="t", job_id="j", version=1, registered=True)
    traced.tracer.hear(news, INVALID_SPAN_CONTEXT)
    assert traced.spans() == {}
    traced.tracer.hear(news, REGISTRATION)
    begins = traced.spans()["job begins"]
    assert begins.parent is not None
    assert (begins.parent.trace_id, begins.parent.span_id) == (REGISTRATION.trace_id, REGISTRATION.span_id)

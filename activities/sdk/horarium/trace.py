"""The attempt as a span of OpenTelemetry, so that spans of job code become its children.

The scheduler sends the context of the run's trace along with the attempt. Where OpenTelemetry is not installed, or its SDK not
set up, nothing happens here.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadConverter
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from horarium.job_run import JobRun

try:
    from opentelemetry import context as otel_context
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    HAS_OPENTELEMETRY = False
else:
    HAS_OPENTELEMETRY = True

TRACER: Final = "horarium"

HEADER: Final = "_tracer-data"
"""Where the OpenTelemetry interceptors of all Temporal SDKs put the context."""


def traced(run: JobRun[Any]) -> AbstractContextManager[None]:
    """Make a span of an attempt, around the body. A failure shows by its type: its message may hold what is nobody's business."""
    return _span(run) if HAS_OPENTELEMETRY and _is_set_up() else nullcontext()


class TraceContext(Interceptor):
    """Lets activities find the context that was sent along, unless another interceptor has found it before."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Wrap the activities of a worker."""
        return _WithContext(next) if HAS_OPENTELEMETRY else next


class _WithContext(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        with _sent_context(input.headers):
            return await super().execute_activity(input)


def _is_set_up() -> bool:
    """Whether somebody takes spans; until then OpenTelemetry has a stand-in that makes none."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


@contextmanager
def _sent_context(headers: Mapping[str, Payload]) -> Iterator[None]:
    header = headers.get(HEADER)
    if header is None or trace.get_current_span().get_span_context().is_valid:
        yield
        return
    carrier = PayloadConverter.default.from_payload(header)
    token = otel_context.attach(TraceContextTextMapPropagator().extract(carrier))
    try:
        yield
    finally:
        otel_context.detach(token)


@contextmanager
def _span(run: JobRun[Any]) -> Iterator[None]:
    with trace.get_tracer(TRACER).start_as_current_span(
        activity.info().activity_type,
        kind=trace.SpanKind.SERVER,
        attributes={
            "tenant": run.tenant,
            "job_id": run.job_id,
            "run_id": run.run_id,
            "attempt": run.attempt,
            "kind": run.kind.value,
            "task_queue": activity.info().task_queue,
        },
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except Exception as error:
            span.set_status(trace.Status(trace.StatusCode.ERROR, type(error).__name__))
            raise

"""Spans of calls that change jobs' workflows: what a request to the API spends its time on, and what it leads to."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode
from temporalio.client import (
    Interceptor,
    OutboundInterceptor,
    Plugin,
    StartWorkflowInput,
    StartWorkflowUpdateInput,
    WorkflowHandle,
    WorkflowUpdateHandle,
)
from temporalio.contrib.opentelemetry import OpenTelemetryPlugin, ReplaySafeTracerProvider

from workers.run_trace import TRACER
from workers.temporal_name import names_in_workflow_id


def client_plugins() -> list[Plugin]:
    """List what a Temporal client needs so that the context of a trace goes along with its calls, and through its workers."""
    return [OpenTelemetryPlugin()] if _is_tracing() else []


def client_interceptors() -> list[Interceptor]:
    """List what makes spans of a client's calls. They come before the plugins, so that it is their context that goes along."""
    return [CallSpans()] if _is_tracing() else []


def _is_tracing() -> bool:
    return isinstance(trace.get_tracer_provider(), ReplaySafeTracerProvider)


class CallSpans(Interceptor):
    """Makes a span for each call of a client, and says in the span around it which job it is about."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        """Wrap the calls."""
        return _Outbound(next)


class _Outbound(OutboundInterceptor):
    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        with _call(f"start {input.workflow}", input.id):
            return await super().start_workflow(input)

    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> WorkflowUpdateHandle[Any]:
        with _call(f"update {input.update}", input.id):
            return await super().start_workflow_update(input)


@contextmanager
def _call(name: str, workflow_id: str) -> Iterator[None]:
    about = names_in_workflow_id(workflow_id)
    trace.get_current_span().set_attributes(about)
    tracer = trace.get_tracer(TRACER)
    with tracer.start_as_current_span(
        name,
        kind=SpanKind.CLIENT,
        attributes={"temporalWorkflowID": workflow_id, **about},
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except Exception as error:
            span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise

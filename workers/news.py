"""Brings what jobs' workflows tell to those who count and trace it.

The telling happens in the threads of workflow tasks and costs them a call; the listening happens in the event loop of the
process. A decision that is carried out twice, because its workflow task failed or was too late to be taken, is told twice
and heard once.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from opentelemetry import trace
from opentelemetry.trace import SpanContext
from temporalio.worker import Interceptor, WorkflowInboundInterceptor, WorkflowInterceptorClassInput

from workflows.job_news import JobNews
from workflows.telemetry import ENTER_ATTEMPT, HEAR_NEWS, AttemptScope

logger = logging.getLogger(__name__)

REMEMBERED: Final = 10_000
"""News, so that they are not heard again: more than are told within the time-out of a workflow task."""

Listener: TypeAlias = Callable[[JobNews, SpanContext], None]
"""Given news, and the span in which the job was registered."""


class NewsInterceptor(Interceptor):
    """Opens the door of ``workflows.telemetry`` in the workers of one event loop. Make it in that loop."""

    def __init__(self, listeners: Sequence[Listener], *, attempt_scope: AttemptScope | None = None) -> None:
        self._listeners = listeners
        self._attempt_scope = attempt_scope
        self._loop = asyncio.get_running_loop()
        self._heard: OrderedDict[tuple[str, int, bool], None] = OrderedDict()

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        """Give workflows the functions that they may call outside of their sandbox."""
        input.unsafe_extern_functions[HEAR_NEWS] = self._take
        if self._attempt_scope is not None:
            input.unsafe_extern_functions[ENTER_ATTEMPT] = self._attempt_scope
        return None

    def _take(self, workflow_run_id: str, news: JobNews) -> None:
        registration = trace.get_current_span().get_span_context()
        with suppress(RuntimeError):  # the loop has ended, and with it whoever listens
            self._loop.call_soon_threadsafe(self._hear, workflow_run_id, news, registration)

    def _hear(self, workflow_run_id: str, news: JobNews, registration: SpanContext) -> None:
        key = (workflow_run_id, news.version, news.registered)
        if key in self._heard:
            return
        self._heard[key] = None
        if len(self._heard) > REMEMBERED:
            self._heard.popitem(last=False)
        for listener in self._listeners:
            try:
                listener(news, registration)
            except Exception:  # telemetry must never stop what it tells of
                logger.exception("news could not be told", extra={"tenant": news.tenant, "job_id": news.job_id})

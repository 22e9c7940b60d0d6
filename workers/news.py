"""Brings what jobs' workflows tell to those who count and trace it.

The telling happens in the threads of workflow tasks and costs them a call; the listening happens in the event loop of the
process. A decision that is carried out again, because its workflow task failed or was too late to be taken, is told again,
perhaps with another outcome, and heard once by each process.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeAlias

from opentelemetry import trace
from opentelemetry.trace import SpanContext
from temporalio.worker import Interceptor, WorkflowInboundInterceptor, WorkflowInterceptorClassInput

from workflows.job import LedgerEntry
from workflows.job_news import JobNews, RunNews
from workflows.telemetry import ENTER_ATTEMPT, HEAR_NEWS, AttemptScope

logger = logging.getLogger(__name__)

REMEMBERED: Final = 20_000
"""Facts: more than are told while a workflow task that was lost is given to a worker again."""

Listener: TypeAlias = Callable[[JobNews, SpanContext], None]
"""Given news, and the span in which the job was registered."""


class NewsInterceptor(Interceptor):
    """Opens the door of ``workflows.telemetry`` in the workers of one event loop. Make it in that loop."""

    def __init__(self, listeners: Sequence[Listener], *, attempt_scope: AttemptScope | None = None) -> None:
        self._listeners = listeners
        self._attempt_scope = attempt_scope
        self._loop = asyncio.get_running_loop()
        self._memory = NewsMemory()

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        """Give workflows the functions that they may call outside of their sandbox."""
        input.unsafe_extern_functions[HEAR_NEWS] = self._take
        if self._attempt_scope is not None:
            input.unsafe_extern_functions[ENTER_ATTEMPT] = self._attempt_scope
        return None

    def _take(self, news: JobNews) -> None:
        registration = trace.get_current_span().get_span_context()
        with suppress(RuntimeError):  # the loop has ended, and with it whoever listens
            self._loop.call_soon_threadsafe(self._hear, news, registration)

    def _hear(self, news: JobNews, registration: SpanContext) -> None:
        news = self._memory.keep_new(news)
        for listener in self._listeners:
            try:
                listener(news, registration)
            except Exception:  # telemetry must never stop what it tells of
                logger.exception("news could not be told", extra={"tenant": news.tenant, "job_id": news.job_id})


class NewsMemory:
    """Remembers facts, so that each is news once: that a run began, that a fire has an outcome, and so on."""

    def __init__(self, *, most: int = REMEMBERED) -> None:
        self._most = most
        self._counts: OrderedDict[Hashable, int] = OrderedDict()

    def keep_new(self, news: JobNews) -> JobNews:
        """Leave out what was told before."""
        registered = news.registered and self._is_new(news, "registered", news.version)
        ledger = (self._keep_new_entry(news, entry) for entry in news.ledger)
        runs = (self._keep_new_run(news, told) for told in news.runs)
        return replace(
            news, registered=registered, ledger=tuple(entry for entry in ledger if entry.count), runs=tuple(runs)
        )

    def _keep_new_entry(self, news: JobNews, entry: LedgerEntry) -> LedgerEntry:
        # Told again, a range may have grown; and its fires may have a run instead.
        more = self._count_new(news, "fire", entry.first, count=entry.count)
        return entry if more == entry.count else entry.model_copy(update={"count": more})

    def _keep_new_run(self, news: JobNews, told: RunNews) -> RunNews:
        run, attempt = told.run, told.attempt
        return replace(
            told,
            begun=told.begun and self._is_new(news, "begun", run.run_id),
            settled=told.settled and self._is_new(news, "fire", run.scheduled_at),
            ended=told.ended and self._is_new(news, "ended", run.run_id),
            attempt=attempt if attempt and self._is_new(news, "attempt", run.run_id, attempt.number) else None,
        )

    def _is_new(self, news: JobNews, *fact: Hashable) -> bool:
        return self._count_new(news, *fact, count=1) == 1

    def _count_new(self, news: JobNews, *fact: Hashable, count: int) -> int:
        key = (news.tenant, news.job_id, *fact)
        before = self._counts.get(key, 0)
        self._counts[key] = max(before, count)
        if len(self._counts) > self._most:
            self._counts.popitem(last=False)
        return max(0, count - before)

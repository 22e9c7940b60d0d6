"""A typed client of Horarium's API: ``Client``, and ``AsyncClient`` for event loops.

    from horarium import Client

    with Client() as client:
        job = client.jobs.create({"name": "send_report", "schedule": "0 9 * * 1", "timezone": "America/New_York"})
        client.jobs.update(job.job_id, {"max_retries": 5}, if_match=job.etag)

Every POST has an idempotency key, the same whenever the client repeats it. What cannot be done raises a ``HorariumError``.
"""

from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import Final, Self, TypeVar

from horarium.client.answer import (
    Answer,
    Attempt,
    Backfill,
    BackfillPreview,
    BulkRedrive,
    Calendar,
    CalendarDay,
    CalendarSummary,
    Change,
    CrowdedJob,
    DeadLetter,
    Downstream,
    ExceededQuota,
    ExportedJob,
    FieldError,
    Fire,
    Forecast,
    ForecastStep,
    Health,
    HeldBy,
    Hold,
    HotSpot,
    Job,
    JobCounts,
    JobSummary,
    LedgerEntry,
    Liveness,
    Pause,
    Preview,
    Problem,
    Quota,
    Readiness,
    RemovedFire,
    Run,
    SchedulerCount,
    Triggered,
)
from horarium.client.body import CalendarBody, HolidaysBody, JobBody, JobPatch, PreviewBody
from horarium.client.call import UNSET, AsyncCalls, Call, IfMatch, Route, Sent, SyncCalls, make_call, query
from horarium.client.error import (
    ApiError,
    Conflict,
    Forbidden,
    HorariumError,
    InProgress,
    Invalid,
    KeyReused,
    NeverFires,
    NotFound,
    PreconditionFailed,
    PreconditionRequired,
    QuotaExceeded,
    ServerError,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
    Unsendable,
)
from horarium.client.operation import (
    BackfillOperations,
    CalendarOperations,
    DeadLetterOperations,
    DownstreamOperations,
    HoldOperations,
    JobOperations,
    RunOperations,
    ServiceOperations,
)
from horarium.client.retry import NO_RETRY, Retry
from horarium.client.sender import TIMEOUT, AsyncSender, SyncSender, make_connection

__all__ = [
    "NO_RETRY",
    "UNSET",
    "Answer",
    "ApiError",
    "AsyncClient",
    "Attempt",
    "Backfill",
    "BackfillPreview",
    "BulkRedrive",
    "Calendar",
    "CalendarBody",
    "CalendarDay",
    "CalendarSummary",
    "Change",
    "Client",
    "Conflict",
    "CrowdedJob",
    "DeadLetter",
    "Downstream",
    "ExceededQuota",
    "ExportedJob",
    "FieldError",
    "Fire",
    "Forbidden",
    "Forecast",
    "ForecastStep",
    "Health",
    "HeldBy",
    "Hold",
    "HolidaysBody",
    "HorariumError",
    "HotSpot",
    "InProgress",
    "Invalid",
    "Job",
    "JobBody",
    "JobCounts",
    "JobPatch",
    "JobSummary",
    "KeyReused",
    "LedgerEntry",
    "Liveness",
    "NeverFires",
    "NotFound",
    "Pause",
    "PreconditionFailed",
    "PreconditionRequired",
    "Preview",
    "PreviewBody",
    "Problem",
    "Quota",
    "QuotaExceeded",
    "Readiness",
    "RemovedFire",
    "Retry",
    "Run",
    "SchedulerCount",
    "ServerError",
    "Triggered",
    "Unauthorized",
    "Unavailable",
    "UnexpectedAnswer",
    "Unreachable",
    "Unsendable",
]

Result = TypeVar("Result")

_DEFAULT_RETRY: Final = Retry()


class _Jobs(JobOperations, SyncCalls): ...


class _Runs(RunOperations, SyncCalls): ...


class _Backfills(BackfillOperations, SyncCalls): ...


class _DeadLetters(DeadLetterOperations, SyncCalls): ...


class _Downstreams(DownstreamOperations, SyncCalls): ...


class _Calendars(CalendarOperations, SyncCalls): ...


class _Holds(HoldOperations, SyncCalls): ...


class Client(ServiceOperations, SyncCalls):
    """The API, for programs without an event loop. Threads may share one; close it, or use it in a ``with`` block.

    ``base_url`` is by default ``HORARIUM_API_URL`` of the environment, else this machine's port 8000; ``api_key`` by default
    ``HORARIUM_API_KEY``. ``timeout`` is for each attempt: to connect, to send, and to wait for the answer.

    Every method raises ``HorariumError``.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: timedelta = TIMEOUT,
        retry: Retry = _DEFAULT_RETRY,
    ) -> None:
        sender = SyncSender(make_connection(base_url, api_key, timeout=timeout, retry=retry))
        super().__init__(sender)
        self._opened = sender
        self.jobs = _Jobs(sender)
        self.runs = _Runs(sender)
        self.backfills = _Backfills(sender)
        self.dead_letters = _DeadLetters(sender)
        self.downstreams = _Downstreams(sender)
        self.calendars = _Calendars(sender)
        self.holds = _Holds(sender)

    def request(
        self,
        method: str,
        path: str,
        answer: type[Result],
        *,
        body: object = UNSET,
        parameters: Mapping[str, object] | None = None,
        idempotency_key: str | None = None,
        if_match: IfMatch = None,
    ) -> Result:
        """Call a route that has no method here yet, such as ``/api/v1/things``; it answers an ``answer``."""
        sent = Sent(body=body, query=query(**(parameters or {})), key=idempotency_key, if_match=if_match)
        return self._sender.send(_call_of(method, path, answer, sent))

    def close(self) -> None:
        """Close all connections."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _AsyncJobs(JobOperations, AsyncCalls): ...


class _AsyncRuns(RunOperations, AsyncCalls): ...


class _AsyncBackfills(BackfillOperations, AsyncCalls): ...


class _AsyncDeadLetters(DeadLetterOperations, AsyncCalls): ...


class _AsyncDownstreams(DownstreamOperations, AsyncCalls): ...


class _AsyncCalendars(CalendarOperations, AsyncCalls): ...


class _AsyncHolds(HoldOperations, AsyncCalls): ...


class AsyncClient(ServiceOperations, AsyncCalls):
    """The same for event loops: calls are awaited, and lists gone through with ``async for``."""

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: timedelta = TIMEOUT,
        retry: Retry = _DEFAULT_RETRY,
    ) -> None:
        sender = AsyncSender(make_connection(base_url, api_key, timeout=timeout, retry=retry))
        super().__init__(sender)
        self._opened = sender
        self.jobs = _AsyncJobs(sender)
        self.runs = _AsyncRuns(sender)
        self.backfills = _AsyncBackfills(sender)
        self.dead_letters = _AsyncDeadLetters(sender)
        self.downstreams = _AsyncDownstreams(sender)
        self.calendars = _AsyncCalendars(sender)
        self.holds = _AsyncHolds(sender)

    async def request(
        self,
        method: str,
        path: str,
        answer: type[Result],
        *,
        body: object = UNSET,
        parameters: Mapping[str, object] | None = None,
        idempotency_key: str | None = None,
        if_match: IfMatch = None,
    ) -> Result:
        """Call a route that has no method here yet, such as ``/api/v1/things``; it answers an ``answer``."""
        sent = Sent(body=body, query=query(**(parameters or {})), key=idempotency_key, if_match=if_match)
        return await self._sender.send(_call_of(method, path, answer, sent))

    async def close(self) -> None:
        """Close all connections."""
        await self._opened.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _call_of(method: str, path: str, answer: type[Result], sent: Sent) -> Call[Result]:
    is_keyed = method == "POST" or sent.key is not None
    is_repeatable = is_keyed or method in ("GET", "PUT")
    return make_call(
        Route(method=method, path=path, answer=answer, is_keyed=is_keyed, is_repeatable=is_repeatable), sent
    )

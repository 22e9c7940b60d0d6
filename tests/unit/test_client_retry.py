"""When a client tries again, and after how long."""

from datetime import timedelta

import pytest

from horarium.client import (
    ApiError,
    Conflict,
    HorariumError,
    InProgress,
    Invalid,
    NotFound,
    PreconditionFailed,
    Problem,
    QuotaExceeded,
    Retry,
    ServerError,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
)
from horarium.client.error import api_error
from horarium.client.retry import decide_wait

RETRY = Retry(attempts=4, base=timedelta(seconds=1), cap=timedelta(seconds=3))
MINUTE = timedelta(minutes=1)


def wait_after(
    error: HorariumError,
    *,
    made: int = 1,
    is_repeatable: bool = True,
    left: timedelta = MINUTE,
    draw: float = 0.5,
    retry: Retry = RETRY,
) -> timedelta | None:
    return decide_wait(retry, error, made=made, is_repeatable=is_repeatable, left=left, draw=draw)


def refused(status: int, *, kind: str = "about:blank", after: float | None = None) -> ApiError:
    asked = None if after is None else timedelta(seconds=after)
    return api_error(Problem(type=kind, status=status, detail="no"), retry_after=asked, request_id=None)


def lost(*, was_sent: bool) -> Unreachable:
    return Unreachable("gone", url="http://127.0.0.1", was_sent=was_sent)


@pytest.mark.parametrize(("made", "bound"), [(1, 1), (2, 2), (3, 3)])
def test_the_wait_is_drawn_below_a_bound_that_doubles_up_to_the_cap(made: int, bound: float) -> None:
    """Full jitter: from nothing on."""
    assert wait_after(refused(503), made=made, draw=0) == timedelta(0)
    assert wait_after(refused(503), made=made, draw=0.5) == timedelta(seconds=bound / 2)


def test_what_the_api_asks_for_comes_on_top() -> None:
    """So that those who were told the same do not come back together."""
    assert wait_after(refused(503, after=5), draw=0.5) == timedelta(seconds=5.5)


def test_there_is_an_end() -> None:
    """By number, and by the deadline: whoever would wait beyond it is told at once."""
    assert wait_after(refused(503), made=4) is None
    assert wait_after(refused(503, after=3600)) is None
    assert wait_after(refused(503), left=timedelta(seconds=0.5)) is None
    patient = Retry(attempts=10_000, base=timedelta(days=1), cap=timedelta(days=2))
    assert wait_after(refused(503), made=9_000, left=timedelta(days=9), draw=1.0, retry=patient) == timedelta(days=2)


@pytest.mark.parametrize(
    ("error", "once", "repeatable"),
    [
        (lost(was_sent=False), True, True),
        (lost(was_sent=True), False, True),
        (refused(502), False, True),
        (refused(503, after=1), False, True),
        (refused(504), False, True),
        (refused(429, after=1), True, True),
        (refused(429), False, False),
        (refused(409, kind="urn:horarium:problem:in-progress", after=1), True, True),
        (refused(409), False, False),
        (refused(400), False, False),
        (refused(401), False, False),
        (refused(404), False, False),
        (refused(412), False, False),
        (refused(422), False, False),
        (refused(500), False, False),
        (UnexpectedAnswer("what?"), False, False),
    ],
)
def test_only_what_may_help_is_tried_and_only_what_is_safe_is_repeated(
    error: HorariumError, once: bool, repeatable: bool
) -> None:
    """What was never carried out may be tried again by everybody; what may have been, only where twice is as good as once."""
    assert (wait_after(error, is_repeatable=False) is not None) is once
    assert (wait_after(error, is_repeatable=True) is not None) is repeatable


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (400, "urn:horarium:problem:invalid-cursor", Invalid),
        (404, "urn:horarium:problem:not-found", NotFound),
        (409, "urn:horarium:problem:conflict", Conflict),
        (409, "urn:horarium:problem:in-progress", InProgress),
        (412, "urn:horarium:problem:revision-mismatch", PreconditionFailed),
        (429, "about:blank", QuotaExceeded),
        (500, "about:blank", ServerError),
        (503, "urn:horarium:problem:unavailable", Unavailable),
        (599, "about:blank", ServerError),
        (418, "urn:horarium:problem:nobody-knows", ApiError),
    ],
)
def test_an_error_has_the_class_of_its_problem(status: int, kind: str, error: type[ApiError]) -> None:
    """One that nobody thought of is an ``ApiError`` all the same."""
    assert type(refused(status, kind=kind)) is error

"""Work that is done again and again goes on, and what goes wrong in it is told."""

import asyncio
import logging
from datetime import timedelta

import pytest

from activities import trouble
from activities.trouble import Trouble
from workflows.error import Unavailable

logger = logging.getLogger("tests.trouble")


def fail(troubles: Trouble, error: Exception, *, text: str = "it failed", job_id: str = "a") -> None:
    """Let a round fail."""
    with troubles.survived(text, job_id=job_id):
        raise error


def test_what_nobody_thought_of_is_told_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Else nobody could mend it."""
    fail(Trouble(logger), KeyError("x"))
    [told] = caplog.records
    assert (told.levelname, told.getMessage(), vars(told)["job_id"]) == ("ERROR", "it failed", "a")
    assert "raise error" in caplog.text


def test_what_is_expected_is_told_in_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """Such as a database that is away."""
    fail(Trouble(logger), Unavailable("the database does not answer"))
    [told] = caplog.records
    assert (told.levelname, vars(told)["error"]) == ("WARNING", "the database does not answer")
    assert "Traceback" not in caplog.text


def test_the_same_is_told_again_only_after_a_while(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another job, with another text or error, it is another trouble."""
    troubles = Trouble(logger)
    for _ in range(100):
        fail(troubles, KeyError("x"))
        fail(troubles, ValueError("x"))
        fail(troubles, KeyError("x"), job_id="b")
        fail(troubles, KeyError("x"), text="it failed here")
    assert len(caplog.records) == 4
    monkeypatch.setattr(trouble, "TOLD_AGAIN_AFTER", timedelta(0))
    impatient = Trouble(logger)
    fail(impatient, KeyError("x"))
    fail(impatient, KeyError("x"))
    assert len(caplog.records) == 6


def test_whatever_goes_wrong_it_does_not_grow() -> None:
    """An error of each of very many jobs is told, and forgotten."""
    troubles = Trouble(logger)
    for number in range(3 * trouble.REMEMBERED):
        fail(troubles, Unavailable("x"), job_id=str(number))
    assert len(troubles._quiet_until) <= trouble.REMEMBERED


def test_a_task_that_is_told_to_end_does() -> None:
    """That is no error."""
    with pytest.raises(asyncio.CancelledError), Trouble(logger).survived("it failed"):
        raise asyncio.CancelledError

"""Of which run a log line speaks."""

import asyncio
import logging
from typing import Any

import pytest
from temporalio import activity

import horarium
from horarium.testing import run_job

FIELDS = {"tenant": "acme", "job_id": "reports", "run_id": "reports:1", "attempt": 2}
RUN: dict[str, Any] = {**FIELDS}

library = logging.getLogger("library")
own = horarium.get_logger("team.jobs")


@activity.defn
async def speak() -> None:
    """Log in every way, from everywhere that the context reaches."""
    horarium.logger.info("by the SDK's logger")
    own.warning("by one of its own", extra={"rows": 7, "attempt": "mine"})
    await asyncio.to_thread(library.info, "by a library")


@activity.defn
def speak_in_thread() -> None:
    """The same, not ``async``."""
    horarium.logger.info("by the SDK's logger")
    own.warning("by one of its own", extra={"rows": 7, "attempt": "mine"})
    library.info("by a library")


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Get the run's fields of a record."""
    return {name: vars(record)[name] for name in FIELDS if name in vars(record)}


@pytest.mark.parametrize("function", [speak, speak_in_thread])
def test_every_line_of_job_code_says_its_run(function: Any, caplog: pytest.LogCaptureFixture) -> None:
    """With the names that the scheduler's logs use; a handler with ``RunFields`` has them of libraries, too."""
    caplog.set_level("INFO")
    caplog.handler.addFilter(horarium.RunFields())
    run_job(function, **RUN).require_success()
    records = [record for record in caplog.records if record.name in ("horarium.job", "team.jobs", "library")]
    assert [record.name for record in records] == ["horarium.job", "team.jobs", "library"]
    assert [fields_of(record) for record in records] == [FIELDS] * 3
    assert vars(records[1])["rows"] == 7
    assert records[1].getMessage() == "by one of its own"


def test_outside_a_run_a_line_is_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """Module code and tests log as well."""
    caplog.handler.addFilter(horarium.RunFields())
    own.warning("started", extra={"rows": 7})
    library.warning("started")
    assert [fields_of(record) for record in caplog.records] == [{}, {}]
    assert vars(caplog.records[0])["rows"] == 7

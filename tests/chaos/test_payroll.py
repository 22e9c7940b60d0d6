"""A payroll whose workers are killed again and again: every employee is paid once, in the books of the bank."""

import os
import random
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from pydantic import JsonValue

from activities.examples_payroll import Bank
from tests.chaos.effect_stage import JOB_WORKERS, Stage, running_stage
from tests.eventually import eventually
from workflows.run import RunStatus

pytestmark = pytest.mark.slow

LONG: Final = os.environ.get("HORARIUM_CHAOS") == "long"
EMPLOYEES: Final = 600 if LONG else 80
KILLS: Final = 25 if LONG else 3
LIMIT: Final = timedelta(minutes=10) if LONG else timedelta(seconds=60)


@pytest.fixture
def stage(tmp_path: Path, postgres_data: Path) -> Iterator[Stage]:
    """Two job workers and all that they need."""
    with running_stage(tmp_path, data=postgres_data) as stage:
        yield stage


@pytest.mark.timeout(900)
async def test_every_employee_is_paid_once_however_often_the_workers_are_killed(stage: Stage, tmp_path: Path) -> None:
    """``kill -9`` of both job workers at random moments of the payroll; the bank honours idempotency keys, and counts all calls.

    An attempt that is lost costs at most one call too many: of the payment that was under way.
    """
    bank = Bank(tmp_path / "bank.sqlite")
    wages = {f"DE{number:03}": 100_000 + number for number in range(EMPLOYEES)}
    employees: JsonValue = [{"id": account, "account": account, "cents": cents} for account, cents in wages.items()]
    payload: JsonValue = {"bank": str(tmp_path / "bank.sqlite"), "employees": employees}
    run_id = await stage.start("pay_salaries", payload, attempts=10 * KILLS)
    chance = random.Random(20260630)

    for kill in range(KILLS):
        paid = len(bank.transfers())
        await eventually(lambda paid=paid: len(bank.transfers()) > paid)  # type: ignore[misc]
        await stage.kill(JOB_WORKERS, after=chance.uniform(0.1, 1.0))
        print(f"kill {kill + 1}: {len(bank.transfers())} of {EMPLOYEES} paid, {len(bank.calls())} calls")

    found = await stage.end_of(run_id, limit=LIMIT)
    assert found.record.run.status is RunStatus.SUCCESS
    assert found.record.run.result == {"paid": EMPLOYEES}
    assert sorted(bank.transfers()) == sorted(wages.items())
    calls, lost = Counter(bank.calls()), len(found.attempts) - 1
    print(f"{EMPLOYEES} employees paid once each, {KILLS} kills, {lost} attempts lost, {calls.total()} calls")
    assert lost >= KILLS, "every kill met the run"
    assert len(calls) == EMPLOYEES, "one key for each"
    assert calls.total() - EMPLOYEES <= lost

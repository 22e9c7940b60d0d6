"""A downstream fails while many runs wait for it: it is left alone, and afterwards every run completes, without a second wave."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from activities.queries import Queries
from tests.chaos.bank import HTTP_ALLOW, Bank, all_ended, most_while_down, open_bank, payment
from tests.chaos.stack import Stack, register
from tests.eventually import eventually
from workflows.run import RunStatus

pytestmark = pytest.mark.slow

LONG = os.environ.get("HORARIUM_CHAOS") == "long"
RUNS = 2000 if LONG else 150
OUTAGE = timedelta(minutes=5) if LONG else timedelta(seconds=25)
OPEN_FOR = 30 if LONG else 3
LONGEST_OPEN = 120 if LONG else 6
RETURN_RATE = 20
COMPLETE_WITHIN = timedelta(seconds=LONGEST_OPEN * 3 + 4 * RUNS / RETURN_RATE + 30)
FAILURES_TO_OPEN = 20
BUDGET_FLOOR = 5
SCHEDULERS = 2


@pytest.fixture
async def bank() -> AsyncIterator[Bank]:
    """The downstream, which is down."""
    async with open_bank() as bank:
        yield bank


@pytest.fixture
async def stack(tmp_path: Path, postgresql_url: str) -> AsyncIterator[Stack]:
    """Two scheduler workers and a job worker."""
    stack = Stack(
        tmp_path,
        database_url=postgresql_url,
        http_allow=HTTP_ALLOW,
        breaker_failures=str(FAILURES_TO_OPEN),
        breaker_open=str(OPEN_FOR),
        breaker_longest_open=str(LONGEST_OPEN),
        retry_budget_floor=str(BUDGET_FLOOR),
        readmission_rate=str(RETURN_RATE),
    )
    try:
        for name, role in (("scheduler-1", "scheduler"), ("scheduler-2", "scheduler"), ("job", "job")):
            await stack.start_worker(name, role=role)
        yield stack
    finally:
        stack.stop()


@pytest.mark.timeout(1200 if LONG else 200)
async def test_a_dead_downstream_is_left_alone_and_every_run_completes(
    stack: Stack, queries: Queries, bank: Bank
) -> None:
    """Attempts while it is down stay within what opens the breakers, the budget and the probes; then all complete."""
    client = await stack.connect()
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=RUNS / 25 + 10)
    names = [f"pay-{number}" for number in range(RUNS)]
    for name in names:
        await register(client, name, payment(bank, due))
    assert datetime.now(UTC) < due, "registered too slowly"
    await asyncio.sleep(max(0.0, (due - datetime.now(UTC)).total_seconds()) + OUTAGE.total_seconds() / 2)
    await stack.kill_and_restart("scheduler-1")
    await asyncio.sleep(OUTAGE.total_seconds() / 2)
    bank.is_down = False

    runs = await eventually(
        lambda: all_ended(queries, names),
        limit=COMPLETE_WITHIN,
        every=timedelta(seconds=2),
    )
    statuses = Counter(run.status for run in runs)
    assert statuses == {RunStatus.SUCCESS: RUNS}, (statuses, Counter(run.reason for run in runs), stack.logs())
    assert Counter(call.run_id for call in bank.accepted()) == {run.run_id: 1 for run in runs}, "each paid once"

    bound = most_while_down(
        processes=SCHEDULERS + 1,
        failures_to_open=FAILURES_TO_OPEN,
        budget_floor=BUDGET_FLOOR,
        outage=OUTAGE,
        open_for=timedelta(seconds=OPEN_FOR),
    )
    print(
        f"\n{RUNS} runs; {len(bank.refused())} calls while down (at most {bound}); after recovery {len(bank.accepted())}, "
        f"at most {bank.most_in_a_second()} in a second"
    )
    assert len(bank.refused()) <= bound
    assert bank.most_in_a_second() <= SCHEDULERS * RETURN_RATE * 3, "no second wave"

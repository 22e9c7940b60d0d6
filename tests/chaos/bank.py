"""A downstream that refuses for as long as a test wants, and writes down who called it, outside of all of Horarium's tables."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from activities.queries import Queries, RunFilter
from tests.http_receiver import Received, answer, receiving
from workflows.job import JobDefinition
from workflows.run import Run
from workflows.schedule import OneOffRule, Schedule
from workflows.target import HttpTarget

BANK: Final = "bank"
"""Its name as a downstream."""

HTTP_ALLOW: Final = "127.0.0.1"
"""What workers have to be allowed, to reach it."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request that came."""

    at: datetime
    run_id: str
    attempt: int
    is_refused: bool


@dataclass(kw_only=True)
class Bank:
    """What is called. Down until it is told otherwise."""

    url: str = ""
    is_down: bool = True
    calls: list[Call] = field(default_factory=list)

    async def receive(self, received: Received, writer: asyncio.StreamWriter) -> None:
        """Write a call down, then answer it."""
        self.calls.append(
            Call(
                at=datetime.now(UTC),
                run_id=received.headers["horarium-run"],
                attempt=int(received.headers["horarium-attempt"]),
                is_refused=self.is_down,
            )
        )
        await answer(503 if self.is_down else 200)(received, writer)

    def refused(self) -> list[Call]:
        """List the calls that came while it was down."""
        return [call for call in self.calls if call.is_refused]

    def accepted(self) -> list[Call]:
        """List the calls that came while it was well."""
        return [call for call in self.calls if not call.is_refused]

    def most_in_a_second(self) -> int:
        """Say how many calls came, at most, in one second after it recovered."""
        return max(Counter(int(call.at.timestamp()) for call in self.accepted()).values())


@asynccontextmanager
async def open_bank() -> AsyncIterator[Bank]:
    """Run it for the length of the block."""
    bank = Bank()
    async with receiving(bank.receive) as receiver:
        bank.url = f"{receiver.url}/payments"
        yield bank


def payment(bank: Bank, at: datetime) -> JobDefinition:
    """A run of its own, that calls the bank."""
    return JobDefinition(
        name="pay",
        schedule=Schedule(rule=OneOffRule(at=at), jitter_window_seconds=0),
        target=HttpTarget(url=bank.url),
        downstream=BANK,
        timeout=timedelta(seconds=10),
        heartbeat_timeout=timedelta(seconds=5),
    )


def most_while_down(
    *, processes: int, failures_to_open: int, budget_floor: int, outage: timedelta, open_for: timedelta
) -> int:
    """Say how many attempts may be sent to it while it is down.

    For each scheduler process, and each that takes the place of one: what opens its breaker, twice as many that are on their
    way meanwhile, and the retry budget. For all of them: the probes.
    """
    in_flight = 2 * failures_to_open
    return processes * (failures_to_open + in_flight + budget_floor) + outage // open_for + 2


async def all_ended(queries: Queries, job_ids: Sequence[str]) -> list[Run]:
    """Every run, once each job has one, and all are final."""
    runs: list[Run] = []
    for job_id in job_ids:
        page = await queries.list_runs("default", job_id, RunFilter(), limit=10)
        runs += [each.record.run for each in page.items]
    open_ones = [run for run in runs if run.finished_at is None]
    assert len(runs) == len(job_ids), f"{len(runs)} runs"
    assert not open_ones, f"{len(open_ones)} runs are open, such as {open_ones[0]}"
    return runs

"""Claims of effects in SQL, on both databases."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import ColumnElement, DateTime, literal, select, text

from activities.database import open_database
from activities.schema import migrate
from horarium.effect import Claim, Claimed, EffectStore, Held, Outcome, Refused, StoreUnavailable, Succeeded
from horarium.effect_sql import CLAIMS, PRUNED_AT_ONCE, SqlEffectStore
from tests.databases import TEMPLATE, PostgresServer
from tests.effect_claims import LEASE, ClaimMachine, claim_of, effect_key
from tests.eventually import eventually

EPOCH = datetime(2026, 6, 8, 12, tzinfo=UTC)


class SettableClock:
    """Stands for the database's clock."""

    def __init__(self) -> None:
        self.now = timedelta()

    def __call__(self, offset: timedelta) -> ColumnElement[datetime]:
        """Write a time as SQL."""
        return literal(EPOCH + self.now + offset, DateTime(timezone=True))


@pytest.fixture
async def stores(database_url: str) -> AsyncIterator[list[SqlEffectStore]]:
    """Those of two processes."""
    stores = [SqlEffectStore(database_url) for _ in range(2)]
    yield stores
    for store in stores:
        await store.close()


@pytest.fixture
async def store(stores: list[SqlEffectStore]) -> SqlEffectStore:
    """That of one."""
    return stores[0]


def test_the_rules_hold_in_any_order_of_events(database_url: str) -> None:
    """Three fences, explicit time: succeeded replays, a live lease holds, a dead one is taken over, a lower fence is refused."""
    clock = SettableClock()
    with asyncio.Runner() as runner:
        store = SqlEffectStore(database_url, clock=clock)

        class SqlMachine(ClaimMachine):
            def ask(self, call: Callable[[EffectStore], Coroutine[Any, Any, Any]]) -> Any:
                clock.now = self.now
                return runner.run(call(store))

        run_state_machine_as_test(SqlMachine, settings=settings(max_examples=60, stateful_step_count=25, deadline=None))
        runner.run(store.close())


@pytest.mark.parametrize("fences", [[1] * 50, list(range(50)), list(range(50, 0, -1))])
async def test_of_50_parallel_claims_one_wins(stores: list[SqlEffectStore], fences: list[int]) -> None:
    """From two processes, whatever the fences; the others are told to wait, or that they were overtaken."""
    claims = [claim_of(fence) for fence in fences]
    answers = await asyncio.gather(
        *(stores[number % 2].claim(claim, lease=LEASE) for number, claim in enumerate(claims))
    )
    assert sum(answer == Claimed() for answer in answers) == 1
    assert all(isinstance(answer, (Claimed, Held, Refused)) for answer in answers)
    [winner] = [claim for claim, answer in zip(claims, answers, strict=True) if answer == Claimed()]
    completed = await asyncio.gather(*(stores[0].complete(claim, Outcome(result="1")) for claim in claims))
    assert [claim for claim, recorded in zip(claims, completed, strict=True) if recorded] == [winner]


async def test_a_dead_lease_is_taken_over_by_one(stores: list[SqlEffectStore]) -> None:
    """By the database's own clock. The dead holder, should it be alive after all, can change nothing any more."""
    dead = claim_of(1)
    assert await stores[0].claim(dead, lease=timedelta(milliseconds=300)) == Claimed()
    held = await stores[1].claim(claim_of(2), lease=LEASE)
    assert isinstance(held, Held)
    assert timedelta() < held.lease_left <= timedelta(milliseconds=300)

    async def winners() -> int:
        answers = await asyncio.gather(*(stores[number % 2].claim(claim_of(2), lease=LEASE) for number in range(20)))
        return sum(answer == Claimed() for answer in answers)

    assert await eventually(winners) == 1
    assert not await stores[0].renew(dead, lease=LEASE)
    assert not await stores[0].complete(dead, Outcome(result="1"))
    assert not await stores[0].release(dead)
    assert await stores[0].claim(dead, lease=LEASE) == Refused()


async def test_the_row_tells_who_held_it_and_how_often_it_was_claimed(store: SqlEffectStore, database_url: str) -> None:
    """For operators: more than one claim means that the effect may have been called more than once."""
    first, second = claim_of(1), replace(claim_of(2), worker="other")
    await store.claim(first, lease=LEASE)
    await store.claim(first, lease=LEASE)
    await store.release(first)
    await store.claim(second, lease=LEASE)
    await store.complete(second, Outcome(result='{"id":"é\\u0000"}'))
    await store.claim(claim_of(3), lease=LEASE)
    row = await row_of(first, database_url)
    assert (row.state, row.claims, row.fence, row.worker) == ("succeeded", 2, 3, "other")
    assert (row.result, row.problem) == ('{"id":"é\\u0000"}', None)


@pytest.mark.parametrize("name", ["pay:ü", "🕰", "'; DROP TABLE effect_claims", "%s :a {b}", "x" * 200])
async def test_any_name_is_a_name(store: SqlEffectStore, name: str) -> None:
    """Names come from data. Case counts, as everywhere."""
    assert await store.claim(claim_of(1, key=effect_key(name)), lease=LEASE) == Claimed()
    assert isinstance(await store.claim(claim_of(1, key=effect_key(name)), lease=LEASE), Held)
    assert await store.claim(claim_of(1, key=effect_key(name[:-1] + "Q")), lease=LEASE) == Claimed()


@pytest.mark.parametrize("other", [{"tenant": "x"}, {"job_id": "Payroll"}, {"idempotency_key": "payroll:2"}])
async def test_tenants_jobs_and_keys_have_claims_of_their_own(store: SqlEffectStore, other: dict[str, str]) -> None:
    """SB-149: the same name elsewhere is another effect."""
    assert await store.claim(claim_of(1), lease=LEASE) == Claimed()
    assert await store.claim(claim_of(1, key=replace(effect_key(), **other)), lease=LEASE) == Claimed()


async def test_claims_are_pruned_when_nobody_has_asked_for_long_enough(database_url: str) -> None:
    """In small steps. A claim that is asked for again counts anew from then."""
    clock = SettableClock()
    store = SqlEffectStore(database_url, clock=clock)
    for number in range(5):
        await store.claim(claim_of(1, key=effect_key(str(number))), lease=LEASE)
    clock.now = timedelta(days=60)
    await store.claim(claim_of(2, key=effect_key("0")), lease=LEASE)
    assert await store.prune(older_than=timedelta(days=90)) == 0
    clock.now = timedelta(days=91)
    assert await store.prune(older_than=timedelta(days=90)) == 4
    assert await store.claim(claim_of(1, key=effect_key("0")), lease=LEASE) == Refused()
    await store.close()


async def test_a_large_store_is_pruned_to_the_end(database_url: str) -> None:
    """However many claims are old."""
    store = SqlEffectStore(database_url)
    await store.claim(claim_of(1), lease=LEASE)
    engine = open_database(database_url)
    async with engine.begin() as connection:
        row = (await connection.execute(select(CLAIMS))).mappings().one()
        copies = [dict(row) | {"name": str(number)} for number in range(2 * PRUNED_AT_ONCE)]
        await connection.execute(CLAIMS.insert(), copies)
    await engine.dispose()
    assert await store.prune(older_than=timedelta(seconds=-1)) == 2 * PRUNED_AT_ONCE + 1
    await store.close()


async def test_in_a_database_of_a_teams_own_the_store_makes_its_table(empty_database_url: str) -> None:
    """When it is first used, by however many workers at once."""
    stores = [SqlEffectStore(empty_database_url) for _ in range(8)]
    answers = await asyncio.gather(*(store.claim(claim_of(1), lease=LEASE) for store in stores))
    assert sum(answer == Claimed() for answer in answers) == 1
    for store in stores:
        await store.close()


async def test_a_team_that_comes_before_the_migrations_does_not_stop_them(empty_database_url: str) -> None:
    """What it has claimed stays."""
    store = SqlEffectStore(empty_database_url)
    claim = claim_of(1)
    await store.claim(claim, lease=LEASE)
    await migrate(empty_database_url)
    assert await store.complete(claim, Outcome(result="1"))
    await store.close()


@pytest.mark.parametrize("fault", ["killed", "frozen"])
async def test_a_database_that_is_away_is_said_so_and_back_when_it_is(
    postgres_of_its_own: PostgresServer, fault: str
) -> None:
    """A step that nobody has answered may be repeated: it is the same step."""
    store = SqlEffectStore(postgres_of_its_own.url(TEMPLATE))
    claim = claim_of(1)
    assert await store.claim(claim, lease=LEASE) == Claimed()
    with away(postgres_of_its_own, fault), pytest.raises(StoreUnavailable):
        await store.complete(claim, Outcome(result="1"))
    assert await eventually(lambda: recorded(store, claim))
    assert await store.claim(claim_of(2), lease=LEASE) == Succeeded(Outcome(result="1"))
    await store.close()


async def test_the_store_is_fast_enough_not_to_be_noticed(store: SqlEffectStore) -> None:
    """An effect costs two statements; a hundred of them at once take no more than a moment."""
    claims = [claim_of(1, key=effect_key(str(number))) for number in range(100)]
    async with asyncio.timeout(5):
        await asyncio.gather(*(store.claim(claim, lease=LEASE) for claim in claims))
        await asyncio.gather(*(store.complete(claim, Outcome(result="1")) for claim in claims))


@contextmanager
def away(server: PostgresServer, fault: str) -> Iterator[None]:
    """Take a server away meanwhile."""
    server.kill() if fault == "killed" else server.freeze()
    try:
        yield
    finally:
        server.start() if fault == "killed" else server.thaw()


async def recorded(store: SqlEffectStore, claim: Claim) -> bool:
    """Whether an effect could be completed."""
    try:
        return await store.complete(claim, Outcome(result="1"))
    except StoreUnavailable:
        return False


async def row_of(claim: Claim, url: str) -> Any:
    """Look at a claim as an operator does."""
    engine = open_database(url)
    async with engine.connect() as connection:
        query = text("SELECT * FROM effect_claims WHERE name = :name")
        row = (await connection.execute(query, {"name": claim.key.name})).one()
    await engine.dispose()
    return row

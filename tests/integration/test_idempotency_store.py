"""Claims of idempotency keys, on both databases."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from activities.database import open_database
from activities.idempotency_store import (
    HELD,
    KEPT,
    Answered,
    Claimed,
    IdempotencyStore,
    InProgress,
    OtherRequest,
    RequestKey,
    StoredResponse,
)

NOW = datetime(2026, 6, 8, 12, tzinfo=UTC)
REQUEST = RequestKey(tenant="default", scope="POST /jobs", key="k", body_hash="a" * 64)
RESPONSE = StoredResponse(
    status=201, headers={"Location": "/api/v1/jobs/ä", "ETag": '"1"'}, body=b'{"job_id":"\xc3\xa4"}\x00'
)


@pytest.fixture
async def stores(database_url: str) -> AsyncIterator[list[IdempotencyStore]]:
    """Those of two processes."""
    engines = [open_database(database_url) for _ in range(2)]
    yield [IdempotencyStore(engine) for engine in engines]
    for engine in engines:
        await engine.dispose()


@pytest.fixture
async def store(stores: list[IdempotencyStore]) -> IdempotencyStore:
    """That of one."""
    return stores[0]


async def _claimed(store: IdempotencyStore, request: RequestKey = REQUEST, *, now: datetime = NOW) -> Claimed:
    claim = await store.claim(request, now=now)
    assert isinstance(claim, Claimed)
    return claim


async def test_a_repeated_request_gets_the_answer_of_the_first(store: IdempotencyStore) -> None:
    """Byte for byte, headers included; and as long as it is kept."""
    claim = await _claimed(store)
    assert await store.claim(REQUEST, now=NOW) == InProgress()
    assert await store.complete(claim, RESPONSE)
    assert await store.claim(REQUEST, now=NOW + KEPT) == Answered(RESPONSE)


async def test_a_key_belongs_to_one_body(store: IdempotencyStore) -> None:
    """SB-112: in progress or answered, another body is told so."""
    other = RequestKey(tenant="default", scope="POST /jobs", key="k", body_hash="b" * 64)
    claim = await _claimed(store)
    assert await store.claim(other, now=NOW) == OtherRequest()
    await store.complete(claim, RESPONSE)
    assert await store.claim(other, now=NOW) == OtherRequest()


async def test_tenants_and_routes_have_keys_of_their_own(store: IdempotencyStore) -> None:
    """SB-149: the same key does not return another tenant's data."""
    await store.complete(await _claimed(store), RESPONSE)
    for tenant, scope, key in (
        ("x", "POST /jobs", "k"),
        ("default", "POST /jobs/a/trigger", "k"),
        ("default", "POST /jobs", "K"),
    ):
        await _claimed(store, RequestKey(tenant=tenant, scope=scope, key=key, body_hash=REQUEST.body_hash))


@pytest.mark.parametrize("round_number", range(3))
async def test_of_50_parallel_requests_one_is_carried_out(stores: list[IdempotencyStore], round_number: int) -> None:
    """SB-112, from two processes: one claim, everybody else is told that it is in progress, nobody gets an error."""
    claims = await asyncio.gather(*(stores[number % 2].claim(REQUEST, now=NOW) for number in range(50)))
    assert sum(isinstance(claim, Claimed) for claim in claims) == 1
    assert sum(isinstance(claim, InProgress) for claim in claims) == 49


async def test_a_released_key_can_be_claimed_again(store: IdempotencyStore) -> None:
    """With another body too: nothing was done under it."""
    assert await store.release(await _claimed(store))
    await _claimed(store, RequestKey(tenant="default", scope="POST /jobs", key="k", body_hash="b" * 64))


async def test_a_key_that_is_left_is_claimed_at_once_by_the_same_request_only(stores: list[IdempotencyStore]) -> None:
    """Another body is told that it is not its own: what became of the first may yet be found. Whoever left it has it no more."""
    left = await _claimed(stores[0])
    assert await stores[0].leave(left)
    other = RequestKey(tenant="default", scope="POST /jobs", key="k", body_hash="b" * 64)
    assert await stores[1].claim(other, now=NOW) == OtherRequest()
    claims = await asyncio.gather(*(stores[number % 2].claim(REQUEST, now=NOW) for number in range(20)))
    [taken] = [claim for claim in claims if isinstance(claim, Claimed)]
    assert not await stores[0].leave(left)
    assert await stores[1].complete(taken, RESPONSE)
    assert await stores[0].claim(REQUEST, now=NOW) == Answered(RESPONSE)


async def test_a_claim_left_by_a_crashed_process_is_taken_over_by_one(stores: list[IdempotencyStore]) -> None:
    """After a while; the dead one, should it be alive after all, can no longer complete or release it."""
    dead = await _claimed(stores[0])
    assert await stores[1].claim(REQUEST, now=NOW + HELD - timedelta(seconds=1)) == InProgress()
    later = NOW + HELD
    claims = await asyncio.gather(*(stores[number % 2].claim(REQUEST, now=later) for number in range(20)))
    taken = [claim for claim in claims if isinstance(claim, Claimed)]
    assert len(taken) == 1
    assert not await stores[0].complete(dead, RESPONSE)
    assert not await stores[0].release(dead)
    assert await stores[1].complete(taken[0], RESPONSE)
    assert await stores[0].claim(REQUEST, now=later) == Answered(RESPONSE)


async def test_a_key_used_again_after_a_day_is_a_new_request(store: IdempotencyStore) -> None:
    """SB-068: the lifetime of a key is documented; pruned or not makes no difference."""
    await store.complete(await _claimed(store), RESPONSE)
    later = NOW + KEPT + timedelta(seconds=1)
    claim = await _claimed(store, now=later)
    assert await store.claim(REQUEST, now=later) == InProgress()
    assert await store.release(claim)


async def test_pruning_forgets_what_is_older_than_a_day(store: IdempotencyStore) -> None:
    """And nothing else."""
    for number in range(3):
        await _claimed(
            store, RequestKey(tenant="t", scope="s", key=str(number), body_hash=""), now=NOW + number * KEPT / 2
        )
    assert await store.prune(now=NOW + KEPT) == 0
    assert await store.prune(now=NOW + KEPT + timedelta(seconds=1)) == 1
    assert await store.prune(now=NOW + 3 * KEPT) == 2


async def test_a_backlog_of_old_keys_is_forgotten_in_batches(
    store: IdempotencyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One statement for all of them would be ended by its limit, and nothing forgotten, each time more."""
    monkeypatch.setattr("activities.pruning.BATCH", 4)
    for number in range(9):
        await _claimed(store, RequestKey(tenant="t", scope="s", key=str(number), body_hash=""))
    later = NOW + KEPT + timedelta(seconds=1)
    claim = await _claimed(store, RequestKey(tenant="t", scope="s", key="9", body_hash=""), now=later)
    assert await store.prune(now=later) == 9
    assert await store.release(claim)


async def test_keys_that_no_database_holds_are_keys_all_the_same(store: IdempotencyStore) -> None:
    """SB-112: a key is the caller's text."""
    for key in ("\x00", "", "ü" * 255, "🕰", "'; DROP TABLE jobs"):
        request = RequestKey(tenant="default", scope="POST /jobs", key=key, body_hash="")
        assert await store.complete(await _claimed(store, request), RESPONSE)
        assert await store.claim(request, now=NOW) == Answered(RESPONSE)

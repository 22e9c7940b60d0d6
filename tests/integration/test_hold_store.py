"""Holds in SQL, on both databases: which are in force, over which jobs, and who has not been told."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from activities.database import open_database
from activities.hold_store import HoldStore, StoredHold, Untold
from activities.mirror_writer import MirrorWriter, WriterOptions
from activities.queries import Queries
from tests.records import NOON, job_record, minute
from workflows.job import Hold, JobDefinition, JobRecord, Lifecycle, MirrorBatch, PausedFires

FINANCE = {"team": "finance"}


class Desk:
    """A store and the mirror beside it."""

    def __init__(self, url: str) -> None:
        self.engine = open_database(url)
        self.holds = HoldStore(self.engine)
        self.queries = Queries(self.engine)
        self._writer = MirrorWriter(url, options=WriterOptions(budget=timedelta(seconds=10)))
        self._version = 1

    async def write(self, job_id: str, labels: dict[str, str], *holds: Hold, tenant: str = "default") -> JobRecord:
        """Let the mirror know a job."""
        self._version += 1
        definition = JobDefinition(name=job_id, labels=labels)
        record = job_record(
            job_id,
            tenant=tenant,
            version=self._version,
            revision=self._version,
            definition=definition,
            holds=holds,
        )
        await self._writer.write(MirrorBatch(job=record))
        return record

    async def untold(self, stored: StoredHold, *, at: int = 0) -> list[Untold]:
        """List who has not been told at a minute."""
        found = await self.holds.find_untold(stored, now=minute(at), limit=100)
        assert await self.holds.count_untold(stored, now=minute(at)) == len(found)
        return found

    async def close(self) -> None:
        """Let go of the database."""
        await self._writer.close()
        await self.holds.close()
        await self.queries.close()
        await self.engine.dispose()


@pytest.fixture
async def desk(database_url: str) -> AsyncIterator[Desk]:
    """An empty database."""
    desk = Desk(database_url)
    yield desk
    await desk.close()


def hold(
    hold_id: str = "h_one", selector: dict[str, str] | None = None, *, tenant: str = "default", until: int | None = None
) -> StoredHold:
    """A hold from minute 0 on."""
    end = None if until is None else minute(until)
    carried = Hold(hold_id=hold_id, at=NOON, reason="r", by="ops", until=end)
    return StoredHold(tenant=tenant, hold=carried, selector=FINANCE if selector is None else selector)


async def test_a_hold_is_kept_as_it_was_asked_for_first(desk: Desk) -> None:
    """A repeated request finds what it did before."""
    first = await desk.holds.add(hold(until=60))
    assert first == hold(until=60)
    again = await desk.holds.add(hold(until=90))
    assert again == first == await desk.holds.find("default", "h_one")
    assert await desk.holds.find("default", "h_two") is None
    assert await desk.holds.find("other", "h_one") is None


async def test_the_jobs_to_be_told_are_those_that_are_not_as_the_hold_says(desk: Desk) -> None:
    """Those that lack it, and those that carry it and have other labels by now; of others, of other tenants, none."""
    stored = await desk.holds.add(hold())
    await desk.write("lacks", FINANCE | {"env": "prod"})
    await desk.write("carries", FINANCE, stored.hold)
    await desk.write("carries-another", FINANCE, Hold(hold_id="h_other", at=NOON))
    await desk.write("moved", {"team": "ops"}, stored.hold)
    await desk.write("not-its-own", {"team": "ops"})
    await desk.write("unlabelled", {})
    await desk.write("lacks", FINANCE, tenant="acme")
    expected = [Untold("carries-another", True), Untold("lacks", True), Untold("moved", False)]
    assert await desk.untold(stored) == expected
    spread = await desk.holds.find_spread(stored)
    assert (spread.jobs, spread.held, spread.job_ids) == (3, 2, ("carries", "carries-another", "lacks"))
    rest = await desk.holds.find_untold(stored, now=NOON, after="carries-another", limit=1)
    assert rest == [Untold("lacks", True)]


async def test_one_without_labels_is_over_every_job_that_fires(desk: Desk) -> None:
    """Deleted and completed ones need not be told."""
    stored = await desk.holds.add(hold(selector={}))
    await desk.write("a", {})
    await desk.write("b", FINANCE)
    record = await desk.write("c", {})
    gone = record.model_copy(update={"lifecycle": Lifecycle.DELETED, "version": record.version + 1})
    await desk._writer.write(MirrorBatch(job=gone))
    assert await desk.untold(stored) == [Untold("a", True), Untold("b", True)]


async def test_after_its_release_those_that_carry_it_are_told_and_after_its_end_nobody(desk: Desk) -> None:
    """Jobs end what has an end by themselves."""
    stored = await desk.holds.add(hold(until=60))
    await desk.write("carries", FINANCE, stored.hold)
    await desk.write("lacks", FINANCE)
    assert await desk.untold(stored, at=59) == [Untold("lacks", True)]
    assert await desk.untold(stored, at=60) == []
    assert stored.is_expired(now=minute(60))
    released = await desk.holds.release("default", "h_one", catch_up=PausedFires.APPLY, now=minute(30))
    assert released is not None
    assert (released.released_at, released.hold.catch_up) == (minute(30), PausedFires.APPLY)
    assert await desk.untold(released, at=30) == [Untold("carries", False)]
    again = await desk.holds.release("default", "h_one", catch_up=PausedFires.NONE, now=minute(40))
    assert again == released
    assert await desk.holds.release("default", "never", catch_up=None, now=minute(40)) is None


async def test_a_job_that_carries_what_was_released_long_ago_is_found_and_the_hold_kept_for_it(desk: Desk) -> None:
    """It was away when it was released, for years, and is there again; what no job carries, or a deleted one, is forgotten."""
    years = 5 * 366 * 24 * 60
    stored, other = await desk.holds.add(hold()), await desk.holds.add(hold("h_other"))
    in_force = await desk.holds.add(hold("h_in_force"))
    await desk.holds.add(hold("h_theirs", tenant="acme"))
    await desk.write("away", FINANCE, stored.hold, in_force.hold, Hold(hold_id="h_theirs", at=NOON))
    record = await desk.write("gone", FINANCE, other.hold)
    deleted = record.model_copy(update={"lifecycle": Lifecycle.DELETED, "version": record.version + 1})
    await desk._writer.write(MirrorBatch(job=deleted))
    for tenant, hold_id in (("default", "h_one"), ("default", "h_other"), ("acme", "h_theirs")):
        await desk.holds.release(tenant, hold_id, catch_up=None, now=minute(1))
    assert await desk.holds.list_unfinished(now=minute(years), released_after=minute(years - 1)) == [in_force]
    assert await desk.holds.prune(before=minute(years)) == 2
    [found] = await desk.holds.list_carried()
    assert found.hold == stored.hold
    assert await desk.untold(found, at=years) == [Untold("away", False)]
    await desk.write("away", FINANCE)
    assert await desk.holds.list_carried() == []
    assert await desk.holds.prune(before=minute(years)) == 1


async def test_what_has_ended_by_itself_is_not_released_afterwards(desk: Desk) -> None:
    """It is over, and stays as it is."""
    await desk.holds.add(hold(until=60))
    found = await desk.holds.release("default", "h_one", catch_up=PausedFires.APPLY, now=minute(61))
    assert found == hold(until=60)


async def test_a_registration_finds_the_holds_over_it(desk: Desk) -> None:
    """Those in force, of its tenant, with all their labels among its own; the oldest first."""
    later = Hold(hold_id="h_a_later", at=minute(1), reason="r", by="ops")
    await desk.holds.add(StoredHold(tenant="default", hold=later, selector={}))
    await desk.holds.add(hold())
    await desk.holds.add(hold("h_two", FINANCE | {"env": "prod"}))
    await desk.holds.add(hold("h_short", until=5))
    await desk.holds.add(hold("h_theirs", tenant="acme"))

    async def over(labels: dict[str, str], *, at: int = 10) -> list[str]:
        return [each.hold_id for each in await desk.holds.holds_over("default", labels, now=minute(at))]

    assert await over({}) == ["h_a_later"]
    assert await over(FINANCE) == ["h_one", "h_a_later"]
    assert await over(FINANCE, at=2) == ["h_one", "h_short", "h_a_later"]
    assert await over(FINANCE | {"env": "prod", "x": "y"}) == ["h_one", "h_two", "h_a_later"]


async def test_holds_are_listed_page_by_page_and_forgotten_when_they_are_old(desk: Desk) -> None:
    """The newest first; in force, over, or all."""
    for number in range(5):
        carried = Hold(hold_id=f"h_{number}", at=minute(number), until=minute(10 + number) if number < 2 else None)
        await desk.holds.add(StoredHold(tenant="default", hold=carried))

    async def ids(in_force: bool | None) -> list[str]:
        found, cursor = [], None
        while True:
            page = await desk.holds.list_holds("default", in_force=in_force, now=minute(10), cursor=cursor, limit=2)
            found += [each.hold.hold_id for each in page.items]
            if (cursor := page.next) is None:
                return found

    assert await ids(True) == ["h_4", "h_3", "h_2", "h_1"]
    assert await ids(False) == ["h_0"]
    assert await ids(None) == ["h_4", "h_3", "h_2", "h_1", "h_0"]
    assert await desk.holds.prune(before=minute(11)) == 1
    assert await ids(None) == ["h_4", "h_3", "h_2", "h_1"]


async def test_a_job_is_read_with_its_holds_in_their_order(desk: Desk) -> None:
    """As its workflow told them."""
    holds = (Hold(hold_id="h_z", at=NOON, reason="first"), Hold(hold_id="h_a", at=minute(1), until=minute(5)))
    await desk.write("job", {}, *holds)
    found = await desk.queries.get_job("default", "job")
    assert found is not None
    assert found.holds == holds

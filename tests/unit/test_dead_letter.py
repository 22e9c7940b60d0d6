"""Bulk redrives: rounds over the letters that are left, at a rate, and what does not stop them. Pure but for its clock."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.testing import ActivityEnvironment

from activities.redrive import BulkRedriver, Redrive
from tests.records import minute, run_record
from workflows.dead_letter import BulkProgress, BulkRequest, DeadLetterFilter, LetterPlace, end_round, note_redriven
from workflows.error import Busy, Conflict, Unavailable
from workflows.job import RunRecord
from workflows.run import RunStatus

FAST = 600_000.0


@dataclass
class Letters:
    """Dead letters, of two jobs in turn, and what becomes of each that is redriven."""

    count: int
    answer: Callable[[str, int], None] = lambda run_id, asked: None
    """Raises what the job answers; ``asked`` counts the questions about this run."""

    redriven: list[str] = field(default_factory=list)
    asked: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.letters = [
            run_record(f"job-{n % 2}", at=minute(n), status=RunStatus.DEAD, finished_at=minute(n))
            for n in range(self.count)
        ]

    async def read_dead_letters(
        self, tenant: str, chosen: DeadLetterFilter, *, after: LetterPlace | None = None, limit: int = 100
    ) -> list[RunRecord]:
        """As the mirror does: those that are left, the oldest first."""
        left = [each for each in self.letters if each.run.run_id not in self.redriven]
        if after is not None:
            left = [
                each for each in left if (each.run.finished_at, each.run.run_id) > (after.finished_at, after.run_id)
            ]
        return left[:limit]

    async def redrive(self, run_id: str, *, tenant: str) -> Redrive:
        """As the job does."""
        self.asked[run_id] = self.asked.get(run_id, 0) + 1
        self.answer(run_id, self.asked[run_id])
        self.redriven.append(run_id)
        return Redrive(run_id=f"again-{run_id}", is_new=True)


async def chunk(letters: Letters, progress: BulkProgress | None = None, **fields: object) -> BulkProgress:
    """Let the activity work once."""
    request = BulkRequest.model_validate(
        {"tenant": "default", "rate_per_minute": FAST, "progress": progress or BulkProgress()} | fields
    )
    redriver = BulkRedriver(queries=letters, redriver=letters)  # type: ignore[arg-type]
    return await ActivityEnvironment().run(redriver.redrive_many, request)


async def test_every_letter_is_redriven_once_the_oldest_first() -> None:
    """More than a page of them."""
    letters = Letters(250)
    done = await chunk(letters, limit=1_000)
    assert (done.is_done, done.redriven, done.deferred, done.failed) == (True, 250, 0, 0)
    assert letters.redriven == [each.run.run_id for each in letters.letters]


async def test_the_limit_ends_it() -> None:
    """The newest are left."""
    letters = Letters(10)
    done = await chunk(letters, limit=4)
    assert (done.is_done, done.redriven) == (True, 4)
    assert letters.redriven == [each.run.run_id for each in letters.letters[:4]]


async def test_letters_of_a_busy_job_are_left_for_the_next_round() -> None:
    """It is asked once a chunk; the other job's go on. A round that leaves none is the last."""

    def answer(run_id: str, asked: int) -> None:
        if run_id.startswith("job-0") and asked == 1:
            raise Busy("enough")

    letters = Letters(10, answer)
    first = await chunk(letters)
    assert (first.is_done, first.redriven, first.rounds, first.place) == (False, 5, 1, None)
    assert sum(letters.asked.values()) == 6
    progress = first
    for _ in range(10):
        progress = await chunk(letters, progress)
        if progress.is_done:
            break
    assert (progress.is_done, progress.redriven) == (True, 10)


async def test_what_cannot_be_redriven_does_not_hold_up_the_others() -> None:
    """It is counted, and the last reason is told."""

    def answer(run_id: str, asked: int) -> None:
        if run_id.startswith("job-1"):
            raise Conflict("the job's workflow is not there")

    done = await chunk(Letters(6, answer))
    assert (done.is_done, done.redriven, done.failed) == (True, 3, 3)
    assert "is not there" in (done.last_error or "")


async def test_what_is_away_is_waited_for_and_nothing_is_passed_over() -> None:
    """Temporal or the database: the letter that was being asked for is the next one."""

    def answer(run_id: str, asked: int) -> None:
        if run_id.startswith("job-1") and asked == 1:
            raise Unavailable("the database does not answer")

    letters = Letters(2, answer)
    first = await chunk(letters)
    assert (first.is_done, first.redriven) == (False, 1)
    assert first.trouble == "the database does not answer"
    done = await chunk(letters, first)
    assert (done.is_done, done.redriven, done.trouble) == (True, 2, None)


async def test_a_slow_rate_is_kept_without_holding_a_worker() -> None:
    """Where the next redrive is far off, the activity ends and says when to go on."""
    before = datetime.now(UTC)
    progress = await chunk(Letters(5), rate_per_minute=1)
    assert (progress.redriven, progress.is_done) == (1, False)
    assert progress.next_at is not None
    assert progress.next_at >= before + timedelta(seconds=60)


async def test_it_goes_on_from_its_last_heartbeat_after_the_death_of_its_worker() -> None:
    """What it has counted is not lost."""
    letters = Letters(4)
    environment = ActivityEnvironment()
    told: list[BulkProgress] = []
    environment.on_heartbeat = lambda *details: told.append(details[0])
    redriver = BulkRedriver(queries=letters, redriver=letters)  # type: ignore[arg-type]
    await environment.run(redriver.redrive_many, BulkRequest(rate_per_minute=FAST, limit=2))
    assert [each.redriven for each in told] == [1, 2]
    again = ActivityEnvironment()
    again.info = type(again.info)(**{**vars(again.info), "heartbeat_details": [told[0].model_dump(mode="json")]})
    done = await again.run(redriver.redrive_many, BulkRequest(rate_per_minute=FAST, limit=1_000))
    assert done.redriven == 1 + 2


@pytest.mark.parametrize(("deferred", "is_done"), [(0, True), (3, False)])
def test_a_round_that_has_left_letters_is_followed_by_another(deferred: int, is_done: bool) -> None:
    """From the oldest on; what failed is tried again then, and counted then."""
    ended = end_round(BulkProgress(deferred=deferred, failed=2, place=LetterPlace(run_id="x")))
    assert ended.is_done is is_done
    if not is_done:
        assert (ended.place, ended.deferred, ended.failed) == (None, 0, 0)


def test_the_limit_is_exact() -> None:
    """The redrive that reaches it is the last."""
    assert not note_redriven(BulkProgress(redriven=3), limit=5).is_done
    assert note_redriven(BulkProgress(redriven=4), limit=5).is_done

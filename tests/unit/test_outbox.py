"""Records on their way: newest of each run and attempt, every ledger entry, versions that only rise."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from tests.records import NOON, minute
from workflows.job import JobState, LedgerEntry, MirrorBatch
from workflows.outbox import (
    highest_version,
    is_empty,
    record_count,
    sealed,
    with_attempt,
    with_ledger,
    with_records,
    with_run,
    without,
)
from workflows.run import Attempt, Outcome, Run, RunStatus


def run(number: int, status: RunStatus = RunStatus.PENDING) -> Run:
    """A run of a minute."""
    return Run(
        run_id=f"r{number}", scheduled_at=minute(number), target_at=minute(number), created_at=NOON, status=status
    )


def attempt(number: int) -> Attempt:
    """An attempt of run 1."""
    return Attempt(run_id="r1", scheduled_at=minute(1), number=number, dispatched_at=NOON)


def entry(number: int) -> LedgerEntry:
    """A skipped fire."""
    return LedgerEntry(first=minute(number), last=minute(number), outcome=Outcome.SKIPPED)


def test_of_a_run_only_its_newest_state_is_sent() -> None:
    """However often it changed while the mirror was away."""
    state = with_run(with_run(with_run(JobState(), run(1)), run(2)), run(1, RunStatus.SUCCESS))
    assert [(each.run.run_id, each.run.status, each.version) for each in state.outbox.runs] == [
        ("r2", RunStatus.PENDING, 2),
        ("r1", RunStatus.SUCCESS, 3),
    ]


def test_every_attempt_and_every_entry_is_sent() -> None:
    """They are facts, not states."""
    state = with_attempt(with_attempt(with_attempt(JobState(), attempt(1)), attempt(2)), attempt(2))
    state = with_ledger(with_ledger(with_ledger(state, (entry(1), entry(2))), ()), (entry(3),))
    assert [(each.attempt.number, each.version) for each in state.outbox.attempts] == [(1, 1), (2, 3)]
    assert [(each.entry.first, each.version) for each in state.outbox.ledger] == [
        (minute(1), 4),
        (minute(2), 4),
        (minute(3), 5),
    ]


def test_the_jobs_own_row_is_made_when_the_rest_is_sent() -> None:
    """From the state of that moment, above everything that is sent with it; without it there is nothing unsent."""
    state = with_run(JobState(job_id="j", registered_at=NOON, high_water=NOON), run(1))
    assert state.outbox.job is None
    assert is_empty(MirrorBatch(job=sealed(state).outbox.job))
    sent = sealed(state).outbox
    assert sent.job is not None
    assert (sent.job.version, highest_version(sent), record_count(sent)) == (2, 2, 2)


def test_what_was_made_while_the_rest_was_sent_stays() -> None:
    """Confirmation takes out what was confirmed."""
    state = sealed(with_run(JobState(), run(1)))
    sent = state.outbox
    state = with_run(with_run(state, run(2)), run(1, RunStatus.RUNNING))
    left = without(state.outbox, sent)
    assert [each.run.run_id for each in left.runs] == ["r2", "r1"]
    assert left.job is None


def test_newer_records_take_the_place_of_older_ones() -> None:
    """As a detached run keeps its own."""
    older = with_attempt(with_run(JobState(), run(1)), attempt(1)).outbox
    newer = with_attempt(with_run(JobState(version=5), run(1, RunStatus.DEAD)), attempt(2)).outbox
    both = with_records(older, newer)
    assert [each.run.status for each in both.runs] == [RunStatus.DEAD]
    assert [each.attempt.number for each in both.attempts] == [1, 2]
    assert with_records(older, MirrorBatch()) == older


@given(st.lists(st.sampled_from(["run", "attempt", "ledger", "seal", "send", "confirm"]), max_size=40))
def test_nothing_is_lost_and_versions_only_rise(steps: list[str]) -> None:
    """In whatever order records are made, sent and confirmed, with time between the sending and the confirmation."""
    state, sent, mirrored = JobState(), MirrorBatch(), dict[str, int]()
    made = dict[str, int]()
    for number, step in enumerate(steps):
        before = state.version
        match step:
            case "run":
                state = with_run(state, run(number % 3))
                made[f"r{number % 3}"] = state.version
            case "attempt":
                state = with_attempt(state, attempt(number % 4))
                made[f"a{number % 4}"] = state.version
            case "ledger":
                state = with_ledger(state, (entry(number),))
                made[f"l{number}"] = state.version
            case "send":
                state = sealed(state)
                sent = state.outbox
            case "confirm":
                mirrored |= _versions(sent)
                state = state.model_copy(update={"outbox": without(state.outbox, sent)})
            case _:
                state = sealed(state)
        assert state.version >= before
        known = mirrored | _versions(state.outbox)
        assert all(known[name] == version for name, version in made.items())


def _versions(batch: MirrorBatch) -> dict[str, int]:
    runs = {each.run.run_id: each.version for each in batch.runs}
    attempts = {f"a{each.attempt.number}": each.version for each in batch.attempts}
    entries = {f"l{(each.entry.first - NOON) // timedelta(minutes=1)}": each.version for each in batch.ledger}
    return runs | attempts | entries

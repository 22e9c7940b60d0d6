"""Places in time: starts at a rate, and the return of many runs at once. Pure, with explicit time."""

import heapq
import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflows.pace import FORGOTTEN_AFTER, PROBE_TAKES, TOLERANCE, Pace, Parking, Places

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """A moment, in seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def test_a_burst_goes_at_once_and_the_others_evenly() -> None:
    """Ten a second after a burst of three: the fourth is the first that waits."""
    pace = Pace(rate=10, burst=3)
    places = [(pace.take_place(now=NOON) - NOON).total_seconds() for _ in range(7)]
    assert places == pytest.approx([0, 0, 0, 0, 0.4, 0.5, 0.6])


@settings(max_examples=50)
@given(
    rate=st.sampled_from([0.5, 1, 20, 100]),
    burst=st.integers(0, 20),
    gaps=st.lists(st.floats(0, 3), min_size=1, max_size=100),
)
def test_never_more_start_in_any_span_than_its_rate_and_one_burst(rate: float, burst: int, gaps: list[float]) -> None:
    """However they come: between the places of any two starts there is room for all in between."""
    pace, now, places = Pace(rate=rate, burst=burst), NOON, []
    for gap in gaps:
        now += timedelta(seconds=gap)
        place = pace.take_place(now=now)
        assert place >= now
        places.append(place)
    places.sort()
    for first in range(len(places)):
        for last in range(first, len(places)):
            span = (places[last] - places[first]).total_seconds()
            assert last - first <= span * rate + burst + 1e-3


def test_a_place_that_is_not_free_is_not_taken() -> None:
    """Whoever is sent away leaves nothing behind."""
    pace = Pace(rate=1)
    assert pace.take_free_place(now=NOON)
    assert not pace.take_free_place(now=at(0.5))
    assert pace.take_free_place(now=at(1))


def test_places_that_nobody_comes_for_are_forgotten() -> None:
    """The runs were cancelled, or went to another process; what is still to come is kept."""
    places = Places()
    places.give("gone", NOON, now=NOON)
    later = NOON + FORGOTTEN_AFTER
    places.give("waits", later + timedelta(hours=1), now=later)
    places.give("new", later, now=later + timedelta(seconds=10))
    assert len(places) == 2
    assert not places.take("gone")
    assert places.take("waits")
    assert not places.take("waits")


def test_one_run_comes_when_the_probe_is_due_and_the_others_after_it() -> None:
    """A probe mostly ends within seconds: few come while it is out, only to be sent away."""
    parking = Parking(rate=50)
    times = [parking.park_until_probed(f"r{n}", open_until=at(30), now=NOON) for n in range(4)]
    assert times[0] == at(30)
    assert times[1:] == [at(30) + PROBE_TAKES + timedelta(seconds=n / 50) for n in range(3)]
    # The probe failed, and the next one is due a minute later.
    assert parking.park_until_probed("r0", open_until=at(90), now=at(31)) == at(90)


@settings(max_examples=10, deadline=None)
@given(
    runs=st.sampled_from([1, 10, 500, 3_000]),
    rate=st.sampled_from([5, 50, 200]),
    openings=st.integers(1, 4),
    seed=st.integers(0, 2**16),
)
def test_parked_runs_return_at_the_rate_whenever_the_breaker_closes(
    runs: int, rate: int, openings: int, seed: int
) -> None:
    """All come back, never more in a second than the rate, and few are sent away again."""
    _return_all(runs=runs, rate=rate, openings=openings, seed=seed)


def test_fifty_thousand_parked_runs_do_not_return_at_once() -> None:
    """SB-104: a thousand seconds at fifty a second, and hardly longer."""
    _return_all(runs=50_000, rate=50, openings=2, seed=1)


def _return_all(*, runs: int, rate: int, openings: int, seed: int) -> None:
    """Park runs while a breaker opens some times, thirty seconds each, and let all come back after it has closed."""
    chance, parking = random.Random(seed), Parking(rate=rate)
    closes_at = at(30 * openings)
    coming = [(at(20 * n / runs), n) for n in range(runs)]
    returned: Counter[int] = Counter()
    asked: Counter[int] = Counter()
    while coming:
        now, run = heapq.heappop(coming)
        if now < closes_at:
            opening = (now - NOON) // timedelta(seconds=30) + 1
            comes = parking.park_until_probed(str(run), open_until=at(30 * opening), now=now)
        else:
            second = int((now - NOON).total_seconds())
            asked[second] += 1
            if parking.may_return(str(run), now=now):
                returned[second] += 1
                continue
            comes = parking.park_again(str(run), now=now)
        assert comes > now
        # Timers are late by as much as the engine and the worker make them.
        heapq.heappush(coming, (comes + timedelta(seconds=0.3 * chance.random()), run))
    assert sum(returned.values()) == runs
    assert len(parking) == 0
    assert max(returned.values()) <= rate * (1 + TOLERANCE.total_seconds()) + 1
    assert max(asked.values()) <= 2 * rate + 1
    last = max(returned) - closes_at.timestamp() + NOON.timestamp()
    assert last <= PROBE_TAKES.total_seconds() + 1.2 * runs / rate + 5

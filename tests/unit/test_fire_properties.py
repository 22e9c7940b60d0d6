"""What holds for every schedule, zone and moment; and a walk over every minute to compare with."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.brute_force import PlainCron, list_fires
from tests.unit.schedules import EXAMPLES
from workflows.fire_times import can_roll, fires_between, jitter_offset, next_fires, shortest_gap, survey_fires
from workflows.schedule import (
    BusinessDays,
    CalendarDays,
    CronRule,
    DstPolicy,
    Exclusions,
    FoldPolicy,
    GapPolicy,
    IntervalRule,
    OnlyOn,
    Roll,
    RRuleRule,
    Rule,
    Schedule,
)

_CHANGES = [
    ("America/New_York", "2026-03-08T07:00"),
    ("America/New_York", "2026-11-01T06:00"),
    ("Europe/Berlin", "2026-10-25T01:00"),
    ("Europe/Dublin", "2026-03-29T01:00"),
    ("Europe/Dublin", "2026-10-25T01:00"),
    ("Australia/Lord_Howe", "2026-10-03T15:30"),
    ("Antarctica/Troll", "2026-03-29T01:00"),
    ("America/Santiago", "2026-09-06T04:00"),
    ("Africa/Monrovia", "1972-01-07T00:44"),
    ("Pacific/Apia", "2011-12-30T10:00"),
]
"""Zones and the minute of a change of their clocks, from tzdata's own source comments and the governments they quote."""


@st.composite
def _fields(draw: st.DrawFn, lowest: int, highest: int) -> tuple[str, frozenset[int], bool]:
    """A field's text, its values, and whether it begins with a star."""
    everything = range(lowest, highest + 1)
    first, last = sorted(draw(st.tuples(st.sampled_from(everything), st.sampled_from(everything))))
    step = draw(st.sampled_from([1, 2, 5, 7, 15, 30]))
    return draw(
        st.sampled_from(
            [
                ("*", frozenset(everything), True),
                (f"*/{step}", frozenset(everything[::step]), True),
                (f"{first}/{step}", frozenset(range(first, highest + 1, step)), False),
                (f"{first}-{last}", frozenset(range(first, last + 1)), False),
                (f"{first},{last}", frozenset((first, last)), False),
                (f"{first}", frozenset((first,)), False),
            ]
        )
    )


_SMALL_HOURS = st.integers(0, 3).map(lambda hour: (f"{hour}", frozenset((hour,)), False))


@st.composite
def _crons(draw: st.DrawFn) -> PlainCron:
    """Expressions of five fields whose hours are often those of clock changes."""
    star = st.just(("*", None, True))
    minute, hour = draw(_fields(0, 59)), draw(st.one_of(_fields(0, 23), _SMALL_HOURS))
    day, weekday = draw(st.one_of(star, _fields(1, 31))), draw(st.one_of(star, _fields(0, 6)))
    fields = {"minute": minute, "hour": hour, "day": day, "weekday": weekday}
    return PlainCron(
        text=f"{minute[0]} {hour[0]} {day[0]} * {weekday[0]}",
        seconds=frozenset((0,)),
        minutes=minute[1],
        hours=hour[1],
        days=day[1] or frozenset(range(1, 32)),
        months=frozenset(range(1, 13)),
        weekdays=weekday[1] or frozenset(range(7)),
        starred=frozenset(name for name, field in fields.items() if field[2]),
    )


_POLICIES = st.builds(
    DstPolicy, gap=st.none() | st.sampled_from(list(GapPolicy)), fold=st.none() | st.sampled_from(list(FoldPolicy))
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(_crons(), st.sampled_from(_CHANGES), _POLICIES)
def test_the_calculator_agrees_with_a_walk_over_every_minute(
    plain: PlainCron, change: tuple[str, str], dst: DstPolicy
) -> None:
    """Around clock changes, for every policy, nothing is lost, added or moved."""
    zone, minute = change
    middle = datetime.fromisoformat(minute).replace(tzinfo=UTC)
    start, end = middle - timedelta(hours=26), middle + timedelta(hours=26)
    named, fixed = "hour" not in plain.starred, not plain.starred & {"hour", "minute"}
    expected = list_fires(
        plain.matches,
        zone,
        start,
        end,
        timedelta(minutes=1) if zone != "Africa/Monrovia" else timedelta(seconds=30),
        gap=dst.gap or ("first_valid" if named else "none"),
        fold=dst.fold or ("first" if fixed else "both"),
    )
    schedule = Schedule(rule=CronRule(expression=plain.text), timezone=zone, dst=dst, time_critical=True)
    fires = fires_between(schedule, start, end, job_id="job", limit=10_000)
    assert [fire.nominal for fire in fires] == expected


_RULES: st.SearchStrategy[Rule] = st.one_of(
    st.builds(CronRule, expression=_crons().map(lambda plain: plain.text)),
    st.builds(CronRule, expression=_crons().map(lambda plain: f"*/20 {plain.text}")),
    st.builds(IntervalRule, every=st.integers(1, 10**6).map(lambda seconds: timedelta(seconds=seconds))),
    st.builds(
        RRuleRule,
        rrule=st.sampled_from(
            ["FREQ=DAILY;BYHOUR=1,2,3", "FREQ=HOURLY;INTERVAL=5", "FREQ=WEEKLY;BYDAY=SU;BYHOUR=1,2", "FREQ=MINUTELY"]
        ),
    ),
)
_EXCLUSIONS = st.sampled_from(
    [Exclusions(), Exclusions(cron=("* 1-2 * * *",)), Exclusions(cron=("*/2 * * * 0", "5 * * * *"))]
)
_ZONES = st.sampled_from([zone for zone, _ in _CHANGES])
_PLAIN_SCHEDULES = st.builds(Schedule, rule=_RULES, timezone=_ZONES, dst=_POLICIES, exclude=_EXCLUSIONS)


@st.composite
def _schedules(draw: st.DrawFn) -> Schedule:
    """Schedules, half of them with a calendar: days around clock changes, and long stretches."""
    schedule = draw(_PLAIN_SCHEDULES)
    if draw(st.booleans()):
        return schedule
    change = date.fromisoformat(draw(st.sampled_from(_CHANGES))[1][:10])
    ends = draw(st.lists(st.integers(-400, 400), min_size=2, max_size=6, unique=True).map(sorted))
    spans = [
        (change + timedelta(days=first), change + timedelta(days=last))
        for first, last in zip(ends[::2], ends[1::2], strict=False)
    ]
    weekend = draw(st.sampled_from([(5, 6), (4, 5), (), (0, 1, 2, 4, 5, 6)]))
    calendar = CalendarDays(name="c", spans=tuple(spans), weekend=weekend)
    roll = draw(st.sampled_from(list(Roll) if can_roll(schedule.rule) else [Roll.SKIP]))
    use = draw(st.sampled_from(["exclude", "only", "business"]))
    exclude = schedule.exclude.model_copy(update={"calendars": ("c",) if use == "exclude" else ()})
    return schedule.model_copy(
        update={
            "calendars": (calendar,),
            "exclude": exclude,
            "only": OnlyOn(calendars=("c",) if use == "only" else ()),
            "business_days": BusinessDays(calendar="c", roll=roll) if use == "business" else None,
        }
    )


_SCHEDULES = _schedules()
_MOMENTS = st.one_of(
    st.datetimes(datetime(1990, 1, 1), datetime(2036, 1, 1)),  # noqa: DTZ001 - the time zone is added below
    st.sampled_from(_CHANGES).map(lambda change: datetime.fromisoformat(change[1]) - timedelta(hours=2)),
).map(lambda moment: moment.replace(tzinfo=UTC))


@settings(max_examples=EXAMPLES, deadline=None)
@given(_SCHEDULES, _MOMENTS)
def test_fires_increase_strictly_and_jitter_keeps_their_order(schedule: Schedule, after: datetime) -> None:
    """Later than asked, later than the one before, each before the next even with jitter."""
    fires = next_fires(schedule, job_id="job", after=after, count=30)
    assert all(fire.nominal > after for fire in fires)
    assert all(earlier.nominal < later.nominal for earlier, later in pairwise(fires))
    assert all(earlier.target < later.nominal for earlier, later in pairwise(fires))
    gap = shortest_gap(schedule, job_id="job")
    assert gap is None or gap > timedelta()
    assert gap is None or all(later.nominal - earlier.nominal >= gap for earlier, later in pairwise(fires))
    assert gap is None or timedelta() <= jitter_offset(schedule, job_id="job") < gap


@settings(max_examples=EXAMPLES, deadline=None)
@given(_SCHEDULES, _MOMENTS, st.floats(0, 1), st.integers(1, 200))
def test_splitting_a_range_changes_nothing(schedule: Schedule, start: datetime, where: float, hours: int) -> None:
    """Two halves make the whole, at any point, and one by one gives the same list."""
    end = start + timedelta(hours=hours)
    middle = start + where * (end - start)
    whole = fires_between(schedule, start, end, job_id="job", limit=200)
    first = fires_between(schedule, start, middle, job_id="job", limit=200)
    second = fires_between(schedule, middle, end, job_id="job", limit=200)
    assert whole == (first + second)[:200]
    wanted = [fire for fire in whole if fire.excluded_by is None]
    assert next_fires(schedule, job_id="job", after=start, count=1) == wanted[:1] or not wanted


@settings(max_examples=EXAMPLES, deadline=None)
@given(_SCHEDULES, _MOMENTS, st.integers(1, 60), st.integers(0, 9))
def test_a_survey_says_what_a_walk_finds(schedule: Schedule, after: datetime, hours: int, newest: int) -> None:
    """Counts, ends, kinds and newest fires are those of the list."""
    until = after + timedelta(hours=hours)
    survey = survey_fires(schedule, job_id="job", after=after, until=until, newest=newest)
    fires = fires_between(schedule, after, survey.through, job_id="job", limit=300_000)
    assert sum(entry.count for entry in survey.ranges) == len(fires)
    wanted = [fire for fire in fires if fire.excluded_by is None]
    assert list(survey.newest) == wanted[max(len(wanted) - newest, 0) :]
    index = 0
    for entry in survey.ranges:
        members = fires[index : index + entry.count]
        assert (members[0].nominal, members[-1].nominal) == (entry.first, entry.last)
        assert {fire.excluded_by for fire in members} == {entry.excluded_by}
        index += entry.count
    assert all(earlier.excluded_by != later.excluded_by for earlier, later in pairwise(survey.ranges))

"""Fire-time calculator.

Given a schedule and a moment, says when the schedule fires. Nothing here reads a clock, a database or the environment:
same arguments, same answer, in any process. All datetimes are aware and in UTC; zones are applied inside.

Invariants, for every schedule, zone and starting instant: fires are strictly increasing, strictly after ``after``,
independent of how a range is split, and each call ends soon: what could go on for long is bounded by the constants
below. ``max_runs`` is not looked at, because only the job knows how many runs there were.

croniter is used here alone, and only for dates without a zone; clock and zone are our own code (``fire_walk``).
"""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from functools import cached_property, lru_cache
from itertools import islice
from typing import assert_never

from croniter import CroniterBadDateError, croniter

from workflows.calendar_day import working_days
from workflows.clock_mask import clock_mask, cut, first_second, last_second, list_seconds
from workflows.cron_expression import CronExpression, parse_cron
from workflows.error import InvalidSchedule
from workflows.fire_exclusion import ExclusionFilter, SortedFires, build_filter
from workflows.fire_pattern import InstantPattern, IntervalPattern, LocalTimePattern
from workflows.fire_roll import RolledPattern
from workflows.fire_spacing import Timetable, find_daily_spacing, find_walked_spacing
from workflows.fire_survey import FireTally
from workflows.fire_walk import ClockRule, Pattern, walk_days
from workflows.recurrence import Recurrence, RecurrencePattern, read_recurrence
from workflows.schedule import (
    BusinessDays,
    CronRule,
    DstPolicy,
    Fire,
    FireRange,
    FireSurvey,
    FoldPolicy,
    GapPolicy,
    IntervalRule,
    OneOffRule,
    Roll,
    RRuleRule,
    Rule,
    Schedule,
)
from workflows.zone import (
    DAY,
    FIRST_INSTANT,
    LAST_INSTANT,
    require_zone,
    stretch_at,
    to_date,
    to_datetime,
    to_instant,
    to_instant_rounded_up,
    to_local,
)

_MAX_DAYS = 1_500
"""Days with fires that a listing looks at beyond those it lists. Only a job that is excluded for longer notices."""

_HORIZON = 200 * 366 * DAY
"""How far ahead of the first one next fires are listed: 29 February on a given weekday comes five times in it."""

_MAX_SURVEYED_DAYS = 366
_MAX_SURVEYED_SPAN = timedelta(days=5 * 366)
_MAX_RANGES = 1_000
"""What one survey does at most: days with fires, time, and ranges. A caller continues from its ``through``."""

_MAX_EXCLUDED_LISTED = 1_000
"""Excluded fires that ``next_fires`` lists beside the wanted ones."""

_NEAR_DAYS = 32
"""Days looked at one by one before croniter is asked: a step of it costs as much as looking at so many days."""

_LAST_DAY = LAST_INSTANT // DAY

NO_ROLL = "only schedules with the same times on each of their days move to business days; here roll can be skip"
"""Why some rules have no business days to move to."""


def fires_between(schedule: Schedule, start: datetime, end: datetime, *, job_id: str, limit: int) -> list[Fire]:
    """List the fires with ``start < nominal <= end``, oldest first, at most ``limit``.

    Excluded fires are in the list, with their reason. Raises InvalidSchedule for a schedule that cannot be read.
    """
    calendar = _Calendar(schedule, job_id)
    days = islice(calendar.days(start, end), max(limit, 0) + _MAX_DAYS)
    fires = (fire for day in days for fire in calendar.list_fires(day, excluded=True))
    return list(islice(fires, max(limit, 0)))


def next_fires(schedule: Schedule, *, job_id: str, after: datetime, count: int, excluded: bool = False) -> list[Fire]:
    """List the next ``count`` wanted fires strictly after ``after``; fewer when the schedule ends before.

    Looks two hundred years ahead of the first one, and gives up when about 1,500 days with fires had only excluded ones.
    With ``excluded`` the unwanted fires between the wanted ones are listed too, at most a thousand.
    """
    calendar = _Calendar(schedule, job_id)
    found: list[Fire] = []
    wanted = 0
    if count <= 0:
        return found
    for day in islice(calendar.next_days(after), count + _MAX_DAYS):
        for fire in calendar.list_fires(day, excluded=excluded):
            found.append(fire)
            wanted += fire.excluded_by is None
            if wanted == count or len(found) - wanted == _MAX_EXCLUDED_LISTED:
                return found
    return found


def survey_fires(schedule: Schedule, *, job_id: str, after: datetime, until: datetime, newest: int) -> FireSurvey:
    """Summarise the fires with ``after < nominal <= until``, and list the newest ``newest`` wanted ones.

    Neighbours of one kind are joined to one range. Where there is too much for one call, ``through`` of the answer is
    earlier than ``until``; a caller continues with ``after=through``.
    """
    calendar = _Calendar(schedule, job_id)
    tally = FireTally(newest=newest, max_ranges=_MAX_RANGES)
    until = min(until, _later(after, _MAX_SURVEYED_SPAN))
    through = _tally_days(tally, calendar.days(after, until))
    return FireSurvey(
        ranges=tuple(
            FireRange(
                first=to_datetime(run.first), last=to_datetime(run.last), count=run.count, excluded_by=run.excluded_by
            )
            for run in tally.ranges
        ),
        newest=tuple(calendar.fire_at(instant) for instant in tally.list_newest()),
        through=until if through is None else to_datetime(through),
    )


@dataclass(frozen=True)
class FireCount:
    """How many wanted fires a schedule has in each step of a time."""

    per_step: Sequence[int]
    first: datetime | None = None
    """Nominal time of the first one counted."""


def count_fires(
    schedule: Schedule, *, job_id: str, start: datetime, steps: int, step: timedelta, after: datetime
) -> FireCount:
    """Count the wanted fires with ``nominal > after`` in each of ``steps`` steps from ``start`` on, the start of each included.

    ``start`` and ``step`` are whole seconds. Takes bounded time for each day, however many fires it has. Raises InvalidSchedule
    for a schedule that cannot be read.
    """
    origin, width = to_instant(start), step // timedelta(seconds=1)
    counts = array("L", bytes(steps * array("L").itemsize))
    first: int | None = None
    last = start + steps * step - timedelta(seconds=1)
    for day in _Calendar(schedule, job_id).days(max(after, start - timedelta(seconds=1)), last):
        if first is None and day.wanted:
            first = day.fires.midnight + first_second(day.wanted)
        for index, count in _count_steps(day.wanted, day.fires.midnight - origin, width):
            counts[index] += count
    return FireCount(counts, None if first is None else to_datetime(first))


def jitter_offset(schedule: Schedule, *, job_id: str) -> timedelta:
    """Say how much later than its nominal time a job starts: a hash of its id within the jitter window.

    Milliseconds; always less than the shortest gap between two fires. 0 for one-offs, time-critical jobs and previews
    without a job id.
    """
    if not job_id:
        return timedelta()
    milliseconds = jitter_window(schedule, job_id=job_id) // timedelta(milliseconds=1)
    digest = hashlib.sha256(f"jitter\0{job_id}".encode("utf-8", "surrogatepass")).digest()
    return timedelta(milliseconds=int.from_bytes(digest[:8], "big") % milliseconds if milliseconds else 0)


def jitter_window(schedule: Schedule, *, job_id: str) -> timedelta:
    """Say how wide the window is in which a job's jitter lies: never wider than the shortest gap between two fires."""
    if schedule.time_critical or isinstance(schedule.rule, OneOffRule):
        return timedelta()
    gap = shortest_gap(schedule, job_id=job_id)
    if gap is None:
        return timedelta()
    asked = schedule.jitter_window_seconds
    return min(timedelta(seconds=60), gap / 10) if asked is None else min(timedelta(seconds=asked), gap)


def shortest_gap(schedule: Schedule, *, job_id: str) -> timedelta | None:
    """Say how close together two fires can come, over zone changes as well; ``None`` for one fire or none.

    Never zero. May be less than what ever happens (see ``fire_spacing``), never more. Exclusions are not looked at, and
    of fires that move to business days only that they may come to lie on neighbouring ones.
    """
    # Everything else about a schedule is left out, so that the answers are remembered for what decides them.
    return _shortest_gap(
        Schedule(
            rule=schedule.rule,
            timezone=schedule.timezone,
            dst=schedule.dst,
            business_days=BusinessDays() if _rolls(schedule) else None,
            start_at=schedule.start_at,
            end_at=schedule.end_at,
        ),
        job_id,
    )


def can_roll(rule: Rule) -> bool:
    """Say whether fires of a rule can be moved to business days: it names local times, the same ones on each of its days."""
    match rule:
        case CronRule():
            return True
        case RRuleRule():
            return RecurrencePattern(read_recurrence(rule)).daily_times is not None
        case IntervalRule() | OneOffRule():
            return False
        case _ as never:
            assert_never(never)


@lru_cache(maxsize=1024)
def _shortest_gap(schedule: Schedule, job_id: str) -> timedelta | None:
    pattern, clock = _read_schedule(schedule, job_id)
    if isinstance(pattern, RolledPattern):
        return timedelta(seconds=find_daily_spacing(Timetable(pattern.times), clock, pattern.times))
    if _fires_at_most_once(schedule, pattern, clock):
        return None
    match pattern:
        case IntervalPattern():
            return timedelta(seconds=pattern.every)
        case CronPattern():
            return timedelta(seconds=find_daily_spacing(pattern, clock, pattern.times))
        case RecurrencePattern(daily_times=int(times)):
            return timedelta(seconds=find_daily_spacing(pattern, clock, times))
        case RecurrencePattern():
            spacing = find_walked_spacing(pattern, clock, pattern.start, step=pattern.step)
            return None if spacing is None else timedelta(seconds=spacing)
        case _:
            return None


def _fires_at_most_once(schedule: Schedule, pattern: Pattern, clock: ClockRule) -> bool:
    """Whether the schedule's own bounds leave no second fire."""
    match schedule.rule:
        case OneOffRule():
            return True
        case CronRule() | IntervalRule() if schedule.start_at is None or schedule.end_at is None:
            return False
    days = islice(walk_days(pattern, clock, *_bounds(schedule)), _MAX_DAYS)
    fires = (second for day in days for second in list_seconds(day.mask))
    return len(list(islice(fires, 2))) < 2


def _count_steps(mask: int, begin: int, width: int) -> Iterator[tuple[int, int]]:
    """Yield (step, fires) of a day that begins ``begin`` seconds after the first step."""
    if mask.bit_count() <= 2 * DAY // width:
        yield from (((begin + second) // width, 1) for second in list_seconds(mask))
        return
    for index in range((begin + first_second(mask)) // width, (begin + last_second(mask)) // width + 1):
        first = index * width - begin
        yield index, cut(mask, first, first + width - 1).bit_count()


class _Calendar:
    """A schedule made ready for walking."""

    def __init__(self, schedule: Schedule, job_id: str) -> None:
        self._pattern, self._clock = _read_schedule(schedule, job_id)
        self._exclusions: ExclusionFilter = build_filter(schedule, job_id=job_id)
        self._schedule, self._job_id = schedule, job_id
        self._first, self._last = _bounds(schedule)

    @cached_property
    def _jitter(self) -> timedelta:
        # Found only for those who list fires: it may take longer than counting them.
        return jitter_offset(self._schedule, job_id=self._job_id)

    def days(self, after: datetime, until: datetime) -> Iterator[SortedFires]:
        """Yield the days with fires ``after < fire <= until`` within the schedule's own start and end."""
        first, last = max(self._first, to_instant(after) + 1), min(self._last, to_instant(until))
        return self._sort(first, last)

    def next_days(self, after: datetime) -> Iterator[SortedFires]:
        """Yield the days with fires after a moment, as far as the horizon."""
        first = max(self._first, to_instant(after) + 1)
        day = self._pattern.next_day(first // DAY - 1, 0)
        begin = first if day is None else max(first, day * DAY)
        return self._sort(first, min(self._last, begin + _HORIZON))

    def _sort(self, first: int, last: int) -> Iterator[SortedFires]:
        return map(self._exclusions.sort, walk_days(self._pattern, self._clock, first, last))

    def list_fires(self, day: SortedFires, *, excluded: bool) -> Iterator[Fire]:
        """Yield a day's fires in order: the wanted ones, or all."""
        midnight = day.fires.midnight
        for second in list_seconds(day.fires.mask if excluded else day.wanted):
            yield self.fire_at(midnight + second, excluded_by=_reason_at(day, second))

    def fire_at(self, instant: int, *, excluded_by: str | None = None) -> Fire:
        nominal = to_datetime(instant)
        return Fire(nominal=nominal, target=nominal + self._jitter, excluded_by=excluded_by)


def _tally_days(tally: FireTally, days: Iterator[SortedFires]) -> int | None:
    """Count days until they end, or until there was enough for one call; then say through which instant."""
    for looked, day in enumerate(days):
        if looked == _MAX_SURVEYED_DAYS:
            # Days of a clock set back overlap; what was counted already must not be counted again.
            before = day.fires.midnight - 1
            return before if tally.last is None else max(tally.last, before)
        if not tally.add(day):
            return tally.last
    return None


def _later(moment: datetime, span: timedelta) -> datetime:
    """A moment moved by a span, or the last one that fires are known for."""
    last = to_datetime(LAST_INSTANT)
    return moment + span if last - moment > span else last


def _reason_at(day: SortedFires, second: int) -> str | None:
    return next((why for why, mask in day.unwanted if mask >> second & 1), None)


def _bounds(schedule: Schedule) -> tuple[int, int]:
    """First and last instant at which the schedule may fire."""
    first, last = FIRST_INSTANT, LAST_INSTANT
    if schedule.start_at is not None:
        first = max(first, to_instant_rounded_up(schedule.start_at))
    if schedule.end_at is not None:
        last = to_instant(schedule.end_at)
    if isinstance(schedule.rule, RRuleRule) and not _rolls(schedule):
        until = read_recurrence(schedule.rule).until_instant
        last = last if until is None else min(last, until)
    return first, last


def _rolls(schedule: Schedule) -> bool:
    return schedule.business_days is not None and schedule.business_days.roll is not Roll.SKIP


def _read_schedule(schedule: Schedule, job_id: str) -> tuple[Pattern, ClockRule]:
    """Make a schedule's pattern, moved to business days where it wants that. Raises InvalidSchedule."""
    pattern, clock = _read_rule(schedule.rule, schedule.timezone, schedule.dst, job_id)
    rule = schedule.business_days
    if rule is None or rule.roll is Roll.SKIP:
        return pattern, clock
    match pattern:
        case CronPattern():
            times = pattern.times
        case RecurrencePattern(daily_times=int(times)):
            pattern = RecurrencePattern(_end_locally(pattern.recurrence, schedule.timezone))
        case _:
            raise InvalidSchedule(NO_ROLL, pointer="/business_days/roll")
    return RolledPattern(pattern, times, working_days(schedule, rule), rule.roll), clock


def _end_locally(recurrence: Recurrence, zone: str) -> Recurrence:
    """Let UNTIL end what the rule names, and not what comes of it when a fire has moved."""
    until = recurrence.until_instant
    if until is None:
        return recurrence
    return replace(recurrence, until_instant=None, until_local=until + stretch_at(zone, until).offset)


def _read_rule(rule: Rule, zone: str, dst: DstPolicy, job_id: str) -> tuple[Pattern, ClockRule]:
    """Make a rule's pattern, and say how it meets zone changes. Raises InvalidSchedule."""
    require_zone(zone)
    match rule:
        case CronRule():
            expression = parse_cron(rule.expression, job_id=job_id)
            gap = GapPolicy.FIRST_VALID if expression.names_hours else GapPolicy.SKIP
            fold = FoldPolicy.FIRST if expression.is_fixed_time else FoldPolicy.BOTH
            return CronPattern(expression), ClockRule(zone, dst.gap or gap, dst.fold or fold)
        case IntervalRule():
            pattern = IntervalPattern(rule.every // timedelta(seconds=1), to_instant(rule.anchor))
            return pattern, ClockRule(zone, GapPolicy.SKIP, FoldPolicy.BOTH)
        case OneOffRule(at=datetime() as at):
            return InstantPattern(to_instant(at)), ClockRule(zone, GapPolicy.SKIP, FoldPolicy.BOTH)
        case OneOffRule(local=local):
            if local is None:
                raise InvalidSchedule("a one-off needs a time", pointer="/schedule/at")
            return LocalTimePattern(to_local(local)), _wall_clock(zone, dst)
        case RRuleRule():
            return RecurrencePattern(read_recurrence(rule)), _wall_clock(zone, dst)
        case _ as never:
            assert_never(never)


def _wall_clock(zone: str, dst: DstPolicy) -> ClockRule:
    return ClockRule(zone, dst.gap or GapPolicy.FIRST_VALID, dst.fold or FoldPolicy.FIRST)


class CronPattern:
    """The local times of a cron expression."""

    def __init__(self, expression: CronExpression) -> None:
        self._expression = expression
        self.times = clock_mask(expression.hour.values, expression.minute.values, expression.second.values)
        self._searches = [_DateSearch(text) for text in expression.for_croniter()]

    def next_day(self, day: int, offset: int) -> int | None:
        if self._expression.names_every_date:
            return day
        for near in range(day, min(day + _NEAR_DAYS, _LAST_DAY)):
            if self._expression.matches_date(to_date(near)):
                return near
        found = [search.next_day(day + _NEAR_DAYS) for search in self._searches]
        return min((far for far in found if far is not None), default=None)

    def times_on(self, day: int, offset: int) -> int:
        return self.times


class _DateSearch:
    """croniter, asked for dates only."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._croniter: croniter | None = None
        self._asked: int | None = None
        self._found: int | None = None

    def next_day(self, day: int) -> int | None:
        """The first matching day from ``day`` on; ``None`` when there is none within fifty years."""
        if self._asked is None or not (self._asked <= day and (self._found is None or day <= self._found)):
            self._asked, self._found = day, self._search(day)
        return self._found

    def _search(self, day: int) -> int | None:
        if day >= _LAST_DAY:
            return None
        before = datetime.combine(to_date(day), time()) - timedelta(minutes=1)
        if self._croniter is None:
            self._croniter = croniter(self._text, before, day_or=False, max_years_between_matches=50)
        try:
            found = self._croniter.get_next(datetime, start_time=before)
        except (CroniterBadDateError, OverflowError, ValueError):
            return None  # the latter two: past the year 9999
        return to_local(found) // DAY

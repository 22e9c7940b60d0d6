"""A cron expression in words.

Works from the values that the fields name, so that what is said is what fires: ``0,15,30,45`` and ``*/15`` read alike, a
step that does not divide its field says so, and the day fields say *or* or *and* as the star rule has it. (The library
cron-descriptor reads six fields, ``fri/2`` and day lists otherwise than we do, and depends on locale and clock.)
"""

from itertools import product

from workflows.cron_expression import CronExpression
from workflows.cron_field import CronField
from workflows.wording import MONTHS, WEEKDAYS, capitalise, find_step, join_words, list_runs, number_ordinal, ordinal

_MOST_TIMES_LISTED = 6


def describe_cron(expression: CronExpression, *, knows_job: bool) -> str:
    """Say when an expression fires, without zone, such as ``At 09:00, only on Monday``.

    ``knows_job`` says that ``H`` was hashed by a real job's id, so that its values may be told.
    """
    parts = [_describe_time(expression, knows_job), *_describe_dates(expression, knows_job)]
    return capitalise(", ".join(part for part in parts if part))


def _describe_time(expression: CronExpression, knows_job: bool) -> str:
    second, minute, hour = expression.second, expression.minute, expression.hour
    hidden = not knows_job and any(_is_hashed(field) for field in (second, minute, hour))
    if not hidden and len(second.values) * len(minute.values) * len(hour.values) <= _MOST_TIMES_LISTED:
        return _list_times(expression)
    if not hidden and second.values == {0} and len(minute.values) == 1 and _is_range(hour.values):
        at = min(minute.values)
        return f"every hour from {min(hour.values):02}:{at:02} through {max(hour.values):02}:{at:02}"
    parts = [_describe_seconds(second, knows_job), _describe_minutes(minute, second, hour, knows_job)]
    return ", ".join(part for part in (*parts, _describe_hours(hour, knows_job)) if part)


def _list_times(expression: CronExpression) -> str:
    fields = (expression.hour, expression.minute, expression.second)
    times = product(*(sorted(field.values) for field in fields))
    shows_seconds = expression.second.values != {0}
    return "at " + join_words(
        f"{hour:02}:{minute:02}" + (f":{second:02}" if shows_seconds else "") for hour, minute, second in times
    )


def _describe_seconds(field: CronField, knows_job: bool) -> str:
    if field.values == {0}:
        return ""
    if _is_hashed(field) and not knows_job:
        return _hidden(field, "second")
    step = find_step(field.values, lowest=0, highest=59)
    if step is not None:
        return _every(step, min(field.values), "second", 60)
    return f"at {_counted(field, 'second')} past the minute"


def _describe_minutes(field: CronField, second: CronField, hour: CronField, knows_job: bool) -> str:
    if _is_hashed(field) and not knows_job:
        return _hidden(field, "minute")
    if len(field.values) == 60:
        return "" if len(second.values) > 1 else "every minute"
    step = find_step(field.values, lowest=0, highest=59)
    if step is not None:
        return _every(step, min(field.values), "minute", 60)
    if field.values == {0} and second.values == {0} and len(hour.values) == 24:
        return "every hour"
    return f"at {_counted(field, 'minute')} past the hour"


def _describe_hours(field: CronField, knows_job: bool) -> str:
    if _is_hashed(field) and not knows_job:
        return _hidden(field, "hour")
    values = sorted(field.values)
    if len(values) == 24:
        return ""
    if _is_range(field.values):
        return f"between {values[0]:02}:00 and {values[-1]:02}:59"
    step = find_step(values, lowest=0, highest=23)
    if step is not None:
        return f"in every {number_ordinal(step)} hour of the day from {values[0]:02}:00"
    return f"in the hours {list_runs(values, lambda hour: f'{hour:02}')}"


def _describe_dates(expression: CronExpression, knows_job: bool) -> list[str]:
    by_month = _describe_days_of_month(expression.day_of_month, knows_job)
    by_week = _describe_days_of_week(expression.day_of_week, knows_job)
    if by_month and by_week:
        joined = f"{by_month} if it is {by_week}" if expression.needs_both_day_fields else f"{by_month} or {by_week}"
        days = joined.replace("if it is on ", "if it is ")
    else:
        days = by_month or (f"only {by_week}" if by_week.startswith("on ") else by_week)
    return [days, _describe_months(expression.month, knows_job)]


def _describe_days_of_month(field: CronField, knows_job: bool) -> str:
    if field.is_plain_star:
        return ""
    if _is_hashed(field) and not knows_job:
        return _hidden(field, "day of the month")
    last = ["on the last day of the month"] if field.last_day else []
    if not field.values:
        return last[0]
    step = find_step(field.values, lowest=1, highest=31)
    if len(field.values) == 31:
        named = "on every day of the month"
    elif step is not None:
        named = f"on every {number_ordinal(step)} day of the month from day {min(field.values)}"
    else:
        named = f"on day {list_runs(field.values)} of the month"
    return join_words([named, *last])


def _describe_days_of_week(field: CronField, knows_job: bool) -> str:
    if field.is_plain_star:
        return ""
    if _is_hashed(field) and not knows_job:
        return _hidden(field, "day of the week")
    special = [f"the {ordinal(nth)} {_weekday(day)}" for day, nth in sorted(field.nth_weekdays)]
    special += [f"the last {_weekday(day)}" for day in sorted(field.last_weekdays)]
    parts = [f"on {list_runs((day or 7 for day in field.values), _weekday)}"] if field.values else []
    if special:
        parts.append(f"on {join_words(special)} of the month")
    return join_words(parts)


def _describe_months(field: CronField, knows_job: bool) -> str:
    if len(field.values) == 12:
        return ""
    if _is_hashed(field) and not knows_job:
        return f"only in {_hidden(field, 'month')}"
    return f"only in {list_runs(field.values, lambda month: MONTHS[month - 1])}"


def _every(step: int, first: int, unit: str, size: int) -> str:
    """``every 15 minutes``, and what is not obvious about it."""
    words = f"every {unit}" if step == 1 else f"every {step} {unit}s"
    if first:
        words += f" from {unit} {first}"
    return words if size % step == 0 else f"{words}, starting anew each {_PARENT[unit]}"


_PARENT = {"second": "minute", "minute": "hour"}


def _counted(field: CronField, unit: str) -> str:
    return f"{list_runs(field.values)} {unit}" + ("" if field.values == {1} else "s")


def _hidden(field: CronField, unit: str) -> str:
    place = {"hour": "at an", "minute": "at a", "second": "at a", "month": "a"}.get(unit, "on a")
    return f"{place} {unit} that the job's id decides ({field.text})"


def _is_range(hours: frozenset[int]) -> bool:
    """Whether these are hours in a row, and not all of them."""
    return max(hours) - min(hours) + 1 == len(hours) < 24


def _is_hashed(field: CronField) -> bool:
    return any(item[0] in "hH" for item in field.text.split(","))


def _weekday(number: int) -> str:
    """Name of a weekday, Sunday being 0 or 7."""
    return WEEKDAYS[(number - 1) % 7]

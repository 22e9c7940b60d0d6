"""Nights of clock changes, side by side: what is due, what Horarium fires, and what native Schedules fire.

The truth is the walk over every UTC minute in ``tests.unit.brute_force``. A *night* is twelve hours on either side of a change.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.workflowservice.v1 import ListScheduleMatchingTimesRequest
from temporalio.client import Client, Schedule, ScheduleActionStartWorkflow, ScheduleSpec, ScheduleState

import workflows.schedule as kernel
from tests.bench.document import DOCS, put_between
from tests.temporal_servers import connect_to, server_options
from tests.unit.brute_force import PlainCron, list_fires, package_zone
from workers.devserver import DevServer
from workflows.fire_times import fires_between

ZONES: Final = (
    "America/New_York",
    "Europe/Berlin",
    "Europe/London",
    "Australia/Sydney",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "Antarctica/Troll",
)

YEARS: Final = (2025, 2026)

AROUND: Final = timedelta(hours=12)

FEW: Final = 2
"""Times that are listed; more are counted."""

_MINUTE: Final = timedelta(minutes=1)

DOCUMENT: Final = DOCS / "dst.md"

MARK: Final = "<!-- made by make bench ONLY=dst -->"


@dataclass(frozen=True)
class DailyCron:
    """A cron expression for every day, with what its writer means by it."""

    title: str
    plain: PlainCron

    @property
    def is_fixed(self) -> bool:
        """Whether it names hours and minutes; others follow real time."""
        return not self.plain.starred & {"minute", "hour"}


def _daily(title: str, text: str, *, minutes: Sequence[int], hours: Sequence[int], starred: str) -> DailyCron:
    return DailyCron(
        title,
        PlainCron(
            text=text,
            seconds=frozenset({0}),
            minutes=frozenset(minutes),
            hours=frozenset(hours),
            days=frozenset(range(1, 32)),
            months=frozenset(range(1, 13)),
            weekdays=frozenset(range(7)),
            starred=frozenset({"day", "weekday", *starred.split()}),
        ),
    )


EXPRESSIONS: Final = (
    _daily("daily 02:30", "30 2 * * *", minutes=[30], hours=[2], starred=""),
    _daily("daily 01:30", "30 1 * * *", minutes=[30], hours=[1], starred=""),
    _daily("daily 02:00", "0 2 * * *", minutes=[0], hours=[2], starred=""),
    _daily("every 15 minutes", "*/15 * * * *", minutes=[0, 15, 30, 45], hours=range(24), starred="minute hour"),
    _daily("hourly", "0 * * * *", minutes=[0], hours=range(24), starred="hour"),
)


@dataclass(frozen=True)
class Night:
    """A change of a zone's clock."""

    zone: str
    change: datetime
    shift: timedelta
    """Of the local clock: forward is a gap, backward a fold."""

    @property
    def start(self) -> datetime:
        """Not included."""
        return self.change - AROUND

    @property
    def end(self) -> datetime:
        """Included."""
        return self.change + AROUND


@dataclass(frozen=True)
class Row:
    """One expression in one night; ``native`` is empty until a server was asked."""

    night: Night
    expression: DailyCron
    truth: tuple[datetime, ...]
    ours: tuple[datetime, ...]
    native: tuple[datetime, ...] = ()


def list_nights() -> list[Night]:
    """Find the changes by looking at the offset of every hour and then of every minute."""
    return [night for zone in ZONES for night in _nights_of(zone)]


def _nights_of(zone: str) -> list[Night]:
    start, end = datetime(YEARS[0], 1, 1, tzinfo=UTC), datetime(YEARS[-1] + 1, 1, 1, tzinfo=UTC)
    hours = [start + timedelta(hours=n) for n in range((end - start) // timedelta(hours=1))]
    before = [hour for hour in hours if _offset(zone, hour) != _offset(zone, hour + timedelta(hours=1))]
    return [_narrow(zone, hour) for hour in before]


def _narrow(zone: str, hour: datetime) -> Night:
    old = _offset(zone, hour)
    minutes = (hour + _MINUTE * n for n in range(1, 61))
    change = next(minute for minute in minutes if _offset(zone, minute) != old)
    return Night(zone, change, _offset(zone, change) - old)


def _offset(zone: str, moment: datetime) -> timedelta:
    offset = moment.astimezone(package_zone(zone)).utcoffset()
    assert offset is not None
    return offset


def make_rows() -> list[Row]:
    """Compare ours with the truth, for each night and expression."""
    return [_make_row(night, expression) for night in list_nights() for expression in EXPRESSIONS]


def _make_row(night: Night, expression: DailyCron) -> Row:
    fixed = expression.is_fixed
    truth = list_fires(
        expression.plain.matches,
        night.zone,
        night.start,
        night.end,
        _MINUTE,
        gap="first_valid" if fixed else "none",
        fold="first" if fixed else "both",
    )
    rule = kernel.CronRule(expression=expression.plain.text)
    schedule = kernel.Schedule(rule=rule, timezone=night.zone, jitter_window_seconds=0)
    ours = fires_between(schedule, night.start, night.end, job_id="dst", limit=1_000)
    return Row(night, expression, tuple(truth), tuple(fire.nominal for fire in ours))


async def ask_native(rows: Sequence[Row]) -> list[Row]:
    """Ask a server of our own what its Schedules would fire, by ``ListScheduleMatchingTimes``."""
    async with _temporal() as client:
        ids = {}
        for zone, expression in dict.fromkeys((row.night.zone, row.expression) for row in rows):
            ids[zone, expression] = f"{zone} {expression.plain.text}"
            await client.create_schedule(ids[zone, expression], _native_schedule(zone, expression))
        return [await _ask_row(client, row, ids[row.night.zone, row.expression]) for row in rows]


async def _ask_row(client: Client, row: Row, schedule_id: str) -> Row:
    # Native includes the start, which is not of this night here.
    start, end = Timestamp(), Timestamp()
    start.FromDatetime(row.night.start + timedelta(seconds=1))
    end.FromDatetime(row.night.end)
    request = ListScheduleMatchingTimesRequest(
        namespace=client.namespace, schedule_id=schedule_id, start_time=start, end_time=end
    )
    answer = await client.workflow_service.list_schedule_matching_times(request)
    native = tuple(moment.ToDatetime(tzinfo=UTC) for moment in answer.start_time)
    return Row(row.night, row.expression, row.truth, row.ours, native)


def _native_schedule(zone: str, expression: DailyCron) -> Schedule:
    return Schedule(
        action=ScheduleActionStartWorkflow("never", id=f"{zone}-{expression.title}", task_queue="nobody"),
        spec=ScheduleSpec(cron_expressions=[expression.plain.text], time_zone_name=zone),
        state=ScheduleState(paused=True),
    )


@asynccontextmanager
async def _temporal() -> AsyncIterator[Client]:
    with TemporaryDirectory(prefix="horarium-bench-") as folder:
        server = DevServer(server_options(Path(folder)))
        try:
            await asyncio.to_thread(server.wait_until_ready)
            yield await connect_to(server)
        finally:
            server.stop()


def to_markdown(rows: Sequence[Row]) -> str:
    """Lay the rows out, with their count first."""
    ours = sum(row.ours == row.truth for row in rows)
    native = sum(row.native == row.truth for row in rows)
    lines = [
        f"Of {len(rows)} rows, ours equal the truth in {ours}, native's in {native}.",
        "",
        "| Zone | Change (UTC) | Local clock | Schedule | Due | Horarium | Native |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    return "\n".join([*lines, *map(_markdown_row, rows)])


def _markdown_row(row: Row) -> str:
    night = row.night
    cells = (
        night.zone,
        f"{night.change:%Y-%m-%d %H:%M}",
        f"{int(night.shift.total_seconds() // 60):+d} min",
        f"{row.expression.title} `{row.expression.plain.text}`",
        _list_times(row.truth, night.zone),
        _difference(row, row.ours),
        _difference(row, row.native),
    )
    return f"| {' | '.join(cells)} |"


def _difference(row: Row, fires: Sequence[datetime]) -> str:
    """Say how fires differ from what is due: ``=``, or what is lost, and what is added."""
    lost, added = sorted(set(row.truth) - set(fires)), sorted(set(fires) - set(row.truth))
    parts = [
        f"**{verb} {_list_times(times, row.night.zone)}**"
        for verb, times in (("loses", lost), ("adds", added))
        if times
    ]
    return ", ".join(parts) or "="


def _list_times(times: Sequence[datetime], zone: str) -> str:
    if len(times) > FEW:
        return f"{len(times)} fires"
    return ", ".join(f"{moment.astimezone(package_zone(zone)):%H:%M %z}" for moment in times)


def write_document(rows: Sequence[Row]) -> None:
    """Put the table into its document."""
    put_between(DOCUMENT, MARK, to_markdown(rows))

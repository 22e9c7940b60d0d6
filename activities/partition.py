"""Monthly partitions of the mirror's large tables, on PostgreSQL.

A month's partitions are made when its first row is about to be written, in a transaction of their own before the
write. Making one blocks neither readers nor writers of the others. Each table also has a default partition, so that no
row is without a place: it holds what lies outside the years below, and the rows of any month whose partition could not be
made.

On SQLite the tables are plain, and nothing here is used.
"""

import logging
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

logger = logging.getLogger(__name__)

PARTITIONED: Final = {"runs": "scheduled_at", "attempts": "scheduled_at", "ledger": "first"}
"""Tables and the column that says which month a row belongs to."""

FIRST_MONTH: Final = date(2020, 1, 1)
END_MONTH: Final = date(2100, 1, 1)
"""Months outside go to the default partition: a backfill of a century must not make a thousand tables, each of which every
query of the whole would have to lock."""

_PARTITION_NAME: Final = re.compile(rf"({'|'.join(PARTITIONED)})_(\d{{4}}_\d{{2}}|default)")

LOCK_KEY: Final = 0x484F5241_52495531
"""Advisory lock of whoever makes partitions, so that two processes do not make the same one."""


def month_of(moment: datetime) -> date | None:
    """Name the month (UTC) whose partition holds a row of this time; ``None`` for the default partition."""
    month = moment.astimezone(UTC).date().replace(day=1)
    return month if FIRST_MONTH <= month < END_MONTH else None


def months_of(moments: Iterable[datetime]) -> frozenset[date]:
    """Name the months that need a partition."""
    return frozenset(month for month in map(month_of, moments) if month is not None)


def partition_name(table: str, month: date) -> str:
    """Name the partition of one table and month."""
    return f"{table}_{month:%Y_%m}"


def is_partition_name(name: str) -> bool:
    """Tell whether a table is a partition, by its name."""
    return _PARTITION_NAME.fullmatch(name) is not None


def existing_months(connection: Connection) -> list[date]:
    """List the months that have a partition of any table, oldest first."""
    names = (_PARTITION_NAME.fullmatch(name) for name in _existing_partitions(connection))
    months = {found[2] for found in names if found is not None and found[2] != "default"}
    return sorted(date.fromisoformat(f"{month.replace('_', '-')}-01") for month in months)


def partitions_of(connection: Connection, month: date) -> list[str]:
    """List the partitions that there are of a month, one for each table at most."""
    existing = _existing_partitions(connection)
    return [name for name in (partition_name(table, month) for table in PARTITIONED) if name in existing]


def create_partitions(connection: Connection, months: Iterable[date]) -> None:
    """Make what is missing for these months. Runs in its own transaction; a second process waits for the first."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
    existing = _existing_partitions(connection)
    for month in sorted(months):
        for table in PARTITIONED:
            if partition_name(table, month) not in existing:
                _create_partition(connection, table, month)


def _existing_partitions(connection: Connection) -> frozenset[str]:
    query = text(
        "SELECT child.relname FROM pg_inherits"
        " JOIN pg_class AS child ON child.oid = inhrelid"
        " WHERE inhparent IN (SELECT to_regclass(name) FROM unnest(CAST(:tables AS text[])) AS name)"
    )
    return frozenset(connection.execute(query, {"tables": list(PARTITIONED)}).scalars())


def _create_partition(connection: Connection, table: str, month: date) -> None:
    name = partition_name(table, month)
    # ATTACH of a table made apart waits for no reader or writer of the parent; CREATE ... PARTITION OF locks them all out.
    make = f"CREATE TABLE {name} (LIKE {table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)"
    attach = (
        f"ALTER TABLE {table} ATTACH PARTITION {name}"
        f" FOR VALUES FROM ('{month:%Y-%m-%d} 00:00:00+00') TO ('{_next_month(month):%Y-%m-%d} 00:00:00+00')"
    )
    try:
        with connection.begin_nested():
            connection.exec_driver_sql(make)
            connection.exec_driver_sql(attach)
    except DBAPIError as error:
        if not _leaves_rows_in_default(error):
            raise
        logger.warning("no partition for a month, its rows go to the default one", extra={"partition": name})


def _leaves_rows_in_default(error: DBAPIError) -> bool:
    """Tell a refusal that the default partition makes up for: no right to make tables, or rows of the month already there."""
    insufficient_privilege, check_violation = "42501", "23514"
    return getattr(error.orig, "sqlstate", None) in {insufficient_privilege, check_violation}


def _next_month(month: date) -> date:
    return date(month.year + month.month // 12, month.month % 12 + 1, 1)

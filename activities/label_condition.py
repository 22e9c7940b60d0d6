"""How jobs are chosen by their labels, in either database."""

from collections.abc import Mapping

from sqlalchemy import ColumnElement, exists, func, literal, select, type_coerce
from sqlalchemy.dialects.postgresql import JSONB

from activities.database import POSTGRESQL
from activities.mirror_row import storable
from activities.tables import JOBS


def have_labels(labels: Mapping[str, str], *, dialect: str) -> tuple[ColumnElement[bool], ...]:
    """Say that a job has all of some labels."""
    return tuple(_has_label(storable(name), storable(value), dialect=dialect) for name, value in labels.items())


def _has_label(name: str, value: str, *, dialect: str) -> ColumnElement[bool]:
    if dialect == POSTGRESQL:
        return type_coerce(JOBS.c.labels, JSONB).contains({name: value})
    label = func.json_each(JOBS.c.labels).table_valued("key", "value")
    return exists(select(literal(1)).select_from(label).where(label.c.key == name, label.c.value == value))

"""What the workers of a task queue can run, as far as they tell, and how an announcement changes it. Pure.

The names on the wire are the SDK's (``horarium.catalogue``), because that is what workers have.
"""

from datetime import datetime, timedelta
from typing import Final

from pydantic import JsonValue

from horarium.catalogue import ANNOUNCEMENT_LIMIT, HEARD_OF_FOR
from workflows.value import Value

FORGOTTEN_AFTER: Final = timedelta(days=90)
"""A catalogue that nobody has told anything for so long ends. The next announcement begins a new one."""

VERSIONS_LIMIT: Final = 3
"""Versions kept, the last heard of. A rolling deployment has two."""


class AnnouncedActivity(Value):
    """An activity of a worker."""

    payload_schema: dict[str, JsonValue] | bool | None = None
    """JSON Schema (2020-12) of the payload; ``None`` where the worker does not say."""


class Announcement(Value):
    """Argument of ``ANNOUNCE``: what one version of a worker can run."""

    version: str = ""
    activities: dict[str, AnnouncedActivity] = {}


class WorkerVersion(Value):
    """A version of a worker, and when one of its workers was heard of last."""

    version: str = ""
    seen_at: datetime
    activities: dict[str, AnnouncedActivity] = {}


class Catalogue(Value):
    """The versions heard of lately, the last one last. Workers that have gone to sleep are still in it."""

    versions: tuple[WorkerVersion, ...] = ()


class CatalogueInput(Value):
    """Input of ``CatalogueWorkflow``. Its first run is started by a worker, which gives none."""

    catalogue: Catalogue = Catalogue()


def take_in(catalogue: Catalogue, announcement: Announcement, *, now: datetime) -> Catalogue:
    """Note what a worker has told, and forget versions that nobody has renewed meanwhile."""
    others = [
        each
        for each in catalogue.versions
        if each.version != announcement.version and now - each.seen_at < HEARD_OF_FOR
    ]
    told = WorkerVersion(version=announcement.version, seen_at=now, activities=_bounded(announcement))
    return Catalogue(versions=(*others, told)[-VERSIONS_LIMIT:])


def _bounded(announcement: Announcement) -> dict[str, AnnouncedActivity]:
    """Keep the names alone of an announcement that is too large for the memo. Our SDK sends none."""
    if len(announcement.model_dump_json()) <= 2 * ANNOUNCEMENT_LIMIT:
        return announcement.activities
    return dict.fromkeys(announcement.activities, AnnouncedActivity())

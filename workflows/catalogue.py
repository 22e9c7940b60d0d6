"""What the workers of a task queue can run, as far as they tell, and how an announcement changes it. Pure.

The names on the wire are the SDK's (``horarium.catalogue``), because that is what workers have.
"""

from datetime import datetime, timedelta
from typing import Final

from pydantic import JsonValue

from horarium.catalogue import HEARD_OF_FOR, pack, unpack
from workflows.value import Value

FORGOTTEN_AFTER: Final = timedelta(days=90)
"""A catalogue that nobody has told anything for so long ends. The next announcement begins a new one."""

MEMO_LIMIT: Final = 48_000
"""Bytes of the memo. Temporal's store for lists has room for 65,535 on MySQL."""

VERSION_SHOWN: Final = 100
"""Characters of a version's own text."""

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
    version = announcement.version[:VERSION_SHOWN]
    others = [each for each in catalogue.versions if each.version != version and now - each.seen_at < HEARD_OF_FOR]
    told = WorkerVersion(version=version, seen_at=now, activities=announcement.activities)
    return _fitting((*others, told)[-VERSIONS_LIMIT:])


def to_memo(catalogue: Catalogue) -> str:
    """Write a catalogue as the memo of its workflow."""
    return pack(catalogue.model_dump(mode="json"))


def from_memo(memo: str) -> Catalogue:
    """Read the memo of a catalogue's workflow. Raises ``ValueError``."""
    return Catalogue.model_validate(unpack(memo))


def _fitting(versions: tuple[WorkerVersion, ...]) -> Catalogue:
    """Drop the oldest versions, then the schemas of the newest, at last its names, until the memo has its size."""
    newest = versions[-1]
    names = newest.model_copy(update={"activities": dict.fromkeys(newest.activities, AnnouncedActivity())})
    nothing = newest.model_copy(update={"activities": {}})
    smaller = (*(versions[start:] for start in range(len(versions))), (names,), (nothing,))
    catalogues = (Catalogue(versions=each) for each in smaller)
    return next(each for each in catalogues if len(to_memo(each)) <= MEMO_LIMIT)

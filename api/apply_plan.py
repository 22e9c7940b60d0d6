"""What applying files would do: which jobs are created, changed, left alone or removed. Pure.

A job is compared as a body: what its file means against what it is, so that spelling, order and defaults make no difference.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from pydantic import JsonValue

from api.job_body import JobRequest
from api.job_document import job_document
from api.job_file import BadFiles, FiledJob, FileError, error_in
from api.problem import FieldError
from api.strict_json import escape_pointer
from workflows.error import InvalidSchedule
from workflows.schedule import OneOffRule
from workflows.schedule_parser import check_fires

OWNER_LABEL: Final = "horarium/applied-by"
"""Label of jobs that were applied under an owner's name; only these are ever pruned."""


class Action(StrEnum):
    """What becomes of a job."""

    CREATE = "create"
    CHANGE = "change"
    PRUNE = "prune"


@dataclass(frozen=True, kw_only=True)
class Present:
    """A job that is there."""

    job_id: str
    revision: int
    body: Mapping[str, JsonValue]

    @property
    def owner(self) -> str | None:
        """Under whose name it was applied."""
        labels = self.body.get("labels")
        owner = labels.get(OWNER_LABEL) if isinstance(labels, dict) else None
        return owner if isinstance(owner, str) else None


@dataclass(frozen=True, kw_only=True)
class Step:
    """One job that is to be written or removed."""

    action: Action
    job_id: str
    place: str = ""
    """Where it is described."""

    body: Mapping[str, JsonValue] = field(default_factory=dict)
    revision: int | None = None
    """Of the job as it was compared."""

    differences: tuple[str, ...] = ()
    """A line for each field that changes."""


@dataclass(frozen=True, kw_only=True)
class ApplyPlan:
    """All that is to be done, by job id."""

    steps: tuple[Step, ...]
    unchanged: int


def owner_errors(jobs: Iterable[FiledJob]) -> Iterator[FileError]:
    """Refuse the label of an owner where a file writes it: it would be pruned, or refused, as that owner's."""
    for job in jobs:
        labels = job.body.get("labels")
        if isinstance(labels, dict) and OWNER_LABEL in labels:
            reason = "this label is not for files: --owner NAME gives it"
            yield job.error(FieldError(pointer=f"/labels/{escape_pointer(OWNER_LABEL)}", detail=reason))


def with_owner(job: FiledJob, owner: str | None) -> FiledJob:
    """Label a job with the name that it is applied under."""
    labels = job.body.get("labels") or {}
    if owner is None or not isinstance(labels, dict):
        return job
    return FiledJob(file=job.file, lines=job.lines, body={**job.body, "labels": {**labels, OWNER_LABEL: owner}})


def make_plan(
    requests: Sequence[tuple[FiledJob, JobRequest]],
    present: Mapping[str, Present],
    *,
    owner: str | None,
    prune: bool,
    take_over: bool,
    now: datetime,
) -> ApplyPlan:
    """Compare files with what is there.

    Raises:
        BadFiles: a job would never fire, or was applied under another name.
    """
    errors: list[FileError] = []
    steps: list[Step] = []
    for job, request in requests:
        found = present.get(request.job_id)
        if found is not None and found.owner not in (None, owner) and not take_over:
            reason = f"applied by {found.owner!r}: say --owner {found.owner}, or --take-over"
            errors.append(job.error(FieldError(pointer="/job_id", detail=reason)))
            continue
        step = compare(job, request, found)
        if step is None:
            continue
        try:
            _require_fires(request, is_new=found is None, now=now)
        except InvalidSchedule as error:
            errors.append(error_in(job, error))
        steps.append(step)
    if errors:
        raise BadFiles(errors)
    unchanged = len(requests) - len(steps)
    if prune:
        described = {request.job_id for _, request in requests}
        steps += [
            Step(action=Action.PRUNE, job_id=each.job_id, revision=each.revision)
            for each in present.values()
            if each.owner == owner and each.job_id not in described
        ]
    return ApplyPlan(steps=tuple(sorted(steps, key=lambda step: step.job_id)), unchanged=unchanged)


def compare(job: FiledJob, request: JobRequest, found: Present | None) -> Step | None:
    """Compare a job's file with the job as it is; ``None`` where nothing is to be done."""
    if found is None:
        return Step(action=Action.CREATE, job_id=request.job_id, place=job.place, body=job.body)
    wanted = job_document(request.definition, job_id=request.job_id, enabled=request.enabled is not False)
    present = dict(found.body)
    if request.enabled is None:
        # The file does not say: paused or not, it stays as it is.
        del wanted["enabled"]
        present.pop("enabled", None)
    differences = tuple(_differences(present, wanted, ""))
    if not differences:
        return None
    return Step(
        action=Action.CHANGE,
        job_id=request.job_id,
        place=job.place,
        body=job.body,
        revision=found.revision,
        differences=differences,
    )


def _require_fires(request: JobRequest, *, is_new: bool, now: datetime) -> None:
    if is_new and request.if_past is not None and isinstance(request.definition.schedule.rule, OneOffRule):
        return
    check_fires(request.schedule, job_id=request.job_id, after=now)


def _differences(before: Mapping[str, JsonValue], after: Mapping[str, JsonValue], prefix: str) -> Iterator[str]:
    for name in [*after, *(name for name in before if name not in after)]:
        old, new = before.get(name), after.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{prefix}{name}.")
        elif json.dumps(old, sort_keys=True) != json.dumps(new, sort_keys=True):
            yield f"{prefix}{name}: {_show(old)} -> {_show(new)}"


def _show(value: JsonValue) -> str:
    text = "(none)" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:200]}..."

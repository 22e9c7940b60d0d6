"""Everything that the API can be asked. What the methods answer is in ``answer``, what they are told in ``body``."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, TypeAlias

from pydantic import Discriminator, JsonValue, Tag

from horarium.client.answer import (
    Backfill,
    BackfillPreview,
    BulkRedrive,
    Calendar,
    CalendarSummary,
    Change,
    DeadLetter,
    Downstream,
    ExportedJob,
    Fire,
    Forecast,
    Hold,
    Job,
    JobSummary,
    LedgerEntry,
    Liveness,
    Preview,
    Problem,
    Quota,
    Readiness,
    Run,
    Triggered,
)
from horarium.client.body import CalendarBody, JobBody, JobPatch, PreviewBody, Time
from horarium.client.call import (
    PREFIX,
    UNSET,
    IfMatch,
    IfNoneMatch,
    Labels,
    Sent,
    Unset,
    given,
    listing,
    operation,
    query,
    spell_labels,
)

PAGE: Final = 200
"""Items asked for at once. The API gives up to 500."""

HOLDS_PAGE: Final = 100
"""Holds asked for at once, which is as many as the API gives: it counts the jobs of each."""

_MERGE_PATCH: Final = "application/merge-patch+json"

# In a class with a method of that name, ``list`` is no type.
_Fires: TypeAlias = list[Fire]
_Calendars: TypeAlias = list[CalendarSummary]


def _kind_of_preview(value: object) -> str:
    # A schedule that never fires is a problem with an empty list of fires.
    return "problem" if isinstance(value, dict) and "status" in value else "preview"


_Previews: TypeAlias = list[
    Annotated[Annotated[Preview, Tag("preview")] | Annotated[Problem, Tag("problem")], Discriminator(_kind_of_preview)]
]


class JobOperations:
    """Jobs: registered, read, changed, steered and deleted."""

    @operation("POST", f"{PREFIX}/jobs", Job)
    def create(self, job: JobBody, *, idempotency_key: str | None = None) -> Sent:
        """Register a job. It is readable when the answer is there."""
        return Sent(body=job, key=idempotency_key)

    @operation("PUT", f"{PREFIX}/jobs/{{job_id}}", Job, is_keyed=True)
    def put(
        self,
        job_id: str,
        job: JobBody,
        *,
        if_match: IfMatch = None,
        if_none_match: IfNoneMatch = None,
        idempotency_key: str | None = None,
    ) -> Sent:
        """Create a job, or replace the one that is there. The same body twice changes nothing.

        With ``if_none_match="*"`` it only creates: ``PreconditionFailed`` says that there is such a job already.
        """
        return Sent(names=(job_id,), body=job, if_match=if_match, if_none_match=if_none_match, key=idempotency_key)

    @operation("PATCH", f"{PREFIX}/jobs/{{job_id}}", Job, is_keyed=True)
    def update(
        self, job_id: str, patch: JobPatch, *, if_match: IfMatch = None, idempotency_key: str | None = None
    ) -> Sent:
        """Change the fields that the patch names; ``None`` brings a field's default back."""
        return Sent(names=(job_id,), body=patch, content_type=_MERGE_PATCH, if_match=if_match, key=idempotency_key)

    @operation("GET", f"{PREFIX}/jobs/{{job_id}}", Job)
    def get(self, job_id: str) -> Sent:
        """Read a job, a deleted one too."""
        return Sent(names=(job_id,))

    @operation("DELETE", f"{PREFIX}/jobs/{{job_id}}", Job, is_keyed=True)
    def delete(
        self,
        job_id: str,
        *,
        cancel_active: bool | None = None,
        if_match: IfMatch = None,
        idempotency_key: str | None = None,
    ) -> Sent:
        """Delete a job; its history stays. Deleting it again changes nothing."""
        parameters = query(cancel_active=cancel_active)
        return Sent(names=(job_id,), query=parameters, if_match=if_match, key=idempotency_key)

    @operation("POST", f"{PREFIX}/jobs/{{job_id}}/pause", Job)
    def pause(
        self,
        job_id: str,
        *,
        reason: str | None = None,
        by: str | None = None,
        until: Time | None = None,
        catch_up: str | None = None,
        if_match: IfMatch = None,
        idempotency_key: str | None = None,
    ) -> Sent:
        """Let a job fire no more until it is resumed, by ``until`` at the latest. Runs that have begun go on."""
        body = given(reason=reason, by=by, until=until, catch_up=catch_up)
        return Sent(names=(job_id,), body=body, if_match=if_match, key=idempotency_key)

    @operation("POST", f"{PREFIX}/jobs/{{job_id}}/resume", Job)
    def resume(
        self,
        job_id: str,
        *,
        catch_up: str | None = None,
        if_match: IfMatch = None,
        idempotency_key: str | None = None,
    ) -> Sent:
        """Let a paused job fire again. What fell into the pause never runs, unless ``catch_up`` is ``apply``."""
        return Sent(names=(job_id,), body=given(catch_up=catch_up), if_match=if_match, key=idempotency_key)

    @operation("POST", f"{PREFIX}/jobs/{{job_id}}/trigger", Triggered)
    def trigger(
        self,
        job_id: str,
        *,
        payload: JsonValue | Unset = UNSET,
        overlap: str | None = None,
        skip_next: bool | None = None,
        idempotency_key: str | None = None,
    ) -> Sent:
        """Run a job now, whatever its schedule says; a ``payload`` of ``None`` counts."""
        body = given(overlap=overlap, skip_next=skip_next) | ({} if payload is UNSET else {"payload": payload})
        return Sent(names=(job_id,), body=body, key=idempotency_key)

    @listing(f"{PREFIX}/jobs/{{job_id}}/ledger", list[LedgerEntry])
    def ledger(self, job_id: str, *, start: Time | None = None, end: Time | None = None, page_size: int = PAGE) -> Sent:
        """Say what became of every nominal time in a range, by default of the last week, oldest first."""
        return Sent(names=(job_id,), query=query(**{"from": start, "to": end, "limit": page_size}))

    @operation("GET", f"{PREFIX}/jobs/{{job_id}}/upcoming", _Fires)
    def upcoming(self, job_id: str, *, count: int | None = None) -> Sent:
        """List the next fires of a job."""
        return Sent(names=(job_id,), query=query(count=count))

    @listing(f"{PREFIX}/export", list[ExportedJob])
    def export(self, *, labels: Labels = None, page_size: int = PAGE) -> Sent:
        """List jobs by id as bodies that make them what they are: ``put`` with one of them changes nothing."""
        return Sent(query=query(label=spell_labels(labels), limit=page_size))

    @listing(f"{PREFIX}/jobs", list[JobSummary])
    def list(
        self,
        *,
        state: str | None = None,
        labels: Labels = None,
        name: str | None = None,
        q: str | None = None,
        target: str | None = None,
        next_after: Time | None = None,
        next_before: Time | None = None,
        page_size: int = PAGE,
    ) -> Sent:
        """List jobs by id; without a ``state`` all but the deleted ones."""
        parameters = query(
            state=state,
            label=spell_labels(labels),
            name=name,
            q=q,
            target=target,
            next_after=next_after,
            next_before=next_before,
            limit=page_size,
        )
        return Sent(query=parameters)


class RunOperations:
    """Runs of jobs."""

    @operation("GET", f"{PREFIX}/runs/{{run_id}}", Run)
    def get(self, run_id: str) -> Sent:
        """Read a run with its attempts."""
        return Sent(names=(run_id,))

    @operation("POST", f"{PREFIX}/runs/{{run_id}}/cancel", Run)
    def cancel(self, run_id: str, *, reason: str | None = None, idempotency_key: str | None = None) -> Sent:
        """Ask a run to end, wherever it stands. One that is over stays as it is."""
        return Sent(names=(run_id,), body=given(reason=reason), key=idempotency_key)

    @listing(f"{PREFIX}/jobs/{{job_id}}/runs", list[Run])
    def list(
        self,
        job_id: str,
        *,
        status: str | Sequence[str] | None = None,
        start: Time | None = None,
        end: Time | None = None,
        attempts: bool = False,
        page_size: int = PAGE,
    ) -> Sent:
        """List the runs of a job, newest first. The status ``failed`` means retrying or dead."""
        statuses = (status,) if isinstance(status, str) else tuple(status or ())
        include = "attempts" if attempts else None
        parameters = {"status": statuses, "from": start, "to": end, "include": include, "limit": page_size}
        return Sent(names=(job_id,), query=query(**parameters))


class BackfillOperations:
    """Backfills: fires of the past, run on request."""

    @operation("POST", f"{PREFIX}/jobs/{{job_id}}/backfills", Backfill)
    def create(
        self,
        job_id: str,
        *,
        start: Time,
        end: Time,
        existing: str | None = None,
        max_concurrent: int | None = None,
        rate_per_minute: float | None = None,
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> Sent:
        """Run the fires from ``start`` to ``end``, both inclusive. ``existing`` is ``skip`` or ``run_again``."""
        bounds = {"max_concurrent": max_concurrent, "rate_per_minute": rate_per_minute}
        body = given(**{"from": start, "to": end}, **bounds, existing=existing, reason=reason)
        return Sent(names=(job_id,), body=body, key=idempotency_key)

    @operation("POST", f"{PREFIX}/jobs/{{job_id}}/backfills", BackfillPreview)
    def preview(self, job_id: str, *, start: Time, end: Time, existing: str | None = None) -> Sent:
        """Say what a backfill would do, and do nothing."""
        return Sent(names=(job_id,), body=given(**{"from": start, "to": end}, existing=existing, dry_run=True))

    @operation("GET", f"{PREFIX}/backfills/{{backfill_id}}", Backfill)
    def get(self, backfill_id: str) -> Sent:
        """Say how far a backfill is."""
        return Sent(names=(backfill_id,))

    @operation("POST", f"{PREFIX}/backfills/{{backfill_id}}/pause", Backfill)
    def pause(self, backfill_id: str, *, reason: str | None = None, idempotency_key: str | None = None) -> Sent:
        """Let a backfill begin no more runs until it is resumed."""
        return Sent(names=(backfill_id,), body=given(reason=reason), key=idempotency_key)

    @operation("POST", f"{PREFIX}/backfills/{{backfill_id}}/resume", Backfill)
    def resume(self, backfill_id: str, *, reason: str | None = None, idempotency_key: str | None = None) -> Sent:
        """Let a paused backfill go on."""
        return Sent(names=(backfill_id,), body=given(reason=reason), key=idempotency_key)

    @operation("POST", f"{PREFIX}/backfills/{{backfill_id}}/cancel", Backfill)
    def cancel(
        self,
        backfill_id: str,
        *,
        cancel_active: bool | None = None,
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> Sent:
        """Let a backfill begin no more runs. Those that it has begun go on, unless ``cancel_active``."""
        body = given(cancel_active=cancel_active, reason=reason)
        return Sent(names=(backfill_id,), body=body, key=idempotency_key)

    @listing(f"{PREFIX}/jobs/{{job_id}}/backfills", list[Backfill])
    def list(self, job_id: str, *, page_size: int = PAGE) -> Sent:
        """List the backfills of a job, those asked for last first."""
        return Sent(names=(job_id,), query=query(limit=page_size))


class DeadLetterOperations:
    """Runs that are dead, and how they are run again."""

    @operation("POST", f"{PREFIX}/dead-letters/{{run_id}}/redrive", Run)
    def redrive(self, run_id: str, *, idempotency_key: str | None = None) -> Sent:
        """Run a dead run again, with its idempotency key and its checkpoint. Asked again, it is the same run."""
        return Sent(names=(run_id,), key=idempotency_key)

    @operation("POST", f"{PREFIX}/dead-letters/redrive", BulkRedrive)
    def redrive_many(
        self,
        *,
        every: bool | None = None,
        job: str | None = None,
        reason: str | None = None,
        start: Time | None = None,
        end: Time | None = None,
        labels: dict[str, str] | None = None,
        rate_per_minute: float | None = None,
        limit: int | None = None,
        idempotency_key: str | None = None,
    ) -> Sent:
        """Redrive what the filter names, or with ``every`` all there is, in the background and at a rate."""
        chosen = {"all": every, "job": job, "reason": reason, "from": start, "to": end, "labels": labels}
        body = given(**chosen, rate_per_minute=rate_per_minute, limit=limit)
        return Sent(body=body, key=idempotency_key)

    @operation("GET", f"{PREFIX}/dead-letters/redrives/{{redrive_id}}", BulkRedrive)
    def get_redrive(self, redrive_id: str) -> Sent:
        """Say how far a redrive of many is."""
        return Sent(names=(redrive_id,))

    @operation("POST", f"{PREFIX}/dead-letters/redrives/{{redrive_id}}/cancel", BulkRedrive)
    def cancel_redrive(self, redrive_id: str, *, idempotency_key: str | None = None) -> Sent:
        """Let a redrive of many begin no more. What it has begun goes on."""
        return Sent(names=(redrive_id,), key=idempotency_key)

    @listing(f"{PREFIX}/dead-letters", list[DeadLetter])
    def list(
        self,
        *,
        job: str | None = None,
        reason: str | None = None,
        start: Time | None = None,
        end: Time | None = None,
        labels: Labels = None,
        redriven: str | None = None,
        page_size: int = PAGE,
    ) -> Sent:
        """List dead runs over all jobs, those that ended last first. ``redriven`` is ``false``, ``true`` or ``any``."""
        chosen = {"job": job, "reason": reason, "from": start, "to": end, "label": spell_labels(labels)}
        return Sent(query=query(**chosen, redriven=redriven, limit=page_size))


class DownstreamOperations:
    """What jobs call: circuit breakers and retry budgets."""

    @operation("GET", f"{PREFIX}/downstreams/{{name}}", Downstream)
    def get(self, name: str) -> Sent:
        """Say how one downstream stands."""
        return Sent(names=(name,))

    @operation("POST", f"{PREFIX}/downstreams/{{name}}/reset", Downstream)
    def reset(self, name: str, *, idempotency_key: str | None = None) -> Sent:
        """Close its circuit breaker now; parked runs return spread out."""
        return Sent(names=(name,), key=idempotency_key)

    @listing(f"{PREFIX}/downstreams", list[Downstream])
    def list(self, *, page_size: int = PAGE) -> Sent:
        """List what jobs call, by name."""
        return Sent(query=query(limit=page_size))


class CalendarOperations:
    """Named sets of days."""

    @operation("GET", f"{PREFIX}/calendars/{{name}}", Calendar)
    def get(self, name: str) -> Sent:
        """Read a calendar, all its days, and which jobs use it."""
        return Sent(names=(name,))

    @operation("PUT", f"{PREFIX}/calendars/{{name}}", Calendar)
    def put(self, name: str, calendar: CalendarBody) -> Sent:
        """Create or replace a calendar. Jobs that use it take on its new days."""
        return Sent(names=(name,), body=calendar)

    # Has no key: repeated after its answer was lost, it would find nothing to delete.
    @operation("DELETE", f"{PREFIX}/calendars/{{name}}", Calendar, is_repeatable=False)
    def delete(self, name: str) -> Sent:
        """Delete a calendar that no job uses."""
        return Sent(names=(name,))

    @operation("GET", f"{PREFIX}/calendars", _Calendars)
    def list(self) -> Sent:
        """List all calendars by name."""
        return Sent()


class HoldOperations:
    """Jobs that do not fire for a while, chosen by their labels."""

    @operation("POST", f"{PREFIX}/holds", Hold)
    def create(
        self,
        selector: str | Mapping[str, str],
        *,
        reason: str | None = None,
        by: str | None = None,
        until: Time | None = None,
        catch_up: str | None = None,
        dry_run: bool | None = None,
        idempotency_key: str | None = None,
    ) -> Sent:
        """Hold jobs with all of some labels, ``env=prod,tier=2`` or ``all``; those that come later, too."""
        asked = given(selector=selector, reason=reason, by=by, until=until, catch_up=catch_up, dry_run=dry_run)
        return Sent(body=asked, key=idempotency_key)

    @operation("GET", f"{PREFIX}/holds/{{hold_id}}", Hold)
    def get(self, hold_id: str) -> Sent:
        """Read a hold, and which jobs it is over."""
        return Sent(names=(hold_id,))

    @operation("POST", f"{PREFIX}/holds/{{hold_id}}/release", Hold)
    def release(self, hold_id: str, *, catch_up: str | None = None, idempotency_key: str | None = None) -> Sent:
        """End a hold now."""
        return Sent(names=(hold_id,), body=given(catch_up=catch_up), key=idempotency_key)

    @operation("DELETE", f"{PREFIX}/holds/{{hold_id}}", Hold)
    def delete(self, hold_id: str) -> Sent:
        """End a hold now, as it says itself."""
        return Sent(names=(hold_id,))

    @listing(f"{PREFIX}/holds", list[Hold])
    def list(self, *, state: str | None = None, page_size: int = HOLDS_PAGE) -> Sent:
        """List holds, the newest first. ``state`` is ``in_force`` by default, ``over`` or ``any``."""
        return Sent(query=query(state=state, limit=page_size))


class ServiceOperations:
    """What belongs to no job: previews, the tenant, and the API itself."""

    @operation("POST", f"{PREFIX}/preview", Preview)
    def preview(self, schedule: PreviewBody) -> Sent:
        """Show what a schedule would do."""
        return Sent(body=schedule)

    @operation("POST", f"{PREFIX}/preview", _Previews)
    def preview_each(self, schedules: Sequence[PreviewBody]) -> Sent:
        """Show what many schedules would do, up to a thousand, with a ``Problem`` in the place of each bad one."""
        return Sent(body=list(schedules))

    @operation("GET", f"{PREFIX}/forecast", Forecast)
    def forecast(self, *, start: Time | None = None, end: Time | None = None, step: str | None = None) -> Sent:
        """Count the fires ahead of all jobs, step by step."""
        return Sent(query=query(**{"from": start, "to": end, "step": step}))

    @listing(f"{PREFIX}/audit", list[Change])
    def audit(
        self,
        *,
        job: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        start: Time | None = None,
        end: Time | None = None,
        page_size: int = PAGE,
    ) -> Sent:
        """List who changed what, the newest change first."""
        parameters = {"job": job, "actor": actor, "action": action, "from": start, "to": end, "limit": page_size}
        return Sent(query=query(**parameters))

    @operation("GET", f"{PREFIX}/quota", Quota)
    def quota(self) -> Sent:
        """Say what the tenant may have, and what it has."""
        return Sent()

    @operation("GET", "/healthz", Liveness)
    def liveness(self) -> Sent:
        """Say that the API's process lives."""
        return Sent()

    @operation("GET", "/readyz", Readiness, answers_503=True)
    def readiness(self) -> Sent:
        """Say whether jobs can be read and written."""
        return Sent()

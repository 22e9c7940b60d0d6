"""The commands about backfills: ``horarium backfill JOB --from --to``, and those that list, show and steer them."""

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer.core import TyperGroup

from api.cli_input import CommandFailed, JobId

if TYPE_CHECKING:
    from horarium.client import Backfill as Progress
    from horarium.client import BackfillPreview

POLL_SECONDS: Final = 1.0


class BackfillGroup(TyperGroup):
    """``horarium backfill JOB`` is ``horarium backfill create JOB``."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Take what is no command for the arguments of ``create``."""
        is_command = not args or args[0] in self.commands or args[0] == "--help"
        return super().parse_args(ctx, args if is_command else ["create", *args])


backfills_app = typer.Typer(
    help="Run fires of the past: `backfill JOB --from --to`.", cls=BackfillGroup, no_args_is_help=True
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as the API answers it.")]
Backfill = Annotated[str, typer.Argument(metavar="ID", help="As `backfill JOB` says it.")]
Reason = Annotated[str | None, typer.Option(help="For people.")]
Watch = Annotated[bool, typer.Option("--watch", help="Show how far it is until it is over.")]


@backfills_app.command("create")
def create_backfill(
    job: JobId,
    start: Annotated[str, typer.Option("--from", help="First nominal time; without an offset, in the job's zone.")],
    end: Annotated[str, typer.Option("--to", help="Last nominal time, inclusive; not in the future.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say how many fires there are, and do nothing.")] = False,
    existing: Annotated[
        str | None,
        typer.Option(
            help="skip or run_again: what becomes of times that have a run. Default: skip, as far back as runs are kept."
        ),
    ] = None,
    max_concurrent: Annotated[int | None, typer.Option(help="Runs under way at once. Default: 1.")] = None,
    rate: Annotated[float | None, typer.Option(help="Runs begun a minute, at most. Default: no bound.")] = None,
    reason: Reason = None,
    idempotency_key: Annotated[
        str | None, typer.Option("--idempotency-key", help="Repeated with it, nothing is done twice.")
    ] = None,
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """Run the fires of a range of the past. What has run already is passed over, unless --existing run_again."""
    from api.cli_client import open_client

    if dry_run:
        return _preview(job, start, end, existing=existing, as_json=as_json)
    with open_client() as client:
        backfill = client.backfills.create(
            job,
            start=start,
            end=end,
            existing=existing,
            max_concurrent=max_concurrent,
            rate_per_minute=rate,
            reason=reason,
            idempotency_key=idempotency_key,
        )
    _watch(backfill.backfill_id, as_json=as_json) if watch else _show(backfill, as_json=as_json)


@backfills_app.command("list")
def list_backfills(job: JobId, limit: Annotated[int, typer.Option(min=1)] = 50, as_json: AsJson = False) -> None:
    """List the backfills of a job, those asked for last first."""
    from api.cli_client import documents, open_client, page_size, print_json
    from api.cli_table import print_backfills

    with open_client() as client:
        found = documents(client.backfills.list(job, page_size=page_size(limit)), limit=limit)
    print_json(found) if as_json else print_backfills(found)


@backfills_app.command("show")
def show_backfill(backfill: Backfill, watch: Watch = False, as_json: AsJson = False) -> None:
    """Say what a backfill is, and how far."""
    from api.cli_client import open_client, print_json
    from api.cli_table import print_job

    if watch:
        return _watch(backfill, as_json=as_json)
    with open_client() as client:
        found = client.backfills.get(backfill)
    print_json(found) if as_json else print_job(found.document)


@backfills_app.command("pause")
def pause_backfill(backfill: Backfill, reason: Reason = None, as_json: AsJson = False) -> None:
    """Let a backfill begin no more runs until it is resumed."""
    from api.cli_client import open_client

    with open_client() as client:
        paused = client.backfills.pause(backfill, reason=reason)
    _show(paused, as_json=as_json)


@backfills_app.command("resume")
def resume_backfill(backfill: Backfill, reason: Reason = None, as_json: AsJson = False) -> None:
    """Let a paused backfill go on."""
    from api.cli_client import open_client

    with open_client() as client:
        resumed = client.backfills.resume(backfill, reason=reason)
    _show(resumed, as_json=as_json)


@backfills_app.command("cancel")
def cancel_backfill(
    backfill: Backfill,
    cancel_active: Annotated[
        bool, typer.Option("--cancel-active", help="Cancel what it has begun too, rather than let it end.")
    ] = False,
    reason: Reason = None,
    as_json: AsJson = False,
) -> None:
    """Let a backfill begin no more runs."""
    from api.cli_client import open_client

    with open_client() as client:
        cancelled = client.backfills.cancel(backfill, cancel_active=cancel_active or None, reason=reason)
    _show(cancelled, as_json=as_json)


def _preview(job: str, start: str, end: str, *, existing: str | None, as_json: bool) -> None:
    from api.cli_client import open_client, print_json
    from api.cli_table import print_line

    with open_client() as client:
        found = client.backfills.preview(job, start=start, end=end, existing=existing)
    print_json(found) if as_json else print_line(_preview_line(found))


def _watch(backfill: str, *, as_json: bool) -> None:
    """Show a backfill each time that it is further, until it is over. Fails where a run is dead, or it was not done."""
    from api.cli_client import open_client

    shown = ""
    with open_client() as client:
        while True:
            found = client.backfills.get(backfill)
            if (line := _progress_line(found)) != shown:
                _show(found, as_json=as_json)
            shown = line
            if found.is_over:
                break
            time.sleep(POLL_SECONDS)
    if found.status != "done":
        raise CommandFailed(f"backfill {backfill} is {found.status}: {found.reason or 'no reason was given'}")
    if found.dead:
        raise CommandFailed(f"{found.dead} runs are dead; see `horarium dead-letters list --job {found.job_id}`")


def _preview_line(found: "BackfillPreview") -> str:
    document = found.document
    if not found.total:
        return f"{found.job_id} has no fires in this range"
    excluded = f"; {found.excluded} more are excluded" if found.excluded else ""
    existing = f"; {found.existing_runs} of these times have a run already" if found.existing_runs else ""
    return f"{_fires(found.total)} from {document['first']} to {document['last']}{existing}{excluded}"


def _progress_line(found: "Progress") -> str:
    counts = {
        "succeeded": found.succeeded,
        "dead": found.dead,
        "cancelled": found.cancelled,
        "skipped": found.skipped,
        "running": len(found.running),
    }
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    trouble = f"; waits: {found.trouble}" if found.trouble else ""
    progress = f"{found.done} of {_fires(found.total)}{f' ({told})' if told else ''}"
    return f"backfill {found.backfill_id} is {found.status}: {progress}{trouble}"


def _fires(count: int) -> str:
    return f"{count} fire" if count == 1 else f"{count} fires"


def _show(found: "Progress", *, as_json: bool) -> None:
    from api.cli_client import print_json
    from api.cli_table import print_line

    print_json(found) if as_json else print_line(_progress_line(found))

"""The command line: ``horarium``.

Thin: it reads what the user gives, calls the API or starts a process, and shows the answer. Heavy modules are imported
by the command that needs them, so that ``--help`` and ``preview`` start at once. Exit codes: 0 done, 1 not done, 2 what
was given is wrong.
"""

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn, cast

import typer
from pydantic import JsonValue

from api.cli_backfills import backfills_app
from api.cli_calendars import calendars_app
from api.cli_dead_letters import dead_letters_app
from api.cli_downstreams import downstreams_app
from api.cli_encryption import encryption_app
from api.cli_fires import list_ledger, list_upcoming
from api.cli_hold import hold_app
from api.cli_input import (
    API_KEY,
    KEY_VARIABLE,
    BadInput,
    CommandFailed,
    JobId,
    given,
    list_bodies,
    read_api_key,
    read_bytes,
    read_document,
    read_headers,
    read_json,
    read_labels,
    read_schedule,
    read_target,
    read_value,
)
from api.cli_keys import keys_app
from api.cli_mirror import mirror_app
from api.cli_steer import Revision, RunsGroup, cancel_runs, edit_job, pause_job, resume_job, trigger_job
from api.cli_tenants import tenants_app
from api.problem import problem_of
from workers.loading import loading
from workflows.error import HorariumError

if TYPE_CHECKING:
    from horarium.client import JobBody

WRONG: Final = 2

DATA_DIR: Final = Path(".data")

app = typer.Typer(
    help="Durable cron on Temporal.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
jobs_app = typer.Typer(help="Register, read, change, steer and delete jobs.", no_args_is_help=True)
runs_app = typer.Typer(help="List the runs of a job, newest first; cancel runs.", cls=RunsGroup, no_args_is_help=True)
app.add_typer(jobs_app, name="jobs")
app.add_typer(runs_app, name="runs")
app.add_typer(backfills_app, name="backfill")
app.add_typer(dead_letters_app, name="dead-letters")
app.add_typer(downstreams_app, name="downstreams")
app.add_typer(keys_app, name="keys")
app.add_typer(tenants_app, name="tenants")
app.add_typer(mirror_app, name="mirror")
app.add_typer(calendars_app, name="calendars")
app.add_typer(encryption_app, name="encryption")
app.add_typer(hold_app, name="hold")

DISTRIBUTION: Final = "horarium-server"

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as the API answers it.")]
Zone = Annotated[str | None, typer.Option("--timezone", "-z", help="IANA name, such as Europe/Berlin. Default: UTC.")]
Count = Annotated[int, typer.Option("--count", "-n", min=0, max=1_000, help="How many fires.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"horarium {version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def before_the_command(
    show_version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and stop.")
    ] = False,
    api_key: Annotated[
        str | None,
        typer.Option(
            "--api-key",
            metavar="KEY",
            envvar=KEY_VARIABLE,
            help="For the API. Better in the environment: others on this machine can see what a command was given.",
        ),
    ] = None,
) -> None:
    """Durable cron on Temporal."""
    API_KEY.set(read_api_key(api_key))


def main() -> NoReturn:
    """Run a command and leave with its exit code."""
    code = _run()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            # Whoever read the output has seen enough.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    # The Temporal library sometimes aborts at the interpreter's own exit, when all work is done.
    os._exit(code)


def _run() -> int:
    try:
        app()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except CommandFailed as error:
        return _say(str(error), error.code)
    except BadInput as error:
        return _say(str(error), WRONG)
    except HorariumError as error:
        return _say(problem_of(error).detail, WRONG)
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130
    return 0


def _say(message: str, code: int) -> int:
    print(f"horarium: {message}", file=sys.stderr)
    return code


@app.command()
def dev(
    data_dir: Annotated[Path, typer.Option(help="Where everything is kept, logs included.")] = DATA_DIR,
    api_port: Annotated[int, typer.Option(help="Port of the API.")] = 8000,
    temporal_port: Annotated[int, typer.Option(help="Port of the Temporal server.")] = 7233,
    ui_port: Annotated[int, typer.Option(help="Port of Temporal's Web UI.")] = 8233,
    examples: Annotated[
        bool, typer.Option("--examples/--no-examples", help="Whether to apply the example jobs.")
    ] = True,
) -> None:
    """Start everything on this machine: Temporal, a worker, the API and example jobs. Ctrl-C stops it."""
    from api.cli_apply import apply_examples, check_examples
    from workers.dev_stack import DevOptions, run_dev_stack

    if examples:
        check_examples()
    options = DevOptions(
        data_dir=data_dir,
        api_port=api_port,
        temporal_port=temporal_port,
        ui_port=ui_port,
        apply_jobs=apply_examples if examples else None,
    )
    raise typer.Exit(run_dev_stack(options))


@app.command("apply")
def apply_jobs(
    file: Annotated[
        list[str], typer.Option("--file", "-f", metavar="FILE|DIR|-", help="YAML or JSON of jobs. May be repeated.")
    ],
    owner: Annotated[
        str | None, typer.Option(help="Whose jobs these are: they get a label, and nobody else's are touched.")
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove jobs that the owner has applied and the files no longer describe.")
    ] = False,
    take_over: Annotated[bool, typer.Option("--take-over", help="Write jobs of other owners too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
) -> None:
    """Make jobs what files say. What is so already is left alone."""
    from api.cli_apply import apply_files

    raise typer.Exit(apply_files(file, owner=owner, prune=prune, take_over=take_over, dry_run=dry_run))


@app.command()
def export(
    label: Annotated[list[str] | None, typer.Option(metavar="KEY:VALUE", help="May be repeated.")] = None,
) -> None:
    """Print jobs as a file that apply takes."""
    from api.cli_apply import export_jobs

    export_jobs(labels=label or [])


@app.command()
def schema() -> None:
    """Print the JSON Schema of a file of jobs, for editors."""
    from api.cli_apply import print_schema

    print_schema()


@app.command()
def preview(
    schedule: Annotated[str | None, typer.Argument(help='Such as "0 9 * * 1", "@every 15m" or a JSON object.')] = None,
    timezone: Zone = None,
    after: Annotated[str | None, typer.Option(help="Show fires after this time. Default: now.")] = None,
    count: Count = 5,
    job_id: Annotated[str | None, typer.Option(help="Decides the jitter, and what H means.")] = None,
    jitter_window_seconds: Annotated[float | None, typer.Option(help="Width of the jitter window.")] = None,
    dst_gap: Annotated[str | None, typer.Option(help="first_valid, skip or keep_offset.")] = None,
    dst_fold: Annotated[str | None, typer.Option(help="first, second or both.")] = None,
    start_at: Annotated[str | None, typer.Option(help="No fire before this time.")] = None,
    end_at: Annotated[str | None, typer.Option(help="No fire after this time.")] = None,
    batch: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="A JSON list of previews; prints the list of answers.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show when a schedule fires. Needs no server."""
    if batch is not None:
        if schedule is not None:
            raise BadInput("give a schedule or --batch, not both")
        _preview_batch(batch)
        return
    if schedule is None:
        raise BadInput('give a schedule, such as: horarium preview "0 9 * * 1"')
    dst = given({"gap": dst_gap, "fold": dst_fold})
    fields: dict[str, JsonValue] = {
        "schedule": read_schedule(schedule),
        "timezone": timezone,
        "after": after,
        "count": count,
        "job_id": job_id,
        "jitter_window_seconds": jitter_window_seconds,
        "dst": dst or None,
        "start_at": start_at,
        "end_at": end_at,
    }
    _preview_one(given(fields), as_json=as_json)


def _preview_one(body: dict[str, JsonValue], *, as_json: bool) -> None:
    from api.cli_table import print_preview
    from api.preview import preview as compute

    answer = compute(body, now=datetime.now(UTC))
    if as_json:
        print(answer.model_dump_json())
    else:
        print_preview(answer.model_dump(mode="json"))


def _preview_batch(name: str) -> None:
    from api.preview import dump_answers, preview_each

    bodies = read_json(read_bytes(name), name=name)
    if not isinstance(bodies, list):
        raise BadInput(f"{name}: expected a JSON list of previews")
    print(dump_answers(preview_each(bodies, now=datetime.now(UTC))))


@app.command("forecast")
def show_forecast(
    start: Annotated[str | None, typer.Option("--from", help="Where the first step begins. Default: now.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Default: a day later.")] = None,
    step: Annotated[str | None, typer.Option(help="Such as 15m, 1h or PT6H. Default: 1h.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show how many runs are to start in each step of a time, and where they crowd."""
    from api.cli_client import open_client, print_json
    from api.cli_forecast import print_forecast

    with open_client() as client:
        found = client.forecast(start=start, end=end, step=step)
    print_json(found) if as_json else print_forecast(found)


@jobs_app.command("create")
def create_job(
    name: Annotated[str | None, typer.Argument(help="Also the activity, unless --activity says another.")] = None,
    schedule: Annotated[str | None, typer.Argument(help='Such as "0 9 * * 1", "@every 15m" or a JSON object.')] = None,
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE|-", help="JSON or YAML: a body, or a list of them.")
    ] = None,
    timezone: Zone = None,
    job_id: Annotated[str | None, typer.Option(help="Your own id. Default: one is made.")] = None,
    activity: Annotated[str | None, typer.Option(help="The activity to run.")] = None,
    url: Annotated[str | None, typer.Option(help="Instead of an activity: where to send an HTTP request.")] = None,
    method: Annotated[str | None, typer.Option(help="With --url. Default: POST.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help='With --url; JSON such as {"$secret": "name"} too. May be repeated.'),
    ] = None,
    body: Annotated[str | None, typer.Option(help="JSON, with --url. Default: the payload.")] = None,
    signing_secret: Annotated[str | None, typer.Option(help="With --url: the secret that signs the request.")] = None,
    workflow: Annotated[str | None, typer.Option(help="Instead of an activity: the type of a workflow.")] = None,
    task_queue: Annotated[str | None, typer.Option(help="Where its workers listen.")] = None,
    payload: Annotated[str | None, typer.Option(help="JSON, given to each run.")] = None,
    owner: Annotated[str | None, typer.Option(help="A team or a person to ask.")] = None,
    description: Annotated[str | None, typer.Option()] = None,
    label: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="May be repeated.")] = None,
    if_past: Annotated[str | None, typer.Option(help="run_now or skip, of a time that has passed.")] = None,
    overlap: Annotated[str | None, typer.Option(help="skip, buffer_one, allow, ...")] = None,
    missed_window: Annotated[str | None, typer.Option(help="SKIP, RUN_ONCE, RUN_ALL or DEADLINE.")] = None,
    max_delay_seconds: Annotated[float | None, typer.Option(help="With DEADLINE.")] = None,
    max_retries: Annotated[int | None, typer.Option()] = None,
    timeout_seconds: Annotated[float | None, typer.Option(help="For one attempt.")] = None,
    paused: Annotated[bool, typer.Option("--paused", help="Create it paused.")] = False,
    idempotency_key: Annotated[str | None, typer.Option(help="Repeated with it, nothing is done twice.")] = None,
    as_json: AsJson = False,
) -> None:
    """Register a job. Options go before what a file says."""
    target = read_target(
        activity=given({"activity": activity}),
        http=given(
            {
                "url": url,
                "method": method,
                "headers": read_headers(header or []) or None,
                "body": None if body is None else read_value(body, option="--body"),
                "signature": None if signing_secret is None else {"$secret": signing_secret},
            }
        ),
        workflow=given({"workflow": workflow}),
        task_queue=task_queue,
    )
    options = given(
        {
            "name": name,
            "schedule": None if schedule is None else read_schedule(schedule),
            "timezone": timezone,
            "job_id": job_id,
            "target": target,
            "payload": None if payload is None else read_value(payload, option="--payload"),
            "owner": owner,
            "description": description,
            "labels": read_labels(label) if label else None,
            "if_past": if_past,
            "overlap": overlap,
            "missed_window": missed_window,
            "max_delay_seconds": max_delay_seconds,
            "max_retries": max_retries,
            "timeout_seconds": timeout_seconds,
            "enabled": False if paused else None,
        }
    )
    bodies = [{}] if file is None else list_bodies(read_document(file), name=file)
    if len(bodies) > 1 and (options or idempotency_key):
        raise BadInput("options and a key are for one job; the file has several")
    _create_jobs([{**body, **options} for body in bodies], key=idempotency_key, as_json=as_json)


def _create_jobs(bodies: Sequence[dict[str, JsonValue]], *, key: str | None, as_json: bool) -> None:
    from api.cli_client import open_client, print_json
    from api.cli_table import print_line

    with open_client() as client:
        for body in bodies:
            job = client.jobs.create(cast("JobBody", body), idempotency_key=key)
            if as_json:
                print_json(job)
                continue
            print_line(f"created {job.job_id} ({job.name}); next run: {job.document['next_run_at'] or 'none'}")
            for warning in job.warnings:
                print(f"warning: {warning}", file=sys.stderr)


@jobs_app.command("list")
def list_jobs(
    state: Annotated[
        str | None, typer.Option(help="active, paused, completed or deleted. Default: all but deleted.")
    ] = None,
    label: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="May be repeated.")] = None,
    q: Annotated[
        str | None, typer.Option("--search", "-q", help="Part of id, name, description, owner or target.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Exactly this name.")] = None,
    target: Annotated[str | None, typer.Option(help="Exactly this activity, workflow, or method and URL.")] = None,
    next_after: Annotated[str | None, typer.Option(help="With a next fire at this time or later.")] = None,
    next_before: Annotated[str | None, typer.Option(help="With a next fire at this time or earlier.")] = None,
    limit: Annotated[int, typer.Option(min=1)] = 100,
    as_json: AsJson = False,
) -> None:
    """List jobs."""
    from api.cli_client import documents, open_client, page_size, print_json
    from api.cli_table import print_jobs

    with open_client() as client:
        jobs = client.jobs.list(
            state=state,
            labels=label,
            q=q,
            name=name,
            target=target,
            next_after=next_after,
            next_before=next_before,
            page_size=page_size(limit),
        )
        found = documents(jobs, limit=limit)
    print_json(found) if as_json else print_jobs(found)


@jobs_app.command("show")
def show_job(job: JobId, as_json: AsJson = False) -> None:
    """Show one job."""
    from api.cli_client import open_client, print_json
    from api.cli_table import print_job

    with open_client() as client:
        found = client.jobs.get(job)
    print_json(found) if as_json else print_job(found.document)


@jobs_app.command("delete")
def delete_job(
    job: JobId,
    cancel_active: Annotated[bool, typer.Option("--cancel-active", help="Cancel runs that are active.")] = False,
    revision: Revision = None,
    as_json: AsJson = False,
) -> None:
    """Delete a job; its history stays."""
    from api.cli_client import open_client, print_json
    from api.cli_table import print_line

    with open_client() as client:
        found = client.jobs.delete(job, cancel_active=True if cancel_active else None, if_match=revision)
    print_json(found) if as_json else print_line(f"deleted {found.job_id} ({found.name})")


for name, command in (
    ("edit", edit_job),
    ("pause", pause_job),
    ("resume", resume_job),
    ("trigger", trigger_job),
    ("ledger", list_ledger),
    ("upcoming", list_upcoming),
):
    jobs_app.command(name)(command)

runs_app.command("cancel")(cancel_runs)


@runs_app.command("list")
def list_runs(
    job: JobId,
    status: Annotated[str | None, typer.Option(help="A status, several with commas, or failed.")] = None,
    limit: Annotated[int, typer.Option(min=1)] = 20,
    attempts: Annotated[bool, typer.Option("--attempts", help="With --json: the attempts too.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the runs of a job, newest first."""
    from api.cli_client import documents, open_client, page_size, print_json
    from api.cli_table import print_runs

    with open_client() as client:
        runs = client.runs.list(job, status=status, attempts=attempts, page_size=page_size(limit))
        found = documents(runs, limit=limit)
    print_json(found) if as_json else print_runs(found)


@app.command()
def audit(
    job: Annotated[str | None, typer.Option(help="Only of this job.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only by the key with this id.")] = None,
    action: Annotated[str | None, typer.Option(help="Only of this kind, such as job.create.")] = None,
    start: Annotated[str | None, typer.Option("--from", help="Only from this time on.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Only up to this time.")] = None,
    limit: Annotated[int, typer.Option(min=1)] = 50,
    as_json: AsJson = False,
) -> None:
    """List who changed what, the newest change first."""
    from api.cli_client import documents, open_client, page_size, print_json
    from api.cli_table import print_changes

    with open_client() as client:
        changes = client.audit(job=job, actor=actor, action=action, start=start, end=end, page_size=page_size(limit))
        found = documents(changes, limit=limit)
    print_json(found) if as_json else print_changes(found)


@app.command()
def api(
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65_535, help="Default: 8000.")] = None,
) -> None:
    """Serve the HTTP API."""
    with loading():
        from api.server import serve
        from workers.process import run_process
        from workers.settings import InvalidSettings, read_settings

    try:
        settings = read_settings({"api_host": host, "api_port": port})
    except InvalidSettings as error:
        raise BadInput(str(error)) from error
    run_process(settings, serve)


@app.command()
def worker(
    role: Annotated[str | None, typer.Option(help="scheduler, job or both. Default: both.")] = None,
    activities: Annotated[str | None, typer.Option(help="Modules with job code, separated by commas.")] = None,
    task_queues: Annotated[str | None, typer.Option(help="Queues whose jobs it runs, separated by commas.")] = None,
) -> None:
    """Run a worker: jobs' workflows, job code, or both."""
    with loading():
        from workers.process import run_process
        from workers.settings import InvalidSettings, read_settings
        from workers.worker_service import serve_until_signalled

    try:
        settings = read_settings({"role": role, "activities": activities, "task_queues": task_queues})
    except InvalidSettings as error:
        raise BadInput(str(error)) from error
    run_process(settings, serve_until_signalled)


@app.command()
def restore(
    lost_at: Annotated[
        str | None,
        typer.Option(
            help="When Temporal's data was lost. Default: soon after the last thing that the mirror knows of."
        ),
    ] = None,
    rate: Annotated[float, typer.Option(min=0.1, max=1_000, help="Jobs started a second.")] = 20,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start the jobs of the mirror in a Temporal that has lost them. What is there is left alone."""
    from api.cli_restore import run_restore

    run_restore(lost_at=lost_at, rate=rate, dry_run=dry_run, as_json=as_json)

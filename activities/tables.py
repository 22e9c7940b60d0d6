"""The tables, and what each of them is.

**Mirror** (``jobs``, ``runs``, ``attempts``, ``ledger``, ``backfills``): what the workflows reported, so that people can search
it. It decides nothing, and is rebuilt from Temporal when lost. Only ``mirror_writer`` writes it, but for one column. Every row
carries the ``version`` of the record that it shows, and only a higher version replaces it: late, repeated and reordered writes
change nothing.

**Reports** (``gate_reports``): what processes have said of themselves lately, so that people can see it. Old ones mean nothing.

**Store** (``idempotency_records``, ``effect_claims``, ``api_keys``, ``tenants``, ``quota_claims``, ``audit_entries``,
``calendars``, ``task_queue_grants``, ``holds``): the truth, found nowhere else, to be backed up. Each table has one owner, named
below.

There are no foreign keys: a run may be recorded before its job, an attempt before its run. On PostgreSQL ``runs``, ``attempts``
and ``ledger`` are partitioned by month (see ``partition``), which is why their keys hold the nominal time.

The tables have a registry of their own, because a worker also loads the modules of teams, who may use SQLModel themselves.
Columns that show a field of a value bear its name; the value's docstring says what it means.
"""

from datetime import UTC, datetime

from pydantic import JsonValue
from sqlalchemy import JSON, BigInteger, Dialect, Float, Index, LargeBinary, MetaData, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import registry
from sqlalchemy.types import DateTime, TypeDecorator
from sqlmodel import Field, SQLModel

from activities.mirror_row import JsonText
from horarium.effect_sql import effect_claims_table

NAMING = {
    "pk": "pk_%(table_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
}
"""Names that both databases give alike, so that a migration can name what it changes."""

_WITH_A_NOMINAL_TIME = text("kind IN ('scheduled', 'catch_up')")
_BACKFILLED = text("kind = 'backfill'")
_NOT_FINISHED_JOBS = text("state = 'active'")
_DEAD = text("status = 'dead'")
_PARKED = text("status = 'parked'")
_CALLS_SOMETHING = text("downstream <> '' AND state <> 'deleted'")
_WITH_CALENDARS = text("calendars IS NOT NULL")
_HELD = text("holds IS NOT NULL")
_NOT_RELEASED = text("released_at IS NULL")


class UtcDateTime(TypeDecorator[datetime]):
    """An instant: aware and in UTC on the way in and out, on SQLite too. A naive one is refused as the bug that it is."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without zone cannot be stored")
        in_utc = value.astimezone(UTC)
        # SQLite keeps text; written without an offset and always in UTC it also sorts as time.
        return in_utc.replace(tzinfo=None) if dialect.name == "sqlite" else in_utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


DOCUMENT = JSON(none_as_null=True)
"""JSON kept as it was written: on PostgreSQL ``json``, because ``jsonb`` respells numbers, reorders keys and refuses NUL."""

SEARCHABLE_DOCUMENT = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
"""JSON that is searched in, and therefore indexed."""


class UnreadDocument(TypeDecorator[JsonText]):
    """A document that is selected as its text, and never written."""

    impl = Text
    cache_ok = True

    def process_result_value(self, value: str | None, dialect: Dialect) -> JsonText | None:
        return None if value is None else JsonText(value)


KEY = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that rows are found and ordered by: by code point in both databases, whatever the locale of the server."""


class Mirror(SQLModel, registry=registry(metadata=MetaData(naming_convention=NAMING))):
    """Parent of all tables, of the store too: one schema, one history of migrations."""


class JobRow(Mirror, table=True):
    """A job as it stands. Mirror; written at its registration, at each change, and after each fire."""

    __tablename__ = "jobs"
    __table_args__ = (
        Index("ix_jobs_tenant_state_job_id", "tenant", "state", "job_id"),
        Index(
            "ix_jobs_active_next_run_at",
            "next_run_at",
            postgresql_where=_NOT_FINISHED_JOBS,
            sqlite_where=_NOT_FINISHED_JOBS,
        ),
        Index(
            "ix_jobs_downstreams",
            "tenant",
            "downstream",
            postgresql_where=_CALLS_SOMETHING,
            sqlite_where=_CALLS_SOMETHING,
        ),
        Index(
            "ix_jobs_labels",
            "labels",
            postgresql_using="gin",
            postgresql_ops={"labels": "jsonb_path_ops"},
            info={"dialect": "postgresql"},
        ).ddl_if(dialect="postgresql"),
        # Finds the users of a calendar. Few jobs have one.
        Index(
            "ix_jobs_with_calendars",
            "tenant",
            "job_id",
            postgresql_where=_WITH_CALENDARS,
            sqlite_where=_WITH_CALENDARS,
        ),
        Index("ix_jobs_held", "tenant", "job_id", postgresql_where=_HELD, sqlite_where=_HELD),
    )

    tenant: str = Field(primary_key=True, sa_type=KEY)
    job_id: str = Field(primary_key=True, sa_type=KEY)
    version: int = Field(sa_type=BigInteger)
    """Of the record shown; grows at every write."""

    revision: int = Field(sa_type=BigInteger)
    """Of ``definition``; the ETag of the API. Starts again when a deleted id is registered anew."""

    state: str = Field(sa_type=Text)
    """``JobRecord.lifecycle``."""

    definition: dict[str, JsonValue] = Field(sa_type=DOCUMENT)
    """``JobDefinition``, whole. Written once a revision: a payload may be large, and fires are many."""

    name: str = Field(sa_type=Text)
    """From the definition, like the next six, so that people can search; written with it."""

    owner: str = Field(sa_type=Text)
    labels: dict[str, str] = Field(sa_type=SEARCHABLE_DOCUMENT)
    target: str = Field(sa_type=Text)
    """What runs: the name of the activity or workflow, or method and URL without the query."""

    task_queue: str = Field(sa_type=Text)
    downstream: str = Field(default="", sa_type=KEY, sa_column_kwargs={"server_default": text("''")})
    """Empty for a job that names none. The default is that of processes of an earlier release."""

    search_text: str = Field(sa_type=Text)
    """Id, name, description, owner and target, case folded: what ``q`` looks in, alike in both databases."""

    calendars: dict[str, int] | None = Field(default=None, sa_type=SEARCHABLE_DOCUMENT)
    """Version of each calendar whose days the definition carries, by name; ``None`` where it carries none."""

    registered_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)
    next_run_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    next_target_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    high_water: datetime = Field(sa_type=UtcDateTime)
    """With ``fence``, what a job restored from SQL goes on from."""

    fence: int = Field(sa_type=BigInteger)
    counts: dict[str, JsonValue] = Field(sa_type=DOCUMENT)
    """``JobCounts``."""

    active_runs: int = Field(sa_type=BigInteger)
    waiting_runs: int = Field(sa_type=BigInteger)
    last_run_id: str | None = Field(default=None, sa_type=Text)
    last_status: str | None = Field(default=None, sa_type=Text)
    last_finished_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    last_success_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    last_error: str | None = Field(default=None, sa_type=Text)
    trouble: str | None = Field(default=None, sa_type=Text)
    pause: dict[str, JsonValue] | None = Field(default=None, sa_type=DOCUMENT)
    """``Pause``; of a paused job only."""

    holds: dict[str, JsonValue] | None = Field(default=None, sa_type=SEARCHABLE_DOCUMENT)
    """``Hold`` of each hold that the job carries, by its id; ``None`` where it carries none."""


class RunRow(Mirror, table=True):
    """A run as it stands. Mirror; written at each change of its status. Its columns are the fields of ``Run``."""

    __tablename__ = "runs"
    __table_args__ = (
        Index("ix_runs_tenant_job_id_scheduled_at_run_id", "tenant", "job_id", "scheduled_at", "run_id"),
        Index(
            "ix_runs_tenant_job_id_status_scheduled_at_run_id", "tenant", "job_id", "status", "scheduled_at", "run_id"
        ),
        # The mirror's own guard of "a nominal fire time starts at most one scheduled run".
        Index(
            "uq_runs_nominal_time",
            "tenant",
            "job_id",
            "scheduled_at",
            unique=True,
            postgresql_where=_WITH_A_NOMINAL_TIME,
            sqlite_where=_WITH_A_NOMINAL_TIME,
        ),
        # The dead letters, whose order is that of their ends. Few among the runs of years.
        Index(
            "ix_runs_dead_letters",
            "tenant",
            "finished_at",
            "run_id",
            postgresql_where=_DEAD,
            sqlite_where=_DEAD,
        ),
        # Which fires were backfilled.
        Index(
            "ix_runs_backfilled",
            "tenant",
            "job_id",
            "scheduled_at",
            postgresql_where=_BACKFILLED,
            sqlite_where=_BACKFILLED,
        ),
        # How many wait for each downstream.
        Index("ix_runs_parked", "tenant", "status", "job_id", postgresql_where=_PARKED, sqlite_where=_PARKED),
        {"postgresql_partition_by": "RANGE (scheduled_at)"},
    )

    tenant: str = Field(primary_key=True, sa_type=KEY)
    run_id: str = Field(primary_key=True, sa_type=KEY)
    scheduled_at: datetime = Field(primary_key=True, sa_type=UtcDateTime)
    job_id: str = Field(sa_type=KEY)
    version: int = Field(sa_type=BigInteger)
    """Of the record shown; grows at every write."""

    kind: str = Field(sa_type=Text)
    target_at: datetime = Field(sa_type=UtcDateTime)
    created_at: datetime = Field(sa_type=UtcDateTime)
    status: str = Field(sa_type=Text)
    outcome: str = Field(sa_type=Text)
    """What the ledger says of its nominal time; fires that have a run have no row in ``ledger``."""

    reason: str | None = Field(default=None, sa_type=Text)
    stands_for: int = Field(sa_type=BigInteger)
    revision: int = Field(sa_type=BigInteger)
    attempt: int = Field(sa_type=BigInteger)
    max_attempts: int = Field(sa_type=BigInteger)
    fence: int = Field(sa_type=BigInteger)
    idempotency_key: str = Field(sa_type=Text)
    override: dict[str, JsonValue] | None = Field(default=None, sa_type=DOCUMENT)
    """``PayloadOverride``; of a run that was triggered with a payload of its own."""

    superseded: bool
    detached: bool
    backfill_id: str | None = Field(default=None, sa_type=Text)
    redrive_of: str | None = Field(default=None, sa_type=Text)
    redriven_by: str | None = Field(default=None, sa_type=Text)
    dispatched_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    started_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    next_attempt_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    parkings: int = Field(sa_type=BigInteger)
    excused: int = Field(sa_type=BigInteger)
    checkpoint: JsonValue = Field(default=None, sa_type=DOCUMENT, nullable=True)
    worker: str | None = Field(default=None, sa_type=Text)
    failure: dict[str, JsonValue] | None = Field(default=None, sa_type=DOCUMENT)
    result: JsonValue = Field(default=None, sa_type=DOCUMENT, nullable=True)
    workflow_id: str = Field(sa_type=Text)
    workflow_run_id: str = Field(sa_type=Text)


class AttemptRow(Mirror, table=True):
    """An attempt as it stands. Mirror; written when it is dispatched, seen to start, and answered."""

    __tablename__ = "attempts"
    __table_args__ = ({"postgresql_partition_by": "RANGE (scheduled_at)"},)

    tenant: str = Field(primary_key=True, sa_type=KEY)
    run_id: str = Field(primary_key=True, sa_type=KEY)
    scheduled_at: datetime = Field(primary_key=True, sa_type=UtcDateTime)
    """The run's, so that both leave together when their month is archived."""

    number: int = Field(primary_key=True, sa_type=BigInteger)
    job_id: str = Field(sa_type=KEY)
    version: int = Field(sa_type=BigInteger)
    """Of the record shown; grows at every write."""

    status: str = Field(sa_type=Text)
    fence: int = Field(sa_type=BigInteger)
    dispatched_at: datetime = Field(sa_type=UtcDateTime)
    started_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    worker: str | None = Field(default=None, sa_type=Text)
    failure: dict[str, JsonValue] | None = Field(default=None, sa_type=DOCUMENT)


class LedgerRow(Mirror, table=True):
    """What became of one nominal time, or of several neighbours alike, that have no run. Mirror; written once it is decided.

    A range may be written again, longer, under the same ``first``.
    """

    __tablename__ = "ledger"
    __table_args__ = (
        # Finds the ranges that reach into a window from before it.
        Index("ix_ledger_tenant_job_id_last_first", "tenant", "job_id", "last", "first"),
        {"postgresql_partition_by": "RANGE (first)"},
    )

    tenant: str = Field(primary_key=True, sa_type=KEY)
    job_id: str = Field(primary_key=True, sa_type=KEY)
    first: datetime = Field(primary_key=True, sa_type=UtcDateTime)
    last: datetime = Field(sa_type=UtcDateTime)
    version: int = Field(sa_type=BigInteger)
    """Of the record shown; grows at every write."""

    count: int = Field(sa_type=BigInteger)
    outcome: str = Field(sa_type=Text)
    reason: str | None = Field(default=None, sa_type=Text)
    run_id: str | None = Field(default=None, sa_type=Text)
    revision: int = Field(sa_type=BigInteger)


class BackfillRow(Mirror, table=True):
    """A backfill as it stands. Mirror; written when it is asked for, and about once a second while it goes on. Its columns are
    the fields of ``BackfillRecord``, but for the last."""

    __tablename__ = "backfills"
    __table_args__ = (Index("ix_backfills_tenant_job_id_requested_at", "tenant", "job_id", "requested_at"),)

    tenant: str = Field(primary_key=True, sa_type=KEY)
    backfill_id: str = Field(primary_key=True, sa_type=KEY)
    job_id: str = Field(sa_type=KEY)
    version: int = Field(sa_type=BigInteger)
    """Of the record shown; grows at every write."""

    status: str = Field(sa_type=Text)
    revision: int = Field(sa_type=BigInteger)
    start: datetime = Field(sa_type=UtcDateTime)
    end: datetime = Field(sa_type=UtcDateTime)
    existing: str = Field(sa_type=Text)
    max_concurrent: int = Field(sa_type=BigInteger)
    rate_per_minute: float | None = Field(default=None, sa_type=Float)
    reason: str = Field(sa_type=Text)
    requested_by: str = Field(sa_type=Text)
    requested_at: datetime = Field(sa_type=UtcDateTime)
    total: int = Field(sa_type=BigInteger)
    succeeded: int = Field(sa_type=BigInteger)
    dead: int = Field(sa_type=BigInteger)
    cancelled: int = Field(sa_type=BigInteger)
    skipped: int = Field(sa_type=BigInteger)
    running: list[str] = Field(sa_type=DOCUMENT)
    through: datetime | None = Field(default=None, sa_type=UtcDateTime)
    trouble: str | None = Field(default=None, sa_type=Text)
    finished_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    definition: dict[str, JsonValue] | None = Field(default=None, sa_type=DOCUMENT)
    """``JobDefinition`` of ``revision``. Written once, by ``backfill_definition`` alone, so that the backfill can go on when its
    workflow is lost and the job has another by then. ``None`` until then, and in rows of before there was the column."""


class GateReportRow(Mirror, table=True):
    """What a scheduler process knows of a downstream. A report; owned by ``downstream_store``, which removes old ones."""

    __tablename__ = "gate_reports"
    __table_args__ = (Index("ix_gate_reports_seen_at", "seen_at"),)

    tenant: str = Field(primary_key=True, sa_type=KEY)
    downstream: str = Field(primary_key=True, sa_type=KEY)
    worker: str = Field(primary_key=True, sa_type=KEY)
    """Identity of the process."""

    seen_at: datetime = Field(sa_type=UtcDateTime)
    report: dict[str, JsonValue] = Field(sa_type=DOCUMENT)
    """``GateReport``."""


class IdempotencyRow(Mirror, table=True):
    """What a request with an ``Idempotency-Key`` was answered. Store; owned by ``idempotency_store``, kept for a day."""

    __tablename__ = "idempotency_records"
    __table_args__ = (Index("ix_idempotency_records_created_at", "created_at"),)

    tenant: str = Field(primary_key=True, sa_type=KEY)
    scope: str = Field(primary_key=True, sa_type=Text)
    """Method and route: the same key may be used for another kind of request."""

    key: str = Field(primary_key=True, sa_type=Text)
    body_hash: str = Field(sa_type=Text)
    """Of the request; the same key with another body is refused."""

    token: str = Field(sa_type=Text)
    """Drawn by whoever holds the claim. Only who knows it may complete or release it."""

    created_at: datetime = Field(sa_type=UtcDateTime)
    """When the key was claimed first, or again after it was released or had expired."""

    claimed_at: datetime = Field(sa_type=UtcDateTime)
    """When the present holder claimed it. A holder that died is replaced after a while."""

    response_status: int | None = Field(default=None)
    """HTTP status; ``None`` while the request is in progress. Set together with the next two, once."""

    response_headers: dict[str, str] | None = Field(default=None, sa_type=DOCUMENT)
    response_body: bytes | None = Field(default=None, sa_type=LargeBinary)


class ApiKeyRow(Mirror, table=True):
    """An API key, without its secret. Store; owned by ``key_store``. Its columns are the fields of ``ApiKey``."""

    __tablename__ = "api_keys"

    key_id: str = Field(primary_key=True, sa_type=KEY)
    tenant: str = Field(sa_type=KEY)
    name: str = Field(sa_type=Text)
    scope: str = Field(sa_type=Text)
    secret_hash: str = Field(sa_type=Text)
    """SHA-256, in hexadecimal."""

    created_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    last_used_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class TenantRow(Mirror, table=True):
    """What is settled for a tenant by itself; one without a row has what the settings say. Store; owned by ``quota_store``."""

    __tablename__ = "tenants"

    tenant: str = Field(primary_key=True, sa_type=KEY)
    max_jobs: int | None = Field(default=None, sa_type=BigInteger)
    """Jobs that are active or paused; ``None``: as the settings say."""

    max_fires_per_minute: float | None = Field(default=None, sa_type=Float)
    """Of all these jobs together, each at its densest; ``None``: as the settings say."""

    updated_at: datetime = Field(sa_type=UtcDateTime)


class QuotaClaimRow(Mirror, table=True):
    """What a job takes of its tenant's quotas. Store; owned by ``quota_store``. Written before a job is registered or changed;
    counts while the mirror has the job as active or paused, and for a minute before it has it."""

    __tablename__ = "quota_claims"

    tenant: str = Field(primary_key=True, sa_type=KEY)
    job_id: str = Field(primary_key=True, sa_type=KEY)
    fires_per_minute: float = Field(sa_type=Float)
    claimed_at: datetime = Field(sa_type=UtcDateTime)


class AuditRow(Mirror, table=True):
    """A change, and who made it. Store; owned by ``audit_store``. Its columns are the fields of ``AuditEntry``."""

    __tablename__ = "audit_entries"
    __table_args__ = (
        Index("ix_audit_entries_tenant_job_id_entry_id", "tenant", "job_id", "entry_id"),
        Index("ix_audit_entries_at", "at"),
    )

    tenant: str = Field(primary_key=True, sa_type=KEY)
    entry_id: str = Field(primary_key=True, sa_type=KEY)
    at: datetime = Field(sa_type=UtcDateTime)
    request_id: str = Field(sa_type=Text)
    actor: str = Field(sa_type=Text)
    actor_name: str = Field(sa_type=Text)
    action: str = Field(sa_type=Text)
    job_id: str | None = Field(default=None, sa_type=KEY)
    subject: str | None = Field(default=None, sa_type=Text)
    before: JsonValue = Field(default=None, sa_type=DOCUMENT, nullable=True)
    after: JsonValue = Field(default=None, sa_type=DOCUMENT, nullable=True)
    outcome: str = Field(sa_type=Text)
    detail: str | None = Field(default=None, sa_type=Text)


class TaskQueueGrantRow(Mirror, table=True):
    """A pattern of task queues that a tenant's jobs may name. Store; owned by ``task_queue_store``, kept until it is replaced."""

    __tablename__ = "task_queue_grants"

    tenant: str = Field(primary_key=True, sa_type=KEY)
    pattern: str = Field(primary_key=True, sa_type=KEY)
    granted_at: datetime = Field(sa_type=UtcDateTime)


class CalendarRow(Mirror, table=True):
    """A named set of days. Store; owned by ``calendar_store``, kept until it is deleted."""

    __tablename__ = "calendars"

    tenant: str = Field(primary_key=True, sa_type=KEY)
    name: str = Field(primary_key=True, sa_type=KEY)
    version: int = Field(sa_type=BigInteger)
    """Microseconds when its days changed last; grows at each change."""

    definition: dict[str, JsonValue] = Field(sa_type=DOCUMENT)
    """What its owner sent."""

    days: list[JsonValue] = Field(sa_type=DOCUMENT)
    """What that meant when it was sent: ``[first, last, name]`` for each date, period and holiday, in order."""

    weekend: list[int] = Field(sa_type=DOCUMENT)
    """Weekdays, Monday 0."""

    created_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)


class HoldRow(Mirror, table=True):
    """A hold over jobs with some labels. Store; owned by ``hold_store``, kept for a while after it is over."""

    __tablename__ = "holds"
    __table_args__ = (
        Index("ix_holds_tenant_created_at_hold_id", "tenant", "created_at", "hold_id"),
        # Asked at every registration.
        Index("ix_holds_not_released", "tenant", "until", postgresql_where=_NOT_RELEASED, sqlite_where=_NOT_RELEASED),
    )

    tenant: str = Field(primary_key=True, sa_type=KEY)
    hold_id: str = Field(primary_key=True, sa_type=KEY)
    selector: dict[str, str] = Field(sa_type=DOCUMENT)
    """Labels that a job must have, all of them; empty: it is over every job."""

    reason: str = Field(sa_type=Text)
    held_by: str = Field(sa_type=Text)
    """``Hold.by``, which is a word of SQL."""

    created_at: datetime = Field(sa_type=UtcDateTime)
    until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    """When it ends by itself."""

    catch_up: str = Field(sa_type=Text)
    """``Hold.catch_up``; of one that was released, what was said then."""

    released_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    """When somebody released it, before it ended by itself."""


def _table(row: type[Mirror]) -> Table:
    return row.metadata.tables[str(row.__tablename__)]


METADATA = Mirror.metadata

# For statements, which handle many rows at once and need no objects.
JOBS = _table(JobRow)
RUNS = _table(RunRow)
ATTEMPTS = _table(AttemptRow)
LEDGER = _table(LedgerRow)
BACKFILLS = _table(BackfillRow)
GATE_REPORTS = _table(GateReportRow)
IDEMPOTENCY_RECORDS = _table(IdempotencyRow)
API_KEYS = _table(ApiKeyRow)
TENANTS = _table(TenantRow)
QUOTA_CLAIMS = _table(QuotaClaimRow)
AUDIT_ENTRIES = _table(AuditRow)
CALENDARS = _table(CalendarRow)
TASK_QUEUE_GRANTS = _table(TaskQueueGrantRow)
HOLDS = _table(HoldRow)

# Claims of effects. Store; owned by the SDK's ``effect_sql``, which workers of teams use without us. A claim is kept for a while
# after it was last asked for (``effect_retention``).
EFFECT_CLAIMS = effect_claims_table(METADATA)

"""Claims in SQL: the table, and the one statement that each step is.

No step reads first and writes afterwards, so no two callers can both believe that they hold a claim. Time is the database's:
the clock of a worker may be wrong by minutes and changes nothing. On PostgreSQL that is when the statement arrived; one that had
to wait for another sees leases live a little longer than they do, which is the harmless side.

The table is part of Horarium's own schema. In a database of a team's own, the store makes it when it is first used. Columns are
only ever added, and may be left out by older writers.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias, TypeVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    CursorResult,
    DateTime,
    Index,
    Interval,
    MetaData,
    PrimaryKeyConstraint,
    Row,
    Table,
    Text,
    UpdateBase,
    and_,
    case,
    delete,
    func,
    inspect,
    literal,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy import Column as SqlColumn
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from horarium.database import POSTGRESQL, Limits, open_engine
from horarium.effect import (
    Claim,
    ClaimAnswer,
    Claimed,
    ClaimState,
    EffectKey,
    Held,
    Outcome,
    Refused,
    StoreUnavailable,
    Succeeded,
)

Clock: TypeAlias = Callable[[timedelta], ColumnElement[datetime]]
"""Writes the moment so long from now as SQL."""

Answer = TypeVar("Answer")

LIMITS: Final = Limits(connections=4)
"""A step is one short statement, so few connections serve many effects."""

PRUNED_AT_ONCE: Final = 1_000
"""Rows of one statement: claims are made meanwhile."""

_INSTANT: Final = DateTime(timezone=True)
_TEXT_KEY: Final = Text().with_variant(Text(collation="C"), "postgresql")


def effect_claims_table(metadata: MetaData) -> Table:
    """Define the table of claims."""
    return Table(
        "effect_claims",
        metadata,
        SqlColumn("tenant", _TEXT_KEY, nullable=False),
        SqlColumn("job_id", _TEXT_KEY, nullable=False),
        SqlColumn("idempotency_key", _TEXT_KEY, nullable=False),
        SqlColumn("name", _TEXT_KEY, nullable=False),
        # ClaimState.
        SqlColumn("state", Text, nullable=False),
        # The greatest that has asked for the claim.
        SqlColumn("fence", BigInteger, nullable=False),
        # The next four are the holder's, or the last one's. Only who knows the token may renew, complete or release.
        SqlColumn("token", Text, nullable=False),
        SqlColumn("run_id", Text, nullable=False),
        SqlColumn("worker", Text, nullable=False),
        SqlColumn("lease_until", _INSTANT, nullable=False),
        # How often somebody got the claim: 1 where the effect was carried out once and went well.
        SqlColumn("claims", BigInteger, nullable=False),
        # JSON; NULL until the effect is done, and where there is a problem.
        SqlColumn("result", Text, nullable=True),
        SqlColumn("problem", Text, nullable=True),
        SqlColumn("created_at", _INSTANT, nullable=False),
        # When it was last claimed, asked for or changed: what is not touched for long enough is pruned.
        SqlColumn("touched_at", _INSTANT, nullable=False),
        PrimaryKeyConstraint("tenant", "job_id", "idempotency_key", "name", name="pk_effect_claims"),
        Index("ix_effect_claims_touched_at", "touched_at"),
    )


CLAIMS: Final = effect_claims_table(MetaData())

_KEY: Final = (CLAIMS.c.tenant, CLAIMS.c.job_id, CLAIMS.c.idempotency_key, CLAIMS.c.name)

_HOLDERS_COLUMNS: Final = ("state", "token", "run_id", "worker", "lease_until")


class SqlEffectStore:
    """An ``EffectStore`` in ``postgresql://...`` or ``sqlite:///FILE``. Connects when it is first used.

    ``clock`` is for tests; by default it is the database's.
    """

    def __init__(self, url: str, *, limits: Limits = LIMITS, clock: Clock | None = None) -> None:
        # Each step is a transaction by itself, which saves PostgreSQL two round trips, and takes SQLite's write lock at once.
        self._engine = open_engine(url, limits=limits, reuse_plans=True, isolation_level="AUTOCOMMIT")
        self._is_postgresql = self._engine.dialect.name == POSTGRESQL
        self._clock = clock or (_postgresql_clock if self._is_postgresql else _sqlite_clock)
        self._has_table = False

    async def claim(self, claim: Claim, *, lease: timedelta) -> ClaimAnswer:
        """See ``EffectStore``."""
        row = await self._execute(self._claim_statement(claim, lease=lease), lambda result: result.one())
        return _judge(row, claim)

    async def renew(self, claim: Claim, *, lease: timedelta) -> bool:
        """See ``EffectStore``."""
        return await self._change(claim, (ClaimState.RUNNING,), lease_until=self._clock(lease))

    async def complete(self, claim: Claim, outcome: Outcome) -> bool:
        """See ``EffectStore``."""
        from_states = (ClaimState.RUNNING, ClaimState.SUCCEEDED)
        done = {"state": ClaimState.SUCCEEDED, "result": outcome.result, "problem": outcome.problem}
        return await self._change(claim, from_states, **done)

    async def release(self, claim: Claim) -> bool:
        """See ``EffectStore``."""
        return await self._change(claim, (ClaimState.RUNNING, ClaimState.FAILED), state=ClaimState.FAILED)

    async def prune(self, *, older_than: timedelta) -> int:
        """Forget claims that nobody has touched for so long, in small steps; return how many.

        For whoever owns the database; in Horarium's own its scheduler workers do it. Keep claims as long as runs may be redriven.
        """
        pruned = 0
        while count := await self._execute(self._prune_statement(older_than), lambda result: result.rowcount):
            pruned += count
        return pruned

    async def close(self) -> None:
        """See ``EffectStore``."""
        await self._engine.dispose()

    def _claim_statement(self, claim: Claim, *, lease: timedelta) -> UpdateBase:
        """Write the step that decides: a new row, or the old one changed as far as the caller may have it.

        It always changes a row and returns it, so that one answer tells what was decided.
        """
        now = self._clock(timedelta())
        insert = _insert(for_postgresql=self._is_postgresql).values(
            **_named(claim.key),
            state=ClaimState.RUNNING,
            fence=claim.fence,
            token=claim.token,
            run_id=claim.run_id,
            worker=claim.worker,
            lease_until=self._clock(lease),
            claims=1,
            created_at=now,
            touched_at=now,
        )
        old, asked = CLAIMS.c, insert.excluded
        is_free = or_(old.state == ClaimState.FAILED, old.token == asked.token, old.lease_until <= now)
        gets_it = and_(old.fence <= asked.fence, old.state != ClaimState.SUCCEEDED, is_free)
        changes: dict[str, Any] = {
            column: case((gets_it, asked[column]), else_=old[column]) for column in _HOLDERS_COLUMNS
        }
        changes["fence"] = case((old.fence < asked.fence, asked.fence), else_=old.fence)
        changes["claims"] = old.claims + case((and_(gets_it, old.token != asked.token), 1), else_=0)
        changes["touched_at"] = now
        return insert.on_conflict_do_update(index_elements=list(_KEY), set_=changes).returning(
            old.state, old.fence, old.token, old.lease_until, old.result, old.problem, now.label("now")
        )

    def _prune_statement(self, older_than: timedelta) -> UpdateBase:
        is_old = CLAIMS.c.touched_at < self._clock(-older_than)
        some = select(*_KEY).where(is_old).limit(PRUNED_AT_ONCE)
        return delete(CLAIMS).where(is_old, tuple_(*_KEY).in_(some))

    async def _change(self, claim: Claim, from_states: tuple[ClaimState, ...], **changes: Any) -> bool:
        statement = (
            update(CLAIMS)
            .where(*(CLAIMS.c[column] == value for column, value in _named(claim.key).items()))
            .where(CLAIMS.c.token == claim.token, CLAIMS.c.state.in_(from_states))
            .values(touched_at=self._clock(timedelta()), **changes)
        )
        return await self._execute(statement, lambda result: result.rowcount) == 1

    async def _execute(self, statement: UpdateBase, read: Callable[[CursorResult[Any]], Answer]) -> Answer:
        try:
            await self._require_table()
            async with self._engine.connect() as connection:
                return read(await connection.execute(statement))
        except (DBAPIError, PoolTimeoutError, OSError, TimeoutError) as error:
            raise StoreUnavailable(_describe(error)) from error

    async def _require_table(self) -> None:
        """Make the table where there is none. Several processes may do so at once, and most have no right to."""
        if self._has_table:
            return
        async with self._engine.connect() as connection:
            try:
                await connection.run_sync(CLAIMS.create, checkfirst=True)
            except DBAPIError:
                if not await connection.run_sync(lambda sync: inspect(sync).has_table(CLAIMS.name)):
                    raise
        self._has_table = True


def _judge(row: Row[Any], claim: Claim) -> ClaimAnswer:
    """Read from the row what was decided; the order is that of the rules."""
    if row.fence > claim.fence:
        return Refused()
    if row.state == ClaimState.SUCCEEDED:
        return Succeeded(Outcome(result=row.result, problem=row.problem))
    return Claimed() if row.token == claim.token else Held(row.lease_until - row.now)


def _insert(*, for_postgresql: bool) -> postgresql.Insert | sqlite.Insert:
    return postgresql.insert(CLAIMS) if for_postgresql else sqlite.insert(CLAIMS)


def _named(key: EffectKey) -> dict[str, str]:
    return {
        "tenant": key.tenant,
        "job_id": key.job_id,
        "idempotency_key": key.idempotency_key,
        "name": key.name,
    }


def _postgresql_clock(offset: timedelta) -> ColumnElement[datetime]:
    # Not `clock_timestamp()`, which says something else each time a statement asks.
    return func.statement_timestamp(type_=_INSTANT) + literal(offset, Interval)


def _sqlite_clock(offset: timedelta) -> ColumnElement[datetime]:
    # As SQLAlchemy writes times there: text that sorts as time.
    return func.strftime("%Y-%m-%d %H:%M:%f000", "now", f"{offset.total_seconds():+.3f} seconds", type_=_INSTANT)


def _describe(error: BaseException) -> str:
    """Say what the driver said, without the statement and its values."""
    cause = error.orig if isinstance(error, StatementError) and error.orig is not None else error
    return f"{type(cause).__name__}: {cause}"[:500]

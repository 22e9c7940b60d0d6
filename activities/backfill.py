"""Asks jobs for the runs of backfills: the activity behind every step of one.

Looks at the mirror first: what has run under a nominal time, and what has become of runs that are silent. Asking twice is asking
once, because the runs have names of their own.
"""

import hashlib
from datetime import UTC, datetime
from typing import Final

from temporalio import activity

from activities.backfill_definition import BackfillDefinitions
from activities.job_control import JobControl, JobIsGone
from activities.queries import Queries
from activities.redrive import GONE
from workflows.backfill import AdmitReport, AdmitRequest, StartedFire, judge_fires
from workflows.backfill_admission import BackfillAnswer, BackfillCommand
from workflows.contracts import ADMIT_FIRES
from workflows.error import Unavailable
from workflows.job import JobRecord, Lifecycle
from workflows.revival import revived_state

UNKNOWN: Final = "the mirror does not know the job; it is looked for again"


class BackfillAdmitter:
    """The activity of backfills."""

    def __init__(self, *, queries: Queries, definitions: BackfillDefinitions, control: JobControl) -> None:
        self._queries = queries
        self._definitions = definitions
        self._control = control

    @activity.defn(name=ADMIT_FIRES)
    async def admit_fires(self, request: AdmitRequest) -> AdmitReport:
        """Have fires run that are to be run, and say how those stand that were."""
        nominals = (*request.nominals, *(each.nominal for each in request.watched))
        try:
            await self._definitions.keep_definition(
                request.definition, tenant=request.tenant, backfill_id=request.backfill_id
            )
            known = await self._queries.read_runs_at(request.tenant, request.job_id, nominals)
        except Unavailable as error:
            return AdmitReport(trouble=str(error))
        report, wanted = judge_fires(request, tuple(record.run for record in known))
        if not wanted:
            return report
        try:
            answer = await self._ask(_command(request, wanted), request)
        except Unavailable as error:
            return report.model_copy(update={"trouble": str(error)})
        except JobIsGone:
            return report.model_copy(update={"trouble": GONE})
        return report.model_copy(
            update={
                "started": (*report.started, *answer.started),
                "skipped": (*report.skipped, *answer.skipped),
                "registered_at": answer.registered_at,
                "gone": answer.gone,
            }
        )

    async def _ask(self, command: BackfillCommand, request: AdmitRequest) -> BackfillAnswer:
        """Ask the job. Raises ``Unavailable`` and ``JobIsGone``."""
        tenant, job_id = request.tenant, request.job_id
        record = await self._queries.get_job(tenant, job_id)
        if record is None:
            # A mirror that was lost is filled again. Until then it does not know what has run either.
            raise Unavailable(UNKNOWN)
        async with self._control.place(tenant=tenant, job_id=job_id):
            try:
                return await self._control.backfill(command, tenant=tenant, job_id=job_id)
            except JobIsGone:
                return await self._ask_anew(command, record)

    async def _ask_anew(self, command: BackfillCommand, record: JobRecord) -> BackfillAnswer:
        """Ask a job whose workflow has ended. Raises ``JobIsGone`` for one that should have one."""
        match record.lifecycle:
            case Lifecycle.DELETED:
                return BackfillAnswer(gone="the job was deleted")
            case Lifecycle.COMPLETED:
                last = await self._queries.get_last_run(record)
                state = revived_state(record, last=last, now=datetime.now(UTC))
                return await self._control.backfill_in(state, command)
            case _:
                raise JobIsGone


def _command(request: AdmitRequest, fires: tuple[StartedFire, ...]) -> BackfillCommand:
    names = "\n".join(fire.run_id for fire in fires)
    return BackfillCommand(
        # Fires that had to wait are asked for again, and that is another question.
        key=f"{request.backfill_id}/{hashlib.sha256(names.encode()).hexdigest()[:16]}/{datetime.now(UTC).timestamp()}",
        backfill_id=request.backfill_id,
        registered_at=request.registered_at,
        revision=request.revision,
        definition=request.definition,
        existing=request.existing,
        fires=fires,
    )

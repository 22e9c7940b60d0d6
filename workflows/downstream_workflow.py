"""An open circuit breaker: one for all processes, and it survives them.

Exists while the breaker of one tenant's downstream is open. It hands out the probes; when one succeeds, or an operator resets
it, it is over, and everybody who asks is told that the breaker is closed because it is not there.
"""

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from workflows.admission import DownstreamInput, ProbeReport, ProbeRequest
    from workflows.breaker import (
        OpenBreaker,
        ProbeAnswer,
        ask_for_probe,
        end_probe,
        expire_probes,
        give_back_probe,
        open_breaker,
    )
    from workflows.contracts import DOWNSTREAM_WORKFLOW, UPDATE_ASK_PROBE, UPDATE_END_PROBE, UPDATE_RESET_BREAKER
    from workflows.downstream import breaker_memo

FORGOTTEN_AFTER = timedelta(hours=1)
"""Nobody has asked for so long after a probe was due: no run is parked there any more."""

HISTORY_LIMIT = 2_000


@workflow.defn(name=DOWNSTREAM_WORKFLOW)
class DownstreamWorkflow:
    """The open breaker of one downstream."""

    @workflow.init
    def __init__(self, given: DownstreamInput) -> None:
        self._breaker: OpenBreaker | None = given.breaker or open_breaker(
            tenant=given.tenant, downstream=given.downstream, policy=given.policy, now=workflow.now()
        )
        self._changed = False

    @workflow.run
    async def run(self, given: DownstreamInput) -> str:
        """Stay until the breaker is closed. Answers why it is."""
        while self._breaker is not None:
            self._show()
            if workflow.info().get_current_history_length() >= HISTORY_LIMIT:
                await workflow.wait_condition(workflow.all_handlers_finished)
                memo = breaker_memo(self._breaker)
                workflow.continue_as_new(given.model_copy(update={"breaker": self._breaker}), memo=memo)
            self._changed = False
            try:
                await workflow.wait_condition(lambda: self._changed, timeout=self._patience())
            except TimeoutError:
                if self._is_forgotten():
                    break
                self._breaker = expire_probes(self._breaker, now=workflow.now())
        await workflow.wait_condition(workflow.all_handlers_finished)
        return "forgotten" if self._breaker else "closed"

    @workflow.update(name=UPDATE_ASK_PROBE)
    def ask_probe(self, request: ProbeRequest) -> ProbeAnswer:
        """Grant a probe, or say when to ask again."""
        if self._breaker is None:
            return ProbeAnswer(closed=True)
        self._changed = True
        self._breaker, answer = ask_for_probe(self._breaker, request.run_id, now=workflow.now(), lasts=request.lasts)
        return answer

    @workflow.update(name=UPDATE_END_PROBE)
    def end_probe(self, report: ProbeReport) -> ProbeAnswer:
        """Take in how a probe ended."""
        self._changed = True
        if self._breaker is not None and report.is_void:
            self._breaker = give_back_probe(self._breaker, report.run_id)
        elif self._breaker is not None:
            self._breaker = end_probe(self._breaker, report.run_id, ok=report.ok, now=workflow.now())
        return self._answer()

    @workflow.update(name=UPDATE_RESET_BREAKER)
    def reset(self) -> ProbeAnswer:
        """Close the breaker, because an operator says so."""
        self._changed = True
        self._breaker = None
        return self._answer()

    def _answer(self) -> ProbeAnswer:
        if self._breaker is None:
            return ProbeAnswer(closed=True)
        return ProbeAnswer(ask_again_at=self._breaker.open_until)

    def _patience(self) -> timedelta:
        assert self._breaker is not None
        expiries = [probe.expires_at - workflow.now() for probe in self._breaker.probes]
        return max(timedelta(seconds=1), min([FORGOTTEN_AFTER, *expiries]))

    def _is_forgotten(self) -> bool:
        assert self._breaker is not None
        asked = max(self._breaker.last_asked_at, self._breaker.open_until)
        return not self._breaker.probes and workflow.now() - asked >= FORGOTTEN_AFTER

    def _show(self) -> None:
        """Put into the memo what operators and the API read of an open breaker."""
        assert self._breaker is not None
        workflow.upsert_memo(breaker_memo(self._breaker))

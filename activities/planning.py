"""The planner as a local activity: the kernel's pure plan, under the bounds of this worker."""

from collections.abc import Collection, Mapping

from temporalio import activity

from workflows.backfill import FireList, FireListRequest
from workflows.backfill_range import list_fires
from workflows.contracts import LIST_FIRES, PLAN_FIRES, SURVEY_FIRES
from workflows.job import FirePlan, PlanRequest, SurveyRequest, Tuning
from workflows.planner import make_plan, make_survey
from workflows.schedule import FireSurvey


class Planner:
    """Answers plans under one ``Tuning``, with the weight of each tenant; of those that are not named it is 1.

    The method is synchronous on purpose: the calculator computes for up to a tenth of a second, which must not hold the
    event loop of a worker.
    """

    def __init__(
        self, tuning: Tuning, *, fairness_weights: Mapping[str, float] | None = None, alerted: Collection[str] = ()
    ) -> None:
        """``alerted`` are the tenants that have a receiver of alerts of their own."""
        self._tuning = tuning
        self._alerted = frozenset(alerted)
        self._weights = fairness_weights or {}

    @activity.defn(name=PLAN_FIRES)
    def plan_fires(self, request: PlanRequest) -> FirePlan:
        """Say what a job has missed and what comes next."""
        weight = self._weights.get(request.tenant, self._tuning.fairness_weight)
        alerts = self._tuning.alerts_for_all or request.tenant in self._alerted
        own = {"fairness_weight": weight, "alerts_for_all": alerts}
        return make_plan(request, tuning=self._tuning.model_copy(update=own))

    @activity.defn(name=SURVEY_FIRES)
    def survey_fires(self, request: SurveyRequest) -> FireSurvey:
        """Say what lies between two moments."""
        return make_survey(request)

    @activity.defn(name=LIST_FIRES)
    def list_fires(self, request: FireListRequest) -> FireList:
        """Say what a backfill is to run next."""
        return list_fires(request)

"""The planner as a local activity: the kernel's pure plan, under the bounds of this worker."""

from temporalio import activity

from workflows.contracts import PLAN_FIRES
from workflows.job import FirePlan, PlanRequest, Tuning
from workflows.planner import make_plan


class Planner:
    """Answers plans under one ``Tuning``.

    The method is synchronous on purpose: the calculator computes for up to a tenth of a second, which must not hold the
    event loop of a worker.
    """

    def __init__(self, tuning: Tuning) -> None:
        self._tuning = tuning

    @activity.defn(name=PLAN_FIRES)
    def plan_fires(self, request: PlanRequest) -> FirePlan:
        """Say what a job has missed and what comes next."""
        return make_plan(request, tuning=self._tuning)

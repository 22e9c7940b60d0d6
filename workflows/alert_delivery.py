"""How an alert leaves a workflow: as a small workflow of its own, so that no job waits for its receiver.

Its id is the alert's. Temporal refuses a second workflow of one id, which makes an alert that is raised twice one.
"""

from typing import Final

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import FailureError, WorkflowAlreadyStartedError, is_cancelled_exception

from workflows.alert import Alert
from workflows.contracts import ALERT_WORKFLOW, alert_workflow_id

SUMMARY_LIMIT: Final = 200
"""Characters of the summary that the Web UI shows in its list."""


async def start_alert(alert: Alert) -> None:
    """Hand an alert over to be delivered. One that cannot be is logged: it never keeps a job from going on."""
    try:
        await workflow.start_child_workflow(
            ALERT_WORKFLOW,
            alert,
            id=alert_workflow_id(tenant=alert.tenant, alert_id=alert.alert_id),
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            static_summary=alert.summary[:SUMMARY_LIMIT],
        )
    except WorkflowAlreadyStartedError:
        return
    except FailureError as error:
        if is_cancelled_exception(error):
            raise
        workflow.logger.warning("alert_not_sent", extra={"job_id": alert.job_id, "reason": str(error)})

"""Links to Temporal's Web UI. Pure."""

from dataclasses import dataclass
from urllib.parse import quote

from workflows.contracts import job_workflow_id
from workflows.run import Run


@dataclass(frozen=True, kw_only=True)
class TemporalLinks:
    """Where people look at workflows; no links where nobody said where the Web UI is."""

    ui_url: str | None
    namespace: str

    def to_job(self, *, tenant: str, job_id: str) -> str | None:
        """Link to the workflow of a job."""
        return self._link(job_workflow_id(tenant=tenant, job_id=job_id))

    def to_run(self, run: Run) -> str | None:
        """Link to the history in which a run is found; ``None`` before it has one."""
        return self._link(run.workflow_id, run.workflow_run_id) if run.workflow_id else None

    def to_workflow(self, workflow_id: str) -> str | None:
        """Link to the present run of a workflow."""
        return self._link(workflow_id)

    def _link(self, workflow_id: str, run_id: str = "") -> str | None:
        if self.ui_url is None:
            return None
        parts = ["namespaces", self.namespace, "workflows", workflow_id, *([run_id, "history"] if run_id else [])]
        return "/".join([self.ui_url.rstrip("/"), *(quote(part, safe="") for part in parts)])

"""Ids of workflows and runs, as Temporal's Web UI shows them: of two things never the same, and never too long."""

import inspect
import re
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from horarium.catalogue import catalogue_workflow_id
from horarium.encrypted_payload import is_in_clear, tenant_of_workflow
from workflows import contracts
from workflows.contracts import (
    JOB_ID_PATTERN,
    TENANT_PATTERN,
    alert_workflow_id,
    attempt_workflow_id,
    job_workflow_id,
    named_job,
    records_workflow_id,
    requested_run_id,
    run_workflow_id,
    scheduled_run_id,
)

NOON = datetime(2026, 6, 8, 12, tzinfo=UTC)
SERVER_LIMIT = 1_000
"""Characters that Temporal takes for an id, unless it was set up otherwise."""

tenants = st.from_regex(TENANT_PATTERN, fullmatch=True)
job_ids = st.from_regex(JOB_ID_PATTERN, fullmatch=True)
jobs = st.tuples(tenants, job_ids)


@given(jobs, jobs)
def test_two_jobs_have_two_workflows_and_their_runs_too(one: tuple[str, str], other: tuple[str, str]) -> None:
    """SB-140: whatever characters the names share."""
    ids = [
        {
            job_workflow_id(tenant=tenant, job_id=job_id),
            records_workflow_id(tenant=tenant, job_id=job_id, version=1),
            run_workflow_id(tenant=tenant, run_id=scheduled_run_id(job_id=job_id, nominal=NOON)),
            run_workflow_id(tenant=tenant, run_id=requested_run_id(job_id=job_id, kind="manual", request_id="r")),
        }
        for tenant, job_id in (one, other)
    ]
    assert len(ids[0]) == 4
    assert ids[0].isdisjoint(ids[1]) is (one != other)


@given(jobs)
def test_the_name_of_a_jobs_workflow_tells_the_job(job: tuple[str, str]) -> None:
    """And no other name of ours does."""
    tenant, job_id = job
    assert named_job(job_workflow_id(tenant=tenant, job_id=job_id)) == job
    assert named_job(records_workflow_id(tenant=tenant, job_id=job_id, version=1)) is None
    assert named_job(run_workflow_id(tenant=tenant, run_id=scheduled_run_id(job_id=job_id, nominal=NOON))) is None
    assert named_job("upkeep") is None


def test_the_pairs_that_other_schedulers_confuse_are_apart() -> None:
    """SB-140: a hyphen in either part, upper and lower case, a job named like a run of another."""
    pairs = [("x", "y-z"), ("x-y", "z"), ("x", "a"), ("x", "A"), ("x", "a-2026"), ("x", "a.b"), ("x.a", "b")]
    assert len({job_workflow_id(tenant=tenant, job_id=job_id) for tenant, job_id in pairs}) == len(pairs)
    assert re.fullmatch(JOB_ID_PATTERN, scheduled_run_id(job_id="a", nominal=NOON)) is None


def test_runs_of_different_times_have_different_ids() -> None:
    """To the second, which is how finely jobs fire."""
    ids = {scheduled_run_id(job_id="a", nominal=NOON + timedelta(seconds=second)) for second in range(3_600)}
    assert len(ids) == 3_600


def test_the_longest_ids_are_within_what_the_server_takes() -> None:
    """SB-140: of the longest tenant, job and request."""
    tenant, job_id = "t" * 63, "j" * 128
    assert re.fullmatch(TENANT_PATTERN, tenant)
    assert re.fullmatch(JOB_ID_PATTERN, job_id)
    run_id = requested_run_id(job_id=job_id, kind="backfill", request_id="r" * 64)
    longest = (
        job_workflow_id(tenant=tenant, job_id=job_id),
        attempt_workflow_id(tenant=tenant, run_id=run_id, attempt=10_001),
        records_workflow_id(tenant=tenant, job_id=job_id, version=2**63),
        alert_workflow_id(tenant=tenant, alert_id=run_id),
    )
    assert max(map(len, longest)) < SERVER_LIMIT


def test_every_workflow_of_a_tenant_is_known_as_its() -> None:
    """By its id alone: so payloads are marked as theirs before they are encrypted."""
    builders = {
        name: builder
        for name, builder in vars(contracts).items()
        if name.endswith("_workflow_id") and "tenant" in inspect.signature(builder).parameters
    }
    assert {"job_workflow_id", "run_workflow_id", "attempt_workflow_id", "alert_workflow_id"} <= builders.keys()
    for name, builder in builders.items():
        others = [each for each in inspect.signature(builder).parameters if each != "tenant"]
        made = builder(tenant="team.a-1", **dict.fromkeys(others, "x"))
        assert tenant_of_workflow(made) == "team.a-1", name
        assert not is_in_clear(made)
    assert is_in_clear(catalogue_workflow_id("reports"))
    assert tenant_of_workflow(catalogue_workflow_id("reports/x")) is None

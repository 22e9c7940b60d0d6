"""Grants of task queues, on both databases."""

from datetime import UTC, datetime, timedelta

from activities.audit_store import AuditFilter, AuditStore
from activities.database import open_database
from activities.mirror_writer import MirrorWriter, WriterOptions
from activities.task_queue_store import NamedQueue, TaskQueueStore
from tests.api_keys import entry_of, new_key
from tests.records import job_record
from workflows.job import JobDefinition, Lifecycle, MirrorBatch
from workflows.target import ActivityTarget

NOW = datetime(2026, 6, 8, 12, tzinfo=UTC)


async def test_grants_are_written_as_a_whole_with_their_audit_entry(database_url: str) -> None:
    """Each tenant's own; twice the same is once."""
    engine = open_database(database_url)
    store = TaskQueueStore(engine)
    assert await store.read_grants() == {}
    entries = [entry_of(new_key(tenant="a")[0], action="tenant.set_task_queues") for _ in range(3)]
    await store.grant("a", ["reports", "a-*", "reports"], now=NOW, entry=entries[0])
    await store.grant("b", ["b-*"], now=NOW, entry=entries[1])
    assert await store.read_grants() == {"a": ("a-*", "reports"), "b": ("b-*",)}
    await store.grant("a", [], now=NOW, entry=entries[2])
    assert await store.read_grants() == {"b": ("b-*",)}
    log = await AuditStore(engine).list_entries(
        "a", AuditFilter(action="tenant.set_task_queues"), cursor=None, limit=10
    )
    assert {entry.entry_id for entry in log.items} == {entry.entry_id for entry in entries}
    await engine.dispose()


async def test_the_queues_that_jobs_name_are_counted(database_url: str) -> None:
    """Of those that may still fire."""
    writer = MirrorWriter(database_url, options=WriterOptions(budget=timedelta(seconds=10)))
    for job_id, queue, state in (
        ("one", "q", Lifecycle.ACTIVE),
        ("two", "q", Lifecycle.PAUSED),
        ("three", "p", Lifecycle.ACTIVE),
        ("four", "p", Lifecycle.DELETED),
    ):
        record = job_record(job_id, lifecycle=state)
        target = ActivityTarget(activity="x", task_queue=queue)
        definition = JobDefinition.model_validate({**dict(record.definition), "target": target})
        await writer.write(MirrorBatch(job=record.model_copy(update={"definition": definition})))
    await writer.close()
    engine = open_database(database_url)
    assert await TaskQueueStore(engine).count_named() == [
        NamedQueue(tenant="default", task_queue="p", jobs=1),
        NamedQueue(tenant="default", task_queue="q", jobs=2),
    ]
    await engine.dispose()

"""Which task queues a tenant's jobs may name."""

import pytest

from activities.task_queue_grant import is_match, refusal_of
from workflows.target import DEFAULT_TASK_QUEUE

GRANTS = {"a": ("reports", "team-a-*"), "b": ("team-b-*", "*-shared"), "c": ("*-shared",)}


@pytest.mark.parametrize(
    ("pattern", "queue", "matches"),
    [
        ("reports", "reports", True),
        ("reports", "Reports", False),
        ("reports", "reports2", False),
        ("team-a-*", "team-a-", True),
        ("team-a-*", "team-a-x*y", True),
        ("team-a-*", "team-b-x", False),
        ("*", "", True),
        ("*", "two\nlines", True),
        ("a*c*e", "abcde", True),
        ("a*c*e", "abde", False),
        ("a.c", "abc", False),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
    ],
)
def test_only_a_star_stands_for_something_else(pattern: str, queue: str, matches: bool) -> None:
    """For any characters, and none; everything else stands for itself."""
    assert is_match(pattern, queue) is matches


@pytest.mark.parametrize(
    ("tenant", "queue", "reason"),
    [
        ("a", "reports", None),
        ("a", "team-a-7", None),
        ("a", "team-b-7", "may name the task queues reports, team-a-*, horarium"),
        ("a", "free", "may name the task queues"),
        ("a", DEFAULT_TASK_QUEUE, None),
        ("b", "x-shared", None),
        ("c", "x-shared", None),
        ("d", "free", None),
        ("d", "team-a-7", "another tenant's"),
        ("d", "x-shared", "another tenant's"),
        ("d", DEFAULT_TASK_QUEUE, None),
    ],
)
def test_a_granted_queue_is_for_those_alone_to_whom_it_is(tenant: str, queue: str, reason: str | None) -> None:
    """Who has grants names no others; who has none names what nobody was granted; the default queue is everybody's."""
    told = refusal_of(queue, GRANTS, tenant=tenant)
    assert (told is None) is (reason is None)
    assert reason is None or reason in (told or "")


def test_a_refusal_names_no_other_tenant() -> None:
    """Whose a queue is, is nobody else's business."""
    told = refusal_of("acme-billing", {"acme": ("acme-*",)}, tenant="d")
    assert told is not None
    assert "acme" not in told

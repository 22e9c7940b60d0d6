"""Errors, their kinds, and whether another attempt makes sense."""

import pytest

from workflows.classification import FailureKind, classify_failure, is_downstreams_fault, is_retryable
from workflows.job import RetryPolicy
from workflows.run import Failure


@pytest.mark.parametrize(
    ("failure", "kind", "retried", "counts"),
    [
        (Failure(type="timeout"), FailureKind.TIMEOUT, True, True),
        (Failure(type="lost"), FailureKind.LOST, True, False),
        (Failure(type="WorkerShutdown"), FailureKind.LOST, True, False),
        (Failure(type="ResolverBusy"), FailureKind.LOST, True, False),
        (Failure(type="ConnectError", types=("httpx.ConnectError",)), FailureKind.CONNECT, True, True),
        (
            Failure(type="BankError", types=("bank.BankError", "builtins.ConnectionError")),
            FailureKind.CONNECT,
            True,
            True,
        ),
        (Failure(type="HttpStatus503", http_status=503), FailureKind.SERVER, True, True),
        (Failure(type="HttpStatus500"), FailureKind.SERVER, True, True),
        (Failure(type="HttpStatus429", http_status=429), FailureKind.THROTTLED, True, False),
        (Failure(type="HttpStatus404", http_status=404), FailureKind.CLIENT, False, False),
        (Failure(type="HttpStatus408", http_status=408), FailureKind.TIMEOUT, True, True),
        (Failure(type="HttpStatus302", http_status=302), FailureKind.CLIENT, False, False),
        (Failure(type="HttpStatus599", http_status=599), FailureKind.SERVER, True, True),
        (Failure(type="ReadTimeout", types=("httpx.ReadTimeout",)), FailureKind.TIMEOUT, True, True),
        (Failure(type="ValueError"), FailureKind.OTHER, True, False),
        (Failure(type="PermanentError", retryable=False), FailureKind.OTHER, False, False),
    ],
)
def test_every_kind_of_failure_is_known(failure: Failure, kind: FailureKind, retried: bool, counts: bool) -> None:
    """What is retried by default, and what counts against the downstream."""
    assert classify_failure(failure) is kind
    assert is_retryable(failure, RetryPolicy()) is retried
    assert is_downstreams_fault(failure) is counts


@pytest.mark.parametrize(
    ("name", "matched"),
    [
        ("ValueError", True),
        ("builtins.ValueError", True),
        ("my_team.errors.BadRow", True),
        ("BadRow", True),
        ("badrow", False),
        ("errors.BadRow", False),
        ("Value", False),
    ],
)
def test_names_are_matched_exactly_and_base_classes_too(name: str, matched: bool) -> None:
    """SB-110: class name or qualified name, of the class or of a base class, by case."""
    failure = Failure(type="BadRow", types=("my_team.errors.BadRow", "builtins.ValueError"))
    assert is_retryable(failure, RetryPolicy(no_retry_on=(name,))) is not matched
    assert is_retryable(failure, RetryPolicy(retry_on=(name,))) is matched


def test_retry_on_names_all_that_is_retried() -> None:
    """But a worker that died is nobody's error."""
    only_timeouts = RetryPolicy(retry_on=("timeout",))
    assert is_retryable(Failure(type="timeout"), only_timeouts)
    assert not is_retryable(Failure(type="ValueError"), only_timeouts)
    assert is_retryable(Failure(type="lost"), only_timeouts)
    assert not is_retryable(Failure(type="lost"), RetryPolicy(no_retry_on=("lost",)))
    assert is_retryable(Failure(type="ConnectError"), RetryPolicy(retry_on=("connect_failure",)))
    assert not is_retryable(Failure(type="HttpStatus503", http_status=503), RetryPolicy(retry_on=("connect_failure",)))
    assert not is_retryable(Failure(type="timeout"), RetryPolicy(retry_on=("timeout",), no_retry_on=("timeout",)))
    assert is_retryable(Failure(type="HttpStatus409", http_status=409), RetryPolicy(retry_on=("4xx",)))
    assert not is_retryable(Failure(type="HttpStatus503", http_status=503), RetryPolicy(no_retry_on=("5xx",)))


def test_what_the_code_says_goes_before_everything() -> None:
    """PermanentError is never retried, whatever ``retry_on`` says."""
    assert not is_retryable(Failure(type="PermanentError", retryable=False), RetryPolicy(retry_on=("PermanentError",)))

"""API keys and their scopes, without a database."""

import hashlib
import re

import pytest

from activities.api_key import PresentedKey, Scope, draw_key, hide_keys, read_key
from tests.api_keys import new_key


def test_a_key_reads_back_as_what_it_was_drawn_as() -> None:
    """The id in the clear, the secret as its SHA-256 and nothing else."""
    key_id, secret_hash, text = draw_key()
    presented = read_key(text)
    assert presented is not None
    assert presented.key_id == key_id
    assert hashlib.sha256(presented.secret.encode()).hexdigest() == secret_hash
    assert presented.secret not in secret_hash


def test_a_secret_has_256_bits_and_is_never_drawn_twice() -> None:
    """52 characters of five bits each hold them."""
    texts = {draw_key()[2] for _ in range(1_000)}
    assert len(texts) == 1_000
    assert all(re.fullmatch(r"hrm_[a-z2-7]{13}_[a-z2-7]{52}", text) for text in texts)


def test_only_the_right_secret_is_that_of_a_key() -> None:
    """Another key's is not, nor one letter less."""
    key, text = new_key()
    presented = read_key(text)
    assert presented is not None
    assert presented.is_secret_of(key)
    other = read_key(new_key()[1])
    assert other is not None
    assert not other.is_secret_of(key)
    assert not PresentedKey(key.key_id, presented.secret[:-1]).is_secret_of(key)


@pytest.mark.parametrize("text", ["", "hrm_", "hrm_a_b", "x" * 70, "é" * 70, "hrm_" + "a" * 13 + "_" + "1" * 52])
def test_what_is_no_key_is_read_as_none(text: str) -> None:
    """Of another service, cut off, or not ASCII."""
    assert read_key(text) is None
    assert read_key(f"{draw_key()[2]}\n") is None


def test_a_key_is_shown_without_its_secret() -> None:
    """Wherever a value is printed, and in texts that quote one."""
    key, text = new_key()
    presented = read_key(text)
    assert presented is not None
    assert presented.secret not in repr(presented)
    assert key.secret_hash not in repr(key)
    hidden = hide_keys(f"refused {text!r}, and {text}")
    assert presented.secret not in hidden
    assert hidden.count(key.key_id) == 2


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        (Scope.READ, {Scope.READ}),
        (Scope.OPERATE, {Scope.READ, Scope.OPERATE}),
        (Scope.WRITE, {Scope.READ, Scope.OPERATE, Scope.WRITE}),
        (Scope.ADMIN, {Scope.READ, Scope.OPERATE, Scope.WRITE, Scope.ADMIN}),
        (Scope.METRICS, {Scope.METRICS}),
    ],
)
def test_scopes_are_a_ladder_beside_which_the_metrics_stand(scope: Scope, allowed: set[Scope]) -> None:
    """A key of an admin does not see the other tenants' metrics, nor a scraper anybody's jobs."""
    assert {needed for needed in Scope if scope.allows(needed)} == allowed

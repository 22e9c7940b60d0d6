"""Who was told several things stays awake for more; who was told one does not."""

from datetime import UTC, datetime, timedelta

from workflows.linger import LINGER, Linger

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SHORT = timedelta(milliseconds=1)


def test_a_single_command_keeps_nobody_awake() -> None:
    """Nor does one that came long before it, nor a turn without any."""
    linger = Linger()
    linger.note_commands(0, now=NOW)
    linger.note_commands(1, now=NOW)
    linger.note_commands(0, now=NOW + SHORT)
    assert not linger.lasts(now=NOW)
    linger.note_commands(1, now=NOW + LINGER + SHORT)
    assert not linger.lasts(now=NOW + LINGER + SHORT)
    assert linger.until is None


def test_commands_that_come_together_do() -> None:
    """For as long as the constant says, and no longer."""
    linger = Linger()
    linger.note_commands(2, now=NOW)
    assert linger.lasts(now=NOW + LINGER - SHORT)
    assert not linger.lasts(now=NOW + LINGER)


def test_each_that_follows_makes_it_longer() -> None:
    """Counted from the last."""
    linger = Linger()
    linger.note_commands(1, now=NOW)
    linger.note_commands(1, now=NOW + LINGER)
    assert linger.until == NOW + 2 * LINGER
    linger.note_commands(1, now=NOW + 2 * LINGER)
    assert linger.until == NOW + 3 * LINGER

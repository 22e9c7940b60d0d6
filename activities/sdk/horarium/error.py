"""The errors that job code raises to say what should happen next. Any other exception means: retry as the job says."""

from datetime import timedelta


class PermanentError(Exception):
    """Trying again cannot help: the run is dead at once, whatever attempts are left."""


class RetryLater(Exception):
    """The next attempt, if one is left, starts no sooner than ``delay`` from now.

    Counts as a failed attempt.
    """

    def __init__(self, delay: timedelta, message: str = "") -> None:
        if delay < timedelta():
            raise ValueError(f"RetryLater needs a delay of zero or more, not {delay}")
        super().__init__(message or f"to be tried again in {delay}")
        self.delay = delay


class EffectRefused(Exception):
    """Another attempt has the effect: this one was given up, or is older, and must not go on.

    Raised by ``once``. An attempt that was given up is heard by nobody; any other is tried again as the job says.
    """

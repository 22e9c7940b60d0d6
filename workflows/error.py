"""The errors that callers of Horarium see.

One parent, one class a kind. `api` maps them to HTTP statuses in one table; workflows turn them into ApplicationError in
one place.
"""


class HorariumError(Exception):
    """Parent of every error that a caller is meant to see."""


class InvalidSchedule(HorariumError):
    """A schedule that can never be right, whoever reads it.

    ``pointer`` is the JSON pointer of the offending field inside the schedule body, such as ``/schedule`` or
    ``/timezone``. ``position`` is the zero-based index of the first offending character in the text, where there is one.
    """

    def __init__(self, reason: str, *, pointer: str = "/schedule", position: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.pointer = pointer
        self.position = position


class NotFound(HorariumError):
    """No such job or run in the caller's tenant."""


class Conflict(HorariumError):
    """The request contradicts what exists already."""


class RevisionMismatch(HorariumError):
    """The caller wrote a job on the strength of a revision that is no longer the current one, or of its absence."""


class InvalidCursor(HorariumError):
    """A cursor that was not given for this list, this filter and this tenant."""


class Unavailable(HorariumError):
    """Temporal or the database cannot answer now. Nothing is known to be wrong with the request."""


class Busy(Unavailable):
    """The job has as much before it as it takes. The same request may be taken later."""

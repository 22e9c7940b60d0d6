"""The one parent of every value that crosses a process or is kept in a job's state."""

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """A frozen value.

    Unknown fields are ignored and every field of a stored value has a default, so that a worker of another release can
    read what this one wrote.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_timedelta="iso8601")

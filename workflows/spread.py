"""How jobs that would all do something at one instant are spread. Pure."""

from zlib import crc32


def share_of(job_id: str) -> float:
    """Say where a job stands among all, from 0 to 1: by a hash of its id, so the same at each replay."""
    return crc32(job_id.encode()) / 2**32

"""Times of one day as the bits of an integer.

Bit *i* of a mask is second *i* of a day. A whole day of seconds is 86,400 bits, on which Python counts, cuts and joins
in microseconds: that is what makes a month of seconds cost no more than a month of minutes.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import count, pairwise

from workflows.zone import DAY

HOUR = 3_600
HOUR_BITS = (1 << HOUR) - 1
_MINUTE = 60
FULL_DAY = (1 << DAY) - 1

_MANY_TIMES = 300


@lru_cache(maxsize=512)
def clock_mask(hours: frozenset[int], minutes: frozenset[int], seconds: frozenset[int]) -> int:
    """Mask of every time of day whose hour, minute and second are all named."""
    minute_bits = _spread(seconds, 1, 1)
    hour_bits = _spread(minutes, _MINUTE, minute_bits)
    return _spread(hours, HOUR, hour_bits)


@lru_cache(maxsize=128)
def grid_mask(step: int) -> int:
    """Mask of the multiples of ``step`` seconds in two days, so that it can be cut at any phase of one day."""
    if step >= 2 * DAY:
        return 1
    count = -(-2 * DAY // step)
    return ((1 << (step * count)) - 1) // ((1 << step) - 1)


def cut(mask: int, first: int, last: int) -> int:
    """Keep the seconds ``first <= second <= last``, which may lie outside of the day."""
    if last < 0:
        return 0
    if first > 0:
        mask = (mask >> first) << first
    return mask & ((1 << (last + 1)) - 1) if last < DAY - 1 else mask


def list_seconds(mask: int) -> Iterator[int]:
    """Yield the seconds of a mask, earliest first."""
    hour = 0
    while mask:
        # An hour at a time, so that taking bits off one by one does not move the whole day each time.
        bits = mask & HOUR_BITS
        while bits:
            lowest = bits & -bits
            yield hour + lowest.bit_length() - 1
            bits ^= lowest
        mask >>= HOUR
        hour += HOUR


def list_last_seconds(mask: int, count: int) -> list[int]:
    """List the latest ``count`` seconds of a mask, earliest first."""
    seconds: list[int] = []
    while mask and len(seconds) < count:
        seconds.append(mask.bit_length() - 1)
        mask ^= 1 << seconds[-1]
    return seconds[::-1]


def first_second(mask: int) -> int:
    """The earliest second of a mask that is not empty."""
    return (mask & -mask).bit_length() - 1


def last_second(mask: int) -> int:
    """The latest second of a mask that is not empty."""
    return mask.bit_length() - 1


@lru_cache(maxsize=64)
def shortest_distance(mask: int) -> int | None:
    """Fewest seconds between two times of one day; ``None`` for fewer than two times."""
    if mask.bit_count() > _MANY_TIMES:
        # So many times cannot all be five minutes apart: comparing the day with itself finds the distance sooner.
        return next(distance for distance in count(1) if mask & (mask >> distance))
    return min((later - earlier for earlier, later in pairwise(list_seconds(mask))), default=None)


def _spread(positions: Iterable[int], width: int, bits: int) -> int:
    total = 0
    for position in positions:
        total |= bits << (position * width)
    return total

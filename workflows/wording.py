"""Small words for descriptions: lists, runs, ordinals, names of days and months."""

from collections.abc import Callable, Iterable

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)

_ORDINALS = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}


def join_words(words: Iterable[str], *, last: str = "and") -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    listed = list(words)
    if len(listed) < 2:
        return "".join(listed)
    return f"{', '.join(listed[:-1])} {last} {listed[-1]}"


def list_runs(values: Iterable[int], name: Callable[[int], str] = str) -> str:
    """Name values, three or more in a row as ``first through last``."""
    runs: list[list[int]] = []
    for value in sorted(values):
        if runs and runs[-1][-1] == value - 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    words: list[str] = []
    for run in runs:
        words += [f"{name(run[0])} through {name(run[-1])}"] if len(run) > 2 else [name(value) for value in run]
    return join_words(words)


def find_step(values: Iterable[int], *, lowest: int, highest: int) -> int | None:
    """The step of values that fill a field's whole range evenly; ``None`` for any others."""
    listed = sorted(values)
    if len(listed) < 2:
        return None
    step = listed[1] - listed[0]
    fills_range = listed == list(range(listed[0], highest + 1, step)) and listed[0] - step < lowest
    # Two values are a step only where they halve the field; else they are just two values.
    return step if fills_range and (len(listed) > 2 or step * 2 == highest - lowest + 1) else None


def ordinal(number: int) -> str:
    """``first``, ``22nd``, ``last``, ``third to last``; negative numbers count from the end."""
    if number == -1:
        return "last"
    if number < 0:
        return f"{ordinal(-number)} to last"
    return _ORDINALS.get(number, number_ordinal(number))


def list_ordinals(numbers: Iterable[int]) -> str:
    """``first, 15th and last``: from the start first, then from the end."""
    return join_words(ordinal(number) for number in sorted(numbers, key=lambda number: (number < 0, number)))


def number_ordinal(number: int) -> str:
    """``1st``, ``22nd``."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def capitalise(text: str) -> str:
    """Make the first letter a capital and leave the rest alone."""
    return text[:1].upper() + text[1:]

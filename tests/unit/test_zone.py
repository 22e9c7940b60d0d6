"""Which zones there are, and that every change of every clock is seen."""

import struct
from datetime import datetime
from importlib.resources import files

import pytest

from tests.unit.brute_force import package_zone
from tests.unit.schedules import at
from workflows.error import InvalidSchedule
from workflows.zone import FIRST_INSTANT, LAST_INSTANT, list_changes, load_zone, require_zone, stretch_at, to_datetime

_TRICKY = ["Africa/Casablanca", "America/Boa_Vista", "Africa/Monrovia", "Asia/Gaza", "Pacific/Apia", "Europe/Dublin"]


@pytest.mark.parametrize("name", ["Europe/Kiev", "Asia/Calcutta", "US/Pacific", "EST", "EST5EDT", "Etc/GMT+3", "UTC"])
def test_sb_155_names_that_the_database_has_are_taken_as_given(name: str) -> None:
    """Old names and links are names, too."""
    assert load_zone(name).key == name


@pytest.mark.parametrize(
    "name",
    [
        *("US/Pacific-New", "PST", "GMT+3", "UTC+3", "", " UTC", "utc", "america/new_york", "Mars/Base", "Etc/Unknown"),
        *(
            "../../etc/passwd",
            "/etc/localtime",
            ".",
            "..",
            "Europe",
            "Europe/",
            "tzdata.zi",
            "zone1970.tab",
            "__init__.py",
        ),
        *("Factory", "posixrules", "localtime", "A" * 5_000, "a\0b", "\0", "\ud800", "UTC\n", "\uff35TC"),
    ],
)
def test_sb_155_all_other_strings_are_refused_alike(name: str) -> None:
    """Paths, directories, other files of the package, odd characters: never another exception."""
    with pytest.raises(InvalidSchedule) as caught:
        require_zone(name)
    assert caught.value.pointer == "/timezone"
    assert len(caught.value.reason) < 200
    caught.value.reason.encode()


def test_a_name_in_wrong_case_is_refused_with_the_right_one() -> None:
    """So that all that is stored is spelled one way."""
    with pytest.raises(InvalidSchedule, match="did you mean 'America/New_York'"):
        require_zone("america/new_york ")


@pytest.mark.parametrize("name", _TRICKY)
def test_every_change_in_the_zones_own_table_is_found(name: str) -> None:
    """Looking every six days misses none of them, to the second."""
    table = [at_change for at_change in _read_table(name) if at_change > FIRST_INSTANT]
    zone = package_zone(name)
    expected = [
        change
        for change in table
        if to_datetime(change).astimezone(zone).utcoffset() != to_datetime(change - 1).astimezone(zone).utcoffset()
    ]
    found = [stretch.start for stretch in list_changes(name, 1800, max(to_datetime(table[-1]).year, 2030))]
    assert found[: len(expected)] == expected


def _read_table(name: str) -> list[int]:
    """The transition times of a TZif file's 64-bit block (RFC 8536)."""
    data = files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
    header = struct.Struct(">20x6l")
    utc, std, leap, times, types, chars = header.unpack_from(data)
    second = header.size + times * 5 + types * 6 + chars + leap * 8 + std + utc
    count = header.unpack_from(data, second)[3]
    return list(struct.unpack_from(f">{count}q", data, second + header.size))


def test_a_stretch_is_bounded_by_its_changes() -> None:
    """Apia's first hours of 31 December 2011: a day was skipped before, summer time ends after."""
    stretch = stretch_at("Pacific/Apia", int(at("2011-12-30T12:00Z").timestamp()))
    assert (to_datetime(stretch.start), to_datetime(stretch.end)) == (at("2011-12-30T10:00Z"), at("2012-03-31T14:00Z"))
    assert [seconds // 3600 for seconds in (stretch.before, stretch.offset, stretch.after)] == [-10, 14, 13]


@pytest.mark.parametrize("instant", [FIRST_INSTANT, LAST_INSTANT, FIRST_INSTANT - 10**9, LAST_INSTANT + 10**9])
def test_the_ends_of_time_have_a_stretch(instant: int) -> None:
    """Also beyond them."""
    assert stretch_at("Pacific/Auckland", instant).offset > 0
    assert isinstance(to_datetime(FIRST_INSTANT), datetime)

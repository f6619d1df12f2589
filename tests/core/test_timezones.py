"""Names of zones, and the changes of their clocks."""

from __future__ import annotations

from datetime import datetime

import pytest

from schedo.core.timezones import Change, check_zone, list_changes, load_zone, local_time, locate
from schedo.errors import Invalid

BERLIN = load_zone("Europe/Berlin")
SPRING = 1_743_296_400  # 2025-03-30T01:00Z: 02:00 becomes 03:00
AUTUMN = 1_761_440_400  # 2025-10-26T01:00Z: 03:00 becomes 02:00
HOUR = 3_600

local = datetime.fromisoformat


@pytest.mark.parametrize(
    "name",
    [
        "UTC",
        "Europe/Berlin",
        "America/Argentina/Buenos_Aires",
        "America/Port-au-Prince",
        "Etc/GMT+5",
        "Antarctica/DumontDUrville",
    ],
)
def test_an_iana_name_is_a_zone(name: str) -> None:
    check_zone(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "EST",
        "CET",
        "EST5EDT",
        "GMT",
        "localtime",
        "+01:00",
        "UTC+1",
        "utc",
        "Europe",
        "Europe/",
        "Europe/Nowhere",
        "America/Argentina",
        "Europe/Berlin/x",
        "../Europe/Berlin",
        "Europe/../Europe/Berlin",
        "/usr/share/zoneinfo/Europe/Berlin",
        "/etc/passwd",
        "right/Europe/Berlin",
        "posix/Europe/Berlin",
        "Europe/Berlin\n",
        "Europe/Ber\0lin",
        "Europe/" + "x" * 300,
    ],
)
def test_a_text_that_is_no_zone_is_refused_with_the_name_of_its_field(name: str) -> None:
    with pytest.raises(Invalid, match="/tz") as caught:
        check_zone(name)

    assert caught.value.problems[0].pointer == "/tz"
    assert len(str(caught.value)) < 200


def test_a_zone_is_loaded_once() -> None:
    assert load_zone("Asia/Tokyo") is load_zone("Asia/Tokyo")


def test_an_ordinary_local_time_has_one_instant() -> None:
    assert locate(BERLIN, local("2025-03-30T01:59")) == SPRING - 60
    assert locate(BERLIN, local("2025-03-30T03:00")) == SPRING


def test_a_local_time_in_a_gap_names_the_change() -> None:
    change = locate(BERLIN, local("2025-03-30T02:30"))

    assert change == Change(SPRING, HOUR, 2 * HOUR)
    assert change.is_gap
    assert change.window == (local("2025-03-30T02:00"), local("2025-03-30T03:00"))


def test_a_local_time_in_a_fold_names_the_change() -> None:
    change = locate(BERLIN, local("2025-10-26T02:00"))

    assert change == Change(AUTUMN, 2 * HOUR, HOUR)
    assert not change.is_gap
    assert change.window == (local("2025-10-26T02:00"), local("2025-10-26T03:00"))


def test_from_the_instant_of_a_change_on_local_time_is_the_new_one() -> None:
    assert local_time(BERLIN, SPRING - 1) == local("2025-03-30T01:59:59")
    assert local_time(BERLIN, SPRING) == local("2025-03-30T03:00")


def test_the_changes_of_a_year_are_listed_in_order() -> None:
    year = (1_735_689_600, 1_767_225_600)  # 2025

    changes = list(list_changes(BERLIN, *year))

    assert changes == [Change(SPRING, HOUR, 2 * HOUR), Change(AUTUMN, 2 * HOUR, HOUR)]


def test_a_range_of_changes_excludes_its_start_and_includes_its_end() -> None:
    assert list(list_changes(BERLIN, SPRING, SPRING + 10)) == []
    assert len(list(list_changes(BERLIN, SPRING - 10, SPRING))) == 1
    assert list(list_changes(BERLIN, SPRING, SPRING)) == []

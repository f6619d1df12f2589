"""The name of this machine's time zone."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedo.cli.local_zone import find_local_zone


@pytest.mark.parametrize(
    ("make", "zone"),
    [
        (lambda root: (root / "localtime").symlink_to("/usr/share/zoneinfo/Europe/Oslo"), None),
        (lambda root: (root / "timezone").write_text("Asia/Tokyo\n"), "Asia/Tokyo"),
        (lambda root: (root / "timezone").write_text("Nowhere/Land\n"), "UTC"),
        (lambda root: None, "UTC"),
    ],
    ids=["link", "name", "wrong name", "nothing"],
)
def test_the_default_zone_is_the_machines(
    make: object, zone: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TZ", raising=False)
    (tmp_path / "etc").mkdir()
    assert callable(make)
    make(tmp_path / "etc")

    assert find_local_zone(str(tmp_path)) == (zone or "Europe/Oslo")


def test_the_variable_tz_overrides_the_machines_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", ":America/Lima")

    assert find_local_zone() == "America/Lima"

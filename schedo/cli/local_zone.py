"""Finds the name of this machine's time zone, in which cron runs and tables show their times."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from schedo.core.timezones import check_zone
from schedo.errors import Invalid


def find_local_zone(root: str = "/") -> str:
    """Return the name of the machine's time zone; UTC if it is not known."""
    return next(filter(None, map(_zone_or_none, _zone_candidates(root))), "UTC")


def _zone_candidates(root: str) -> Iterator[str]:
    yield os.environ.get("TZ", "").removeprefix(":")
    link = os.path.realpath(os.path.join(root, "etc/localtime"))
    yield link.partition("/zoneinfo/")[2]
    try:
        yield Path(root, "etc/timezone").read_text("utf-8").strip()
    except (OSError, ValueError):
        return


def _zone_or_none(name: str) -> str | None:
    try:
        check_zone(name)
    except Invalid:
        return None
    return name

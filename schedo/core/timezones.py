"""Time zones: valid names, and the local times around changes of a zone's clock.

Zones are IANA names, loaded with zoneinfo. Instants are whole seconds UTC here, and local times are
naive datetimes. A change of a zone's clock makes a gap (local times that do not exist) or a fold
(local times that exist twice). zoneinfo does not list the changes, so this module finds them by
comparing offsets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from schedo.errors import Invalid

_DAY = 86_400
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - local times are naive on purpose
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_NAME_CHARACTERS_MAX = 64
# A name has at least one slash: those without (EST, CET, GB, Zulu) are abbreviations or old links.
_NAME = re.compile(r"[A-Z][A-Za-z_]*(?:/[A-Za-z][A-Za-z0-9_+-]*){1,2}\Z")


@lru_cache(maxsize=1_024)  # all 600 zones take 2.5 MB
def load_zone(name: str) -> ZoneInfo:
    """Return the zone; raise Invalid at /tz if the name is not a known zone."""
    shown = name[:_NAME_CHARACTERS_MAX]
    if name != "UTC" and not (len(name) <= _NAME_CHARACTERS_MAX and _NAME.match(name)):
        raise Invalid.field(
            "/tz", f"{shown!r} is not an IANA time zone name such as Europe/Berlin, or UTC"
        )
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError, ValueError):
        raise Invalid.field(
            "/tz", f"the time zone {shown!r} is not known; names are as in Europe/Berlin"
        ) from None


def check_zone(name: str) -> None:
    """Raise Invalid at /tz unless name is UTC or an IANA zone that this machine knows."""
    load_zone(name)


class Change(NamedTuple):
    """A change of a zone's clock: its instant, and the offsets before and after it, in seconds."""

    at: int
    before: int
    after: int

    @property
    def is_gap(self) -> bool:
        return self.after > self.before

    @property
    def window(self) -> tuple[datetime, datetime]:
        """The local times that do not exist or exist twice, from the first to before the second."""
        low, high = sorted((self.before, self.after))
        return _EPOCH + timedelta(seconds=self.at + low), _EPOCH + timedelta(seconds=self.at + high)


def local_time(zone: ZoneInfo, second: int) -> datetime:
    """Return the local time at the instant."""
    return (_EPOCH_UTC + timedelta(seconds=second)).astimezone(zone).replace(tzinfo=None)


def locate(zone: ZoneInfo, local: datetime) -> int | Change:
    """Return the instant of the local time, or the change in whose gap or fold it lies."""
    before = _offset(local.replace(tzinfo=zone, fold=0))
    after = _offset(local.replace(tzinfo=zone, fold=1))
    if before == after:
        return instant_of(local, before)
    # PEP 495: in gaps as in folds, fold=0 takes the offset before the change, fold=1 the one after.
    low, high = sorted((instant_of(local, before), instant_of(local, after)))
    return _find_change(zone, low, high)


def instant_of(local: datetime, offset: int) -> int:
    """Return the instant of the local time where clocks are `offset` seconds ahead of UTC."""
    passed = local - _EPOCH
    return passed.days * _DAY + passed.seconds - offset


def list_changes(zone: ZoneInfo, after: int, through: int) -> Iterator[Change]:
    """Yield the changes in (after, through], oldest first; no zone changes twice within a day."""
    low, offset = after, offset_at(zone, after)
    while low < through:
        high = min(low + _DAY, through)
        following = offset_at(zone, high)
        if following != offset:
            yield _find_change(zone, low, high)
        low, offset = high, following


def _find_change(zone: ZoneInfo, low: int, high: int) -> Change:
    """Return the change in (low, high], where the offsets at both ends differ."""
    before, after = offset_at(zone, low), offset_at(zone, high)
    while high - low > 1:
        middle = (low + high) // 2
        if offset_at(zone, middle) == before:
            low = middle
        else:
            high = middle
    return Change(high, before, after)


def _offset(aware: datetime) -> int:
    offset = aware.utcoffset()
    assert offset is not None, "an aware time has an offset"
    return offset.days * _DAY + offset.seconds


def offset_at(zone: ZoneInfo, second: int) -> int:
    """Return how many seconds clocks are ahead of UTC at the instant."""
    return _offset((_EPOCH_UTC + timedelta(seconds=second)).astimezone(zone))

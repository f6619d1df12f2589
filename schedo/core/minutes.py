"""A minute of the series as JSON, as the store has it; in a cluster, each server stores its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from schedo.core.series import COUNTS, FIGURE_MAX, PARTED_GAUGES, QUEUE_COUNTS, QUEUE_PARTS


class StoredMinute(msgspec.Struct, omit_defaults=True):
    """A minute in the store: counts above 0 and known gauges by name, so that names may change."""

    counts: dict[str, int] = {}
    gauges: dict[str, int] = {}
    lateness: dict[str, list[int]] = {}  # of the buckets, by kind
    queues: dict[str, dict[str, int]] = {}


_DECODER = msgspec.json.Decoder(StoredMinute)
_SUMMED_OF_QUEUES = frozenset((*QUEUE_COUNTS, *QUEUE_PARTS))


def merge_minutes(texts: Iterable[str]) -> str:
    """Return the same minute of several servers as that of one which has all of their jobs."""
    merged = StoredMinute()
    for each in map(_DECODER.decode, texts):
        queues = merged.queues.keys() | each.queues.keys()
        merged = StoredMinute(
            _merge(merged.counts, each.counts, COUNTS),
            _merge(merged.gauges, each.gauges, PARTED_GAUGES),
            {
                kind: _add_lists(merged.lateness.get(kind, []), each.lateness.get(kind, []))
                for kind in sorted(merged.lateness.keys() | each.lateness.keys())
            },
            {
                name: _merge(
                    merged.queues.get(name, {}), each.queues.get(name, {}), _SUMMED_OF_QUEUES
                )
                for name in sorted(queues)
            },
        )
    return msgspec.json.encode(merged).decode()


def _merge(
    one: Mapping[str, int], other: Mapping[str, int], summed: Iterable[str]
) -> dict[str, int]:
    """Return the sums of some figures, and the largest values of the others."""
    added = {*summed}
    return {
        name: min(one.get(name, 0) + other.get(name, 0), FIGURE_MAX)
        if name in added
        else max(one.get(name, 0), other.get(name, 0))
        for name in [*one, *(name for name in other if name not in one)]
    }


def _add_lists(one: list[int], other: list[int]) -> list[int]:
    if not one or not other:
        return one or other
    return [min(a + b, FIGURE_MAX) for a, b in zip(one, other, strict=True)]

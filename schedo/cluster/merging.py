"""Makes one response of those of all servers: lists are joined, and figures are added up.

Each function takes the responses as parsed JSON, by the name of their servers, that of this server
first, and the names of the servers whose responses are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from schedo.cluster.dry_runs import merge_dry_runs
from schedo.cluster.worker_lists import join_workers
from schedo.core.failure_groups import GROUPS_MAX
from schedo.core.lateness import Budget
from schedo.core.limits import SECOND
from schedo.core.series import GAUGES, PARTED_GAUGES
from schedo.engine.summary import LONG_MAX, QUEUES_MAX, WORKERS_MAX
from schedo.protocol.names import NAMES_MAX
from schedo.protocol.summary import BudgetResponse
from schedo.protocol.times import parse_instant

Record = dict[str, Any]
Parts = Mapping[str, Record]
Merge = Callable[[Parts, Sequence[str]], Record]
OPEN = ("active", "cordoned")  # states of workers whose slots count
_LEVELS = ("ok", "warning", "critical")
LARGEST = frozenset(GAUGES) - PARTED_GAUGES | {"delay_p99_us"}  # the others are added up


def _merge_workers(parts: Parts, missing: Sequence[str]) -> Record:
    return {"items": join_workers({name: part["items"] for name, part in parts.items()})}


def _merge_worker(parts: Parts, missing: Sequence[str]) -> Record:
    [worker] = join_workers({name: [part] for name, part in parts.items()})
    return worker


def _merge_queues(parts: Parts, missing: Sequence[str]) -> Record:
    return {"items": _add_queues(part["items"] for part in parts.values())}


def _merge_queue(parts: Parts, missing: Sequence[str]) -> Record:
    [queue] = _add_queues([part] for part in parts.values())
    return queue


def _add_queues(lists: Iterable[Sequence[Record]]) -> list[Record]:
    """Return the queues by name, with the jobs of all servers."""
    queues: dict[str, Record] = {}
    for queue in (each for part in lists for each in part):
        known = queues.setdefault(queue["name"], queue)
        if known is queue:
            continue
        known["running"] += queue["running"]
        known["waiting"] = add_counts(known["waiting"], queue["waiting"])
        known["counted_at"] = min(known["counted_at"], queue["counted_at"])
        oldest = [each["oldest_due_at"] for each in (known, queue) if "oldest_due_at" in each]
        if oldest:
            known["oldest_due_at"] = min(oldest)
    return [queues[name] for name in sorted(queues)]


def _merge_names(parts: Parts, missing: Sequence[str]) -> Record:
    """Return the names that any server knows; each knows its own workers, and their tasks."""
    return {
        kind: sorted({name for part in parts.values() for name in part[kind]})[:most]
        for kind, most in NAMES_MAX.items()
    }


def _merge_expectations(parts: Parts, missing: Sequence[str]) -> Record:
    # While a shard moves, both servers may respond with what is in it; the later record counts.
    found: dict[str, Record] = {}
    for each in (each for part in parts.values() for each in part["items"]):
        known = found.get(each["name"], each)
        found[each["name"]] = max(known, each, key=itemgetter("updated_at"))
    return {"items": [found[name] for name in sorted(found)]}


def _merge_operations(parts: Parts, missing: Sequence[str]) -> Record:
    # While a shard moves, both servers may list what is in it; the one that has done more is newer.
    found: dict[str, Record] = {}
    for each in (each for part in parts.values() for each in part["items"]):
        found[each["id"]] = max(found.get(each["id"], each), each, key=_count_done)
    return {"items": [found[ident] for ident in sorted(found, reverse=True)]}


def _count_done(operation: Record) -> tuple[bool, int]:
    done: int = operation["done"] + operation["skipped"] + operation["failed"]
    return "ended_at" in operation, done


def _merge_failures(parts: Parts, missing: Sequence[str]) -> Record:
    groups: dict[tuple[Any, ...], Record] = {}
    for group in (each for part in parts.values() for each in part["items"]):
        key = (group["task"], group["type"], group["exit_code"], group["message"])
        known = groups.get(key)
        if known is None:
            groups[key] = group
            continue
        newer, older = sorted((known, group), key=itemgetter("last_at"), reverse=True)
        sums = {name: newer[name] + older[name] for name in ("count", "beyond", "failed_jobs")}
        recent = [a + b for a, b in zip(newer["recent"], older["recent"], strict=True)]
        first_at = min(newer["first_at"], older["first_at"])
        groups[key] = newer | sums | {"recent": recent, "first_at": first_at}
    items = sorted(groups.values(), key=itemgetter("last_at"), reverse=True)
    since = min(part["since"] for part in parts.values())
    return {"since": since, "items": items[:GROUPS_MAX]}


def _merge_summaries(parts: Parts, missing: Sequence[str]) -> Record:
    own, found = next(iter(parts.values())), list(parts.values())
    queues = _add_queues(part["queues"] for part in found)
    workers = join_workers({name: part["workers"] for name, part in parts.items()})
    states = [part["states"] for part in found]
    return (
        own
        | {
            "verdict": merge_verdicts(parts, missing),
            "lateness": {
                kind: _merge_lateness([part["lateness"][kind] for part in found])
                for kind in own["lateness"]
            },
            "recent": add_counts(*(part["recent"] for part in found)),
            "recent_seconds": max(part["recent_seconds"] for part in found),
            "quarter": add_counts(*(part["quarter"] for part in found)),
            "day": add_counts(*(part["day"] for part in found)),
            "states": None if None in states else add_counts(*states),
            "running": sum(part["running"] for part in found),
            "slots": _count_slots(found, workers),
            "store_bytes": max(part["store_bytes"] for part in found),  # all have the same store
            "memory_bytes": sum(part["memory_bytes"] for part in found),
            "queues": queues[:QUEUES_MAX],
            "has_more_queues": len(queues) > QUEUES_MAX or any(p["has_more_queues"] for p in found),
            "workers": workers[:WORKERS_MAX],
            "has_more_workers": len(workers) > WORKERS_MAX
            or any(part["has_more_workers"] for part in found),
            "long_waits": sorted(
                (each for part in found for each in part["long_waits"]), key=itemgetter("due_at")
            )[:LONG_MAX],
        }
    )


def _count_slots(found: Sequence[Record], workers: Sequence[Record]) -> int:
    """Return the slots of all workers; those of one that polls several servers count once.

    If a server has more workers than it lists, such a worker may count several times.
    """
    if any(part["has_more_workers"] for part in found):
        return sum(part["slots"] for part in found)
    return sum(each["slots"] for each in workers if each["state"] in OPEN)


def merge_verdicts(parts: Parts, missing: Sequence[str]) -> Record:
    """Return the gravest verdict; the sentences of the others follow it."""
    found = [
        (_LEVELS.index(part["verdict"]["level"]), text, name)
        for name, part in parts.items()
        for text in (part["verdict"]["text"], *part["verdict"]["others"])
    ]
    grave = sorted((each for each in found if each[0]), key=itemgetter(0), reverse=True)
    lost = [f"the server {name} does not respond" for name in missing]
    texts = [f"{name}: {text}" for _, text, name in grave] + lost
    if not texts:
        return next(iter(parts.values()))["verdict"]  # type: ignore[no-any-return]
    level = _LEVELS[grave[0][0] if grave else _LEVELS.index("warning")]
    return {"level": level, "text": texts[0], "others": texts[1:]}


def _merge_lateness(found: Sequence[Record]) -> Record:
    """Return the lateness of all; a quantile is that of the server whose jobs were latest."""
    return {
        **{name: largest(each[name] for each in found) for name in ("p50_us", "p99_us")},
        **{name: _merge_budgets([each[name] for each in found]) for name in ("recent", "day")},
    }


def _merge_budgets(found: Sequence[Record]) -> Record:
    budget = Budget(sum(each["starts"] for each in found), sum(each["within"] for each in found))
    return msgspec.structs.asdict(BudgetResponse.of(budget))


def _merge_timeseries(parts: Parts, missing: Sequence[str]) -> Record:
    own, *others = parts.values()
    # The clocks of the servers may be in different intervals; then the newest of one has no match.
    found = [own] + [_shift(part, own["start"]) for part in others if part["step"] == own["step"]]
    figures = {
        name: [
            (largest if name in LARGEST else add_known)(values)
            for values in zip(*(part["figures"][name] for part in found), strict=True)
        ]
        for name in own["figures"]
    }
    merged = own | {"figures": figures}
    if "lateness" in own:
        merged["lateness"] = {
            kind: [
                _add_known_rows(rows)
                for rows in zip(*(part["lateness"][kind] for part in found), strict=True)
            ]
            for kind in own["lateness"]
        }
    if "queues" in own:
        names = dict.fromkeys(name for part in parts.values() for name in part["queues"])
        merged["queues"] = list(names)
    return merged


def _shift(part: Record, start: str) -> Record:
    """Return the part with its first interval at the start, by adding and dropping intervals."""
    later = (parse_instant(part["start"]) - parse_instant(start)) // (part["step"] * SECOND)

    def shift(values: list[Any]) -> list[Any]:
        padded = [None] * max(0, later) + values[max(0, -later) :] + [None] * max(0, -later)
        return padded[: len(values)]

    shifted = {name: shift(values) for name, values in part["figures"].items()}
    lateness = {name: shift(values) for name, values in part.get("lateness", {}).items()}
    return part | {"figures": shifted, "lateness": lateness}


def add_counts(*counts: Mapping[str, int]) -> dict[str, int]:
    """Return the sums by name."""
    names = dict.fromkeys(name for each in counts for name in each)
    return {name: sum(each.get(name, 0) for each in counts) for name in names}


def largest(values: Iterable[int | None]) -> int | None:
    """Return the largest of the values that are known; None: none is."""
    return max((value for value in values if value is not None), default=None)


def add_known(values: Iterable[int | None]) -> int | None:
    """Return the sum of the values that are known; None: none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _add_known_rows(rows: Iterable[Sequence[int] | None]) -> list[int] | None:
    known = [row for row in rows if row is not None]
    return add_up(known) if known else None


def add_up(rows: Sequence[Sequence[int]]) -> list[int]:
    """Return the sums by place."""
    return [sum(column) for column in zip(*rows, strict=True)]


MERGERS: Mapping[str, Merge] = {
    "list_workers": _merge_workers,
    "get_worker": _merge_worker,
    "cordon_worker": _merge_worker,
    "uncordon_worker": _merge_worker,
    "drain_worker": _merge_worker,
    "list_queues": _merge_queues,
    "update_queue": _merge_queue,
    "pause_queue": _merge_queue,
    "resume_queue": _merge_queue,
    "list_expectations": _merge_expectations,
    "list_failures": _merge_failures,
    "list_operations": _merge_operations,
    "list_names": _merge_names,
    "get_summary": _merge_summaries,
    "get_timeseries": _merge_timeseries,
    "invoke": merge_dry_runs,
}

"""When all schedules fire in a range of time, and how many of them in the same second."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from schedo.core.cron import describe_clock_change
from schedo.core.fire_masks import Span, Tally, interval_instants, mask_of, seconds_of, split
from schedo.core.limits import SECOND
from schedo.core.model import Rule
from schedo.core.timezones import list_changes, load_zone
from schedo.core.triggers import latest_through

NAMES_SHOWN = 20  # of the schedules with the same rule, and of those that fire together
LISTED_MAX = 300  # instants of a rule; of more there are only counts
_BUSIEST_MAX = 5
_DAY = 86_400


@dataclass(slots=True)
class RuleUsers:
    """The schedules with one rule: how many, and the names of the first."""

    count: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        self.count += 1
        if len(self.names) < NAMES_SHOWN:
            self.names.append(name)


class RuleFires(NamedTuple):
    """The fires of one rule in the range; of many instants there are only counts of each part."""

    rule: Rule
    users: RuleUsers
    total: int
    instants: Sequence[int]  # LISTED_MAX at most; empty if there are more
    counts: Sequence[int]
    clock_changes: Sequence[tuple[int, str]]


class Together(NamedTuple):
    """A second in which several schedules fire."""

    at: int
    schedules: int
    names: Sequence[str]  # NAMES_SHOWN at most


class FireMap(NamedTuple):
    """The fires of all schedules in a range of time."""

    most: list[tuple[int, int]]  # of each part: how many fire in one second, and in which one
    busiest: list[Together]
    fires: list[RuleFires]  # of the rules that fire first
    has_more: bool


Rules = Mapping[Rule, RuleUsers]


def map_fires(rules: Rules, span: Span, width: int, limit: int) -> Generator[None, None, FireMap]:
    """Return the fires of the rules in the range, in short steps; width: of a part, in seconds.

    Schedules whose jitter is a second or more spread themselves: they do not count as firing
    together.
    """
    tally = Tally()
    order: list[tuple[int, str, Rule]] = []
    for rule, users in rules.items():
        mask = yield from mask_of(rule, span)
        if mask:
            order.append(((mask & -mask).bit_length(), users.names[0], rule))
            if rule.jitter_us < SECOND:
                tally.add(mask, users.count)
        yield
    order.sort(key=lambda each: each[:2])
    most = tally.largest(span, width)
    yield
    fires = []
    for _, _, rule in order[:limit]:
        fires.append((yield from _fires_of(rule, rules[rule], span, width)))
        yield
    busiest = yield from _name_busiest(rules, span, most)
    return FireMap(most, busiest, fires, len(order) > limit)


def _fires_of(
    rule: Rule, users: RuleUsers, span: Span, width: int
) -> Generator[None, None, RuleFires]:
    if rule.every_us is not None:
        instants: Sequence[int] = interval_instants(
            rule, span.first * SECOND, span.end * SECOND - 1
        )
        count = len(instants)
        counts = _counts_of(instants, span, width) if count > LISTED_MAX else []
    else:
        mask = yield from mask_of(rule, span)
        count = mask.bit_count()
        parts = [*split(mask, span, width)]
        counts = [part.bit_count() for part in parts] if count > LISTED_MAX else []
        instants = [
            (span.first + place * width + second) * SECOND
            for place, part in enumerate(parts)
            for second in (seconds_of(part) if count <= LISTED_MAX else ())
        ]
        if rule.at is not None and instants:
            instants = [rule.at]
    listed = instants if count <= LISTED_MAX else ()
    return RuleFires(rule, users, count, listed, counts, _clock_changes(rule, listed, span))


def _counts_of(instants: Sequence[int], span: Span, width: int) -> list[int]:
    """Return how many of evenly spaced instants each part of the range has."""
    first, step = instants[0], instants[1] - instants[0]
    below = [
        min(len(instants), max(0, -(-(second * SECOND - first) // step)))
        for second in (*range(span.first, span.end, width), span.end)
    ]
    return [after - before for before, after in pairwise(below)]


def _clock_changes(rule: Rule, instants: Sequence[int], span: Span) -> list[tuple[int, str]]:
    if rule.cron is None:
        return []
    zone, found = load_zone(rule.tz), []
    for change in list_changes(zone, span.first - _DAY, span.end + _DAY):
        for at in instants:
            if abs(at // SECOND - change.at) < _DAY:
                text = describe_clock_change(rule.cron, rule.tz, at, rule.gap)
                found += [] if text is None else [(at, text)]
    return found


def _name_busiest(
    rules: Rules, span: Span, most: Sequence[tuple[int, int]]
) -> Generator[None, None, list[Together]]:
    """Return the seconds in which the most schedules fire, at most one of each part."""
    together = sorted((each for each in most if each[0] > 1), key=lambda each: (-each[0], each[1]))
    found = []
    for count, place in together[:_BUSIEST_MAX]:
        second = span.first + place
        names: list[str] = []
        for rule, users in rules.items():
            if fires_in(rule, second):
                names += users.names[: NAMES_SHOWN - len(names)]
            if len(names) == NAMES_SHOWN:
                break
            yield
        found.append(Together(second * SECOND, count, names))
    return sorted(found)


def list_together(rules: Rules, seconds: Sequence[int]) -> Generator[None, None, list[Together]]:
    """Return how many schedules fire in each of the seconds, and the names of the first."""
    users = [RuleUsers() for _ in seconds]
    for rule, those in rules.items():
        for second, found in zip(seconds, users, strict=True):
            if fires_in(rule, second):
                found.count += those.count
                found.names += those.names[: NAMES_SHOWN - len(found.names)]
            yield
    return [
        Together(second * SECOND, found.count, found.names)
        for second, found in zip(seconds, users, strict=True)
    ]


def fires_in(rule: Rule, second: int) -> bool:
    """Whether the rule fires in the second, and its jitter does not spread its runs."""
    first = second * SECOND
    through = first + SECOND - 1
    return rule.jitter_us < SECOND and latest_through(rule, first - 1, through, 0)[1] > 0

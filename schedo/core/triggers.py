"""The instants of a schedule's rule: the next one, the latest ones, and their jitter.

Instants are integer microseconds UTC. The start_at and end_at of a rule are both inclusive. The
instants of an interval are start_at plus whole multiples of the interval, or whole multiples since
1970 without a start_at. So a restart of the server does not move them (as in Temporal's
IntervalSpec). A clock change moves all of them by the rule's phase_us, so that their distance in
elapsed time stays the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from itertools import count, takewhile

from schedo.core import limits
from schedo.core.cron import count_fires, fires_after, next_fire, parse_cron, previous_fire
from schedo.core.cron_syntax import EVERY_US_MIN
from schedo.core.model import Rule
from schedo.core.timezones import check_zone
from schedo.errors import Invalid

# Thousands of schedules share a handful of rules, and most fire at the same full minutes.
_NEXT_FIRES_KEPT = 1_024


def next_after(rule: Rule, after: int) -> int | None:
    """Return the first instant strictly after `after`, or None if there is none."""
    if rule.cron is not None:  # it has whole seconds only, so all of a second ask for the same one
        after -= after % limits.SECOND
    return _next_after(rule, after)


@lru_cache(maxsize=_NEXT_FIRES_KEPT)
def _next_after(rule: Rule, after: int) -> int | None:
    after = _not_before_start(rule, after)
    if rule.cron is not None:
        instant = next_fire(rule.cron, rule.tz, after, rule.gap, rule.fold)
    elif rule.every_us is not None:
        instant = _next_of_interval(rule, rule.every_us, after)
    else:
        instant = rule.at if rule.at is not None and rule.at > after else None
    return instant if instant is not None and instant <= _last_instant(rule) else None


def instants_after(rule: Rule, after: int) -> Iterator[int]:
    """Yield the instants strictly after `after`, oldest first: next_after of each is the following.

    It is for lists: it costs less than calls of next_after, and leaves their cache to the timers.
    """
    after = _not_before_start(rule, after)
    instants: Iterator[int]
    if rule.cron is not None:
        instants = fires_after(rule.cron, rule.tz, after, rule.gap, rule.fold)
    elif rule.every_us is not None:
        instants = count(_next_of_interval(rule, rule.every_us, after), rule.every_us)
    else:
        instants = iter([rule.at] if rule.at is not None and rule.at > after else [])
    last = _last_instant(rule)
    return takewhile(lambda instant: instant <= last, instants)


def latest_through(rule: Rule, after: int, through: int, count_max: int) -> tuple[list[int], int]:
    """Return at most count_max instants in (after, through], newest first, and their full count.

    The count stops at MISSED_COUNT_MAX. The cost does not depend on the number of instants.
    """
    after = _not_before_start(rule, after)
    if rule.end_at is not None:
        through = min(through, rule.end_at)
    if through <= after:
        return [], 0
    instants: list[int] = []
    oldest = through + 1
    while len(instants) < count_max:
        previous = _previous_before(rule, oldest)
        if previous is None or previous <= after:
            return instants, min(len(instants), limits.MISSED_COUNT_MAX)
        instants.append(previous)
        oldest = previous
    counted = len(instants) + _count(rule, after, oldest - 1)
    return instants, min(counted, limits.MISSED_COUNT_MAX)


def jitter_for(schedule_id: int, scheduled_for: int, rule: Rule) -> int:
    """Return the delay of this fire in microseconds; it is the same for each call.

    The delay is at most rule.jitter_us, and always ends before the next instant.
    """
    if rule.jitter_us == 0:
        return 0
    return jitter_before(schedule_id, scheduled_for, rule, next_after(rule, scheduled_for))


def jitter_before(schedule_id: int, scheduled_for: int, rule: Rule, following: int | None) -> int:
    """Return what jitter_for does; following: the next instant of the rule."""
    if rule.jitter_us == 0:
        return 0
    room = rule.jitter_us + 1
    if following is not None:
        room = min(room, following - scheduled_for)
    digest = hashlib.sha256(f"{schedule_id} {scheduled_for}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % room


def check_rule(rule: Rule, now: int = limits.INSTANT_MIN) -> None:
    """Raise Invalid unless the rule is valid and has an instant at or after now."""
    if sum(part is not None for part in (rule.cron, rule.every_us, rule.at)) != 1:
        raise Invalid.field("", "give exactly one of cron, every and at")
    check_zone(rule.tz)
    if rule.every_us is not None and not EVERY_US_MIN <= rule.every_us <= limits.DURATION_MAX:
        raise Invalid.field("/every", "an interval is between 100ms and 100 years")
    if not 0 <= rule.jitter_us <= limits.DURATION_MAX:
        raise Invalid.field("/jitter", "a jitter is between 0 and 100 years")
    _check_instants(rule)
    if rule.cron is not None:
        parsed = parse_cron(rule.cron, seed="")
        if parsed.normalized != rule.cron:
            raise Invalid.field("/cron", f"{rule.cron!r} is not in its normalized form")
    if next_after(rule, now - 1) is None:
        raise _never(rule)


def _check_instants(rule: Rule) -> None:
    for pointer, instant in (
        ("/at", rule.at),
        ("/start_at", rule.start_at),
        ("/end_at", rule.end_at),
    ):
        if instant is not None and not limits.INSTANT_MIN <= instant <= limits.INSTANT_MAX:
            raise Invalid.field(pointer, "the instant is not between the years 1970 and 9999")
    if rule.start_at is not None and rule.end_at is not None and rule.end_at <= rule.start_at:
        raise Invalid.field("/end_at", "end_at is not after start_at")


def _never(rule: Rule) -> Invalid:
    if rule.end_at is not None:
        return Invalid.field("/end_at", "the schedule never fires before its end")
    if rule.at is not None:
        return Invalid.field("/at", "the instant has passed, so the schedule never fires")
    return Invalid.field(
        "/cron" if rule.cron is not None else "/every",
        f"the schedule never fires in {rule.tz}: no such time comes within 50 years",
    )


def _not_before_start(rule: Rule, after: int) -> int:
    if rule.start_at is None:
        return after
    return max(after, rule.start_at + rule.phase_us - 1)


def _last_instant(rule: Rule) -> int:
    return limits.INSTANT_MAX if rule.end_at is None else rule.end_at


def _next_of_interval(rule: Rule, every_us: int, after: int) -> int:
    anchor = _anchor(rule)
    return anchor + ((after - anchor) // every_us + 1) * every_us


def _anchor(rule: Rule) -> int:
    """Return an instant of the interval."""
    return (rule.start_at or 0) + rule.phase_us


def _previous_before(rule: Rule, before: int) -> int | None:
    """Return the last instant strictly before `before`, ignoring the rule's start and end."""
    if rule.cron is not None:
        return previous_fire(rule.cron, rule.tz, before, rule.gap, rule.fold)
    if rule.every_us is not None:
        anchor = _anchor(rule)
        return anchor + (before - 1 - anchor) // rule.every_us * rule.every_us
    return rule.at if rule.at is not None and rule.at < before else None


def _count(rule: Rule, after: int, through: int) -> int:
    """Return how many instants lie in (after, through], ignoring the rule's start and end."""
    if rule.cron is not None:
        return count_fires(rule.cron, rule.tz, after, through, rule.gap, rule.fold)
    if rule.every_us is not None:
        anchor = _anchor(rule)
        return (through - anchor) // rule.every_us - (after - anchor) // rule.every_us
    return int(rule.at is not None and after < rule.at <= through)

"""The seconds of a range in which rules fire, as integers: bit n stands for the second n.

An integer of a day has 11 kB, and one operation on it takes some microseconds. So how many of ten
thousand schedules fire in the same second is counted without a list of their instants.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from math import gcd
from typing import NamedTuple

from schedo.core.cron import local_pattern
from schedo.core.limits import SECOND
from schedo.core.model import Rule
from schedo.core.timezones import Change, list_changes, load_zone, offset_at

_DAY = 86_400
_LISTED_IN_A_STEP = 2_048  # instants; each takes 0.2 us


class Span(NamedTuple):
    """A range of whole seconds."""

    first: int  # in seconds since 1970
    seconds: int

    @property
    def end(self) -> int:
        """The second after the last one."""
        return self.first + self.seconds

    def bits(self, begin: int, end: int) -> int:
        """Return the mask of the seconds from `begin` to before `end`, as far as it has them."""
        begin, end = max(begin, self.first), min(end, self.end)
        return (1 << (end - begin)) - 1 << (begin - self.first) if begin < end else 0


def mask_of(rule: Rule, span: Span) -> Generator[None, None, int]:
    """Return the mask of the seconds in which the rule fires, in short steps."""
    if rule.every_us is not None:
        return (yield from _interval_mask(rule, rule.every_us, span))
    if rule.cron is not None:
        return _cron_mask(rule, rule.cron, span) & _bits_of_life(rule, span)
    assert rule.at is not None, "a rule has a cron, an interval or an instant"
    second = rule.at // SECOND
    return span.bits(second, second + 1) & _bits_of_life(rule, span)


def _bits_of_life(rule: Rule, span: Span) -> int:
    begin, end = span.first, span.end
    if rule.start_at is not None:
        begin = -(-(rule.start_at + rule.phase_us) // SECOND)
    if rule.end_at is not None:
        end = rule.end_at // SECOND + 1
    return span.bits(begin, end)


def _cron_mask(rule: Rule, cron: str, span: Span) -> int:
    pattern, zone = local_pattern(cron, rule.gap, rule.fold), load_zone(rule.tz)
    # The passes of a fold may begin before the range, or the fold itself come after it.
    changes = list(list_changes(zone, span.first - _DAY, span.end + _DAY))
    inside = [change for change in changes if span.first < change.at < span.end]
    begins = [span.first, *(change.at for change in inside)]
    mask = 0
    for begin, end in zip(begins, [*begins[1:], span.end], strict=True):
        local = pattern.mask(begin + offset_at(zone, begin), end - begin)
        mask |= local << (begin - span.first)
    for change in changes:
        length = abs(change.after - change.before)
        if not change.is_gap:
            mask &= ~_lost_pass(change, length, pattern.fold, span)
        elif pattern.gap == "after" and pattern.mask(change.at + change.before, length):
            mask |= span.bits(change.at, change.at + 1)
    return mask


def _lost_pass(change: Change, length: int, fold: str, span: Span) -> int:
    """Return the seconds of a fold's pass in which the rule does not fire."""
    if fold == "both":
        return 0
    begin = change.at if fold == "first" else change.at - length
    return span.bits(begin, begin + length)


def _interval_mask(rule: Rule, every_us: int, span: Span) -> Generator[None, None, int]:
    instants = interval_instants(rule, span.first * SECOND, span.end * SECOND - 1)
    if not instants:
        return 0
    first, last = instants[0] // SECOND, instants[-1] // SECOND
    if every_us <= SECOND:
        return span.bits(first, last + 1)
    repeats = SECOND // gcd(every_us, SECOND)  # after as many instants, a fraction comes again
    width = repeats * every_us // SECOND
    base = bytearray((min(width, last - first) >> 3) + 1)
    for place, at in enumerate(instants[:repeats]):
        second = at // SECOND - first
        base[second >> 3] |= 1 << (second & 7)
        if place % _LISTED_IN_A_STEP == _LISTED_IN_A_STEP - 1:
            yield
    mask = int.from_bytes(base, "little")
    while width <= last - first:
        mask |= mask << width
        width *= 2
    return (mask << (first - span.first)) & span.bits(first, last + 1)


def interval_instants(rule: Rule, first: int, last: int) -> range:
    """Return the instants of a rule with an interval, in microseconds, from one to another."""
    assert rule.every_us is not None, "the rule has an interval"
    anchor = (rule.start_at or 0) + rule.phase_us
    if rule.start_at is not None:
        first = max(first, anchor)
    if rule.end_at is not None:
        last = min(last, rule.end_at)
    first = anchor + -(-(first - anchor) // rule.every_us) * rule.every_us
    return range(first, last + 1, rule.every_us)


def split(mask: int, span: Span, width: int) -> Iterator[int]:
    """Yield the masks of the parts of a range, each of `width` seconds."""
    raw = mask.to_bytes(span.seconds // 8 + 1, "little")
    low = (1 << width) - 1
    for begin in range(0, span.seconds, width):
        part = int.from_bytes(raw[begin >> 3 : (begin + width >> 3) + 1], "little")
        yield part >> (begin & 7) & low


def seconds_of(mask: int) -> Iterator[int]:
    """Yield the places of the bits, the lowest first; the mask is short."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


class Tally:
    """How many of the added masks have each bit, as one integer for each binary digit."""

    def __init__(self) -> None:
        self._digits: list[int] = []

    def add(self, mask: int, times: int) -> None:
        """Add a mask, which stands for `times` schedules."""
        place = 0
        while times:
            if times & 1:
                self._carry(mask, place)
            times >>= 1
            place += 1

    def _carry(self, mask: int, place: int) -> None:
        while mask:
            while place >= len(self._digits):
                self._digits.append(0)
            before = self._digits[place]
            self._digits[place] = before ^ mask
            mask &= before
            place += 1

    def largest(self, span: Span, width: int) -> list[tuple[int, int]]:
        """Return the largest count of each part of the range, and the first second that has it.

        The second is 0 where the count is.
        """
        parts = [split(digit, span, width) for digit in self._digits]
        found = []
        for part, digits in enumerate(zip(*parts, strict=True)):
            count, left = 0, (1 << width) - 1
            for place in reversed(range(len(digits))):
                if left & digits[place]:
                    left &= digits[place]
                    count |= 1 << place
            found.append((count, part * width + next(seconds_of(left)) if count else 0))
        return found or [(0, 0)] * -(-span.seconds // width)

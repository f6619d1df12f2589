"""Job and schedule ids: 63-bit integers in order of creation, Crockford base32 at the edge.

An id is the creation time in microseconds times 256, with the slot of the server in the low 6 bits.
If that is not larger than the last id, the server takes the next multiple of 64 instead. So its ids
always grow, even when the clock goes back, and servers with different slots never make the same id.
As text, an id has 13 characters, so texts sort as the numbers do.

Slot 0 is a server with a SQLite file, which is always the only one. Slots 1 to 61 are the servers
of a cluster, and slot 62 is the SQL function that submits jobs. Slot 63 is free.
"""

from __future__ import annotations

from contextlib import suppress

from schedo.errors import NotFound

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES = {c: i for i, c in enumerate(_ALPHABET)} | {c.lower(): i for i, c in enumerate(_ALPHABET)}
_VALUES |= {
    "O": 0,
    "o": 0,
    "I": 1,
    "i": 1,
    "L": 1,
    "l": 1,
}  # Crockford: letters that look like digits


class _ToPython(dict[int, str]):
    """Maps Crockford's digits to those of int(text, 32), and all others to an invalid one."""

    def __missing__(self, character: int) -> str:
        return "!"


_TO_PYTHON = _ToPython(
    {ord(c): "0123456789abcdefghijklmnopqrstuv"[value] for c, value in _VALUES.items()}
)
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_LENGTH = 13
_PER_MICROSECOND = 256
SLOTS = 64
SQL_SLOT = 62
ID_MAX = 2**63 - 1
PREFIX_CHARACTERS_MIN = 4


class IdSource:
    """Makes the ids of one server. `last` is the largest id in the store."""

    def __init__(self, last: int = 0, slot: int = 0) -> None:
        if not 0 <= slot < SLOTS:
            raise ValueError(f"a slot is a number from 0 to {SLOTS - 1}, not {slot}")
        self.last = last
        self._slot = slot

    def next(self, now: int) -> int:
        """Return a new id with the creation time `now`."""
        number = now * _PER_MICROSECOND + self._slot
        if number <= self.last:
            number = (self.last // SLOTS + 1) * SLOTS + self._slot
        self.last = number
        return number

    def reach(self, now: int) -> None:
        """Let all later ids be newer than the instant, also after the clock was set back."""
        self.last = max(self.last, first_id(now))


def is_from_sql(number: int) -> bool:
    """Return whether the SQL function has made the id."""
    return number % SLOTS == SQL_SLOT


def may_be_from_sql(number: int) -> bool:
    """Return whether the SQL function can have made the id, and ids for later jobs are left."""
    return is_from_sql(number) and 0 < number <= ID_MAX // 2


def first_id(created_at: int) -> int:
    """Return the smallest id that can be made at this wall-clock instant."""
    return min(max(0, created_at * _PER_MICROSECOND), ID_MAX)


def newest_at(last: int) -> int:
    """Return the latest wall-clock instant at which an id was made, given the largest id."""
    return last // _PER_MICROSECOND


def render_id(number: int) -> str:
    """Return the id as 13 characters of Crockford base32."""
    # Every response of the API holds an id. Digits in pairs take a third of the time of thirteen
    # divisions.
    high, middle, low = number >> 40, number >> 20 & 0xFFFFF, number & 0xFFFFF
    return (
        _ALPHABET[high >> 20]
        + _PAIRS[high >> 10 & 1023]
        + _PAIRS[high & 1023]
        + _PAIRS[middle >> 10]
        + _PAIRS[middle & 1023]
        + _PAIRS[low >> 10]
        + _PAIRS[low & 1023]
    )


def parse_id(text: str) -> int:
    """Return the number; raise NotFound if the text is not a valid id."""
    if len(text) == _LENGTH:
        with suppress(ValueError):
            number = int(text.translate(_TO_PYTHON), 32)
            if number <= ID_MAX:
                return number
    raise NotFound(f"there is no job {text[:40]!r}: ids are {_LENGTH} characters of base32")


def prefix_range(text: str) -> tuple[int, int]:
    """Return the first and the last number whose ids begin with the text.

    The last is below the first if there is none, or if the text is too short to mean an id.
    """
    if PREFIX_CHARACTERS_MIN <= len(text) <= _LENGTH:
        with suppress(ValueError):
            bits = 5 * (_LENGTH - len(text))
            first = int(text.translate(_TO_PYTHON), 32) << bits
            if first <= ID_MAX:
                return first, first + (1 << bits) - 1
    return 1, 0

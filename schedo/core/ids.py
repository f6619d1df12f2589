"""Job and schedule ids: 63-bit integers in order of creation, Crockford base32 at the edge.

An id is the creation time in microseconds times 256, plus the slot of the server that made it in
the low 6 bits. A server whose last id is not smaller takes the next multiple of 64 instead, so its
ids never repeat and never go back, even when the clock does; and servers with different slots never
make the same one. As text: 13 characters, fixed width, so that text sorts as the numbers do.

Slot 0 is a server with a SQLite file, which has no others beside it; 1 to 61 are the servers of a
cluster, and 62 is the SQL function that submits jobs. 63 is free.
"""

from __future__ import annotations

from contextlib import suppress

from schedo.errors import NotFound

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES = {c: i for i, c in enumerate(_ALPHABET)} | {c.lower(): i for i, c in enumerate(_ALPHABET)}
_VALUES |= {"O": 0, "o": 0, "I": 1, "i": 1, "L": 1, "l": 1}  # Crockford: read what people mistype


class _ToPython(dict[int, str]):
    """From our digits to those of int(text, 32); all others become one that it refuses."""

    def __missing__(self, character: int) -> str:
        return "!"


_TO_PYTHON = _ToPython(
    {ord(c): "0123456789abcdefghijklmnopqrstuv"[value] for c, value in _VALUES.items()}
)
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_LENGTH = 13
_PER_MICROSECOND = 256
SLOTS = 64
ID_MAX = 2**63 - 1


class IdSource:
    """Makes the ids of one server; start it with the largest id in the store."""

    def __init__(self, last: int = 0, slot: int = 0) -> None:
        if not 0 <= slot < SLOTS:
            raise ValueError(f"a slot is a number from 0 to {SLOTS - 1}, not {slot}")
        self.last = last
        self._slot = slot

    def next(self, now: int) -> int:
        """Return a new id for something created at now."""
        number = now * _PER_MICROSECOND + self._slot
        if number <= self.last:
            number = (self.last // SLOTS + 1) * SLOTS + self._slot
        self.last = number
        return number

    def reach(self, now: int) -> None:
        """Let all later ids be newer than the instant, also after the clock was set back."""
        self.last = max(self.last, now * _PER_MICROSECOND)


def newest_at(last: int) -> int:
    """Return the latest that the wall clock was when an id was handed out, given the largest id."""
    return last // _PER_MICROSECOND


def render_id(number: int) -> str:
    """Return the id as 13 characters of Crockford base32."""
    # Six pairs of digits after the first: a third of the time of thirteen divisions, and every
    # answer of the API holds an id.
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
    """Return the number; raise NotFound if the text cannot be an id, for then nothing has it."""
    if len(text) == _LENGTH:
        with suppress(ValueError):
            number = int(text.translate(_TO_PYTHON), 32)
            if number <= ID_MAX:
                return number
    raise NotFound(f"there is no job {text[:40]!r}: ids are {_LENGTH} characters of base32")

"""Payloads of the built-in tasks: decoded and checked alike at submit and at run.

Pointers in errors begin with /payload, so that they fit the job request that carries it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice
from typing import TypeVar

import msgspec

from schedo.core.leases import Failed
from schedo.core.model import Failure
from schedo.errors import Invalid, Problem
from schedo.protocol.reading import at_once, read_checked
from schedo.protocol.times import parse_duration, render_duration

_PROBLEMS_MAX = 20  # named in one error
T = TypeVar("T", bound=msgspec.Struct)

Seconds = str | int | float  # a duration as people write it


def decode_payload(payload: bytes, kind: type[T]) -> T:
    """Return the payload as its type; raise Invalid, which names the field."""
    try:
        return at_once(read_checked(payload, kind))
    except msgspec.DecodeError as error:
        raise Invalid.field("/payload", f"it is not JSON: {error}") from None
    except Invalid as error:
        raise point_all(Problem(p.pointer, p.detail) for p in error.problems) from None


def refuse_all(*checks: Iterable[Problem]) -> None:
    """Raise Invalid with the problems that the checks find, if they find any."""
    problems = list(islice(chain(*checks), _PROBLEMS_MAX))
    if problems:
        raise point_all(problems)


def point_all(problems: Iterable[Problem]) -> Invalid:
    """Return one error for problems whose pointers begin below the payload."""
    below = [Problem(f"/payload{problem.pointer}", problem.detail) for problem in problems]
    return Invalid("; ".join(f"{p.pointer}: {p.detail}" for p in below), *below)


def find_duration_problem(value: Seconds, min_us: int, max_us: int) -> str | None:
    """Say what is wrong with a duration, or return None."""
    try:
        duration_us = parse_duration(value)
    except ValueError as error:
        return str(error)
    if not min_us <= duration_us <= max_us:
        return f"it must be {render_duration(min_us)} to {render_duration(max_us)}"
    return None


def refuse_payload(error: Invalid) -> Failed:
    """Return the outcome of a job whose payload cannot be run, now or later."""
    return Failed(Failure("bad-payload", str(error)), retryable=False)

"""Decoding and checks of the built-in tasks' payloads, the same at submit and at run.

Pointers in errors begin with /payload, so that they point into the job request.
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

_PROBLEMS_MAX = 20  # listed in one error
T = TypeVar("T", bound=msgspec.Struct)

Seconds = str | int | float  # a duration: "90s", "1h30m" or a number of seconds


def decode_payload(payload: bytes, kind: type[T]) -> T:
    """Decode the payload, or raise Invalid that names the bad fields."""
    try:
        return at_once(read_checked(payload, kind))
    except msgspec.DecodeError as error:
        raise Invalid.field("/payload", f"it is not JSON: {error}") from None
    except Invalid as error:
        raise at_payload(Problem(p.pointer, p.detail) for p in error.problems) from None


def refuse_all(*checks: Iterable[Problem]) -> None:
    """Raise Invalid with the problems that the checks find, if they find any."""
    problems = list(islice(chain(*checks), _PROBLEMS_MAX))
    if problems:
        raise at_payload(problems)


def at_payload(problems: Iterable[Problem]) -> Invalid:
    """Return one error for problems whose pointers begin below the payload."""
    below = [Problem(f"/payload{problem.pointer}", problem.detail) for problem in problems]
    return Invalid("; ".join(f"{p.pointer}: {p.detail}" for p in below), *below)


def find_duration_problem(value: Seconds, min_us: int, max_us: int) -> str | None:
    """Return the problem with a duration as a sentence, or None."""
    try:
        duration_us = parse_duration(value)
    except ValueError as error:
        return str(error)
    if not min_us <= duration_us <= max_us:
        return f"it must be {render_duration(min_us)} to {render_duration(max_us)}"
    return None


def refuse_payload(error: Invalid) -> Failed:
    """Return the outcome of a job with an invalid payload: a failure without retries."""
    return Failed(Failure("bad-payload", str(error)), retryable=False)

"""Requirements of jobs: which workers may run a job, and which of them it prefers.

Labels are text, but two labels that are both numbers are compared as numbers. Resources are counted
in thousandths, so that sums of fractions are exact. Requirements are part of the ready key, so the
same workers can run all jobs of one ready key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from operator import ge, gt, le, lt
from typing import Literal

import msgspec

Op = Literal["=", "!=", ">", ">=", "<", "<=", "in", "not in"]
ResourceAmounts = tuple[tuple[str, int], ...]  # resource and thousandths, by name

_ORDER: Mapping[str, Callable[[Decimal, Decimal], bool]] = {">": gt, ">=": ge, "<": lt, "<=": le}
_NEGATIVE = frozenset({"!=", "not in"})
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)


class Condition(msgspec.Struct, frozen=True):
    """A condition on one label. A worker without the label meets only `!=` and `not in`."""

    label: str
    op: Op
    values: tuple[str, ...]

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels meet the condition."""
        found = labels.get(self.label)
        if found is None:
            return self.op in _NEGATIVE
        if self.op in _ORDER:
            ours, theirs = _number(found), _number(self.values[0])
            return ours is not None and theirs is not None and _ORDER[self.op](ours, theirs)
        return any(_same(found, value) for value in self.values) is not (self.op in _NEGATIVE)

    def __str__(self) -> str:
        return f"{self.label} {self.op} {', '.join(self.values)}"


class Preference(msgspec.Struct, frozen=True):
    """A weight for the workers whose labels meet all conditions."""

    conditions: tuple[Condition, ...]
    weight: float


class Requirements(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker needs to run a job: its id, its labels and enough of each resource."""

    labels: tuple[Condition, ...] = ()
    resources: ResourceAmounts = ()
    worker: str | None = None
    prefer: tuple[Preference, ...] = ()

    def preference_score(self, labels: Mapping[str, str]) -> float:
        """Return the weight of the first preference that the labels meet, or 0."""
        for preference in self.prefer:
            if all(condition.holds(labels) for condition in preference.conditions):
                return preference.weight
        return 0.0


def _number(text: str) -> Decimal | None:
    """Return the exact number that the text is, or None: ids of 19 digits are no floats."""
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def _same(ours: str, theirs: str) -> bool:
    if ours == theirs:
        return True
    number = _number(ours)
    return number is not None and number == _number(theirs)


def render_amount(thousandths: int) -> str:
    """Return the amount in units, as users write it."""
    return f"{thousandths / 1000:g}"

"""`requires` and `prefer` of a job, and labels and resources of a worker, from JSON and back.

A label's value means =, a list means in, an object has exactly one operator. Amounts of resources
are numbers, or texts with a unit such as 8GiB; the core has them as integer thousandths. The labels
of jobs and workers obey the same rules. Equal requirements always have the same order, so that
their jobs share a ready key.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, get_args

from msgspec import Meta, Struct

from schedo.core.requirements import Condition, Op, Preference, Requirements, ResourceAmounts
from schedo.errors import Invalid
from schedo.protocol import fields
from schedo.protocol.fields import Name
from schedo.suggestions import suggest

LABELS_MAX = 64
LABEL_BYTES_MAX = 256
RESOURCES_MAX = 32
AMOUNT_MAX = 10**15  # as thousandths it still fits into 64 bits
PREFERENCES_MAX = 32
WEIGHT_MAX = 1_000_000
_PREFERENCE_FIELDS = ("labels", "weight")
_OPERATORS: tuple[str, ...] = get_args(Op)
_ORDERS = frozenset({">", ">=", "<", "<="})
_LISTS = frozenset({"in", "not in"})
_LABEL = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._/-]{0,127}\Z")
_LABEL_RULE = (
    "the name of a label or resource is 1 to 128 letters, digits, dots, underscores, slashes and "
    "hyphens, and does not begin with a slash or hyphen"
)
_AMOUNT = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,15}))? ?([kMGT]|[KMGT]i)?B?\Z")
_UNITS = {None: 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}

Labels = Annotated[
    dict[str, Any],
    Meta(
        description="Names with a text, a number or a truth value.",
        examples=[{"region": "eu", "vram": 40}],
    ),
]
Conditions = Annotated[
    dict[str, Any],
    Meta(
        description=(
            "By label: a value it must have, a list of such values, or an object with one "
            "operator: =, !=, >, >=, <, <=, in, not in."
        ),
        examples=[{"region": "eu", "gpu": ["a100", "h100"], "vram": {">=": 40}}],
    ),
]
Resources = Annotated[
    dict[str, Any],
    Meta(
        description="By name: a number, or a text with a unit: k M G T Ki Mi Gi Ti.",
        examples=[{"cpu": 3, "memory": "8GiB"}],
    ),
]
Preferences = Annotated[
    list[dict[str, Any]],
    Meta(
        max_length=PREFERENCES_MAX,
        description=(
            "Labels, best first; {} matches every worker. Or {labels, weight}: the server chooses "
            "the worker whose first matching entry has the largest weight."
        ),
        examples=[[{"zone": "lhr"}, {"zone": "eu"}, {}]],
    ),
]


class RequiresRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The workers that may run a job: all labels match, and each resource suffices."""

    labels: Conditions | None = None
    resources: Resources | None = None
    worker: Name | None = None


def read_requirements(
    requires: RequiresRequest | None, prefer: list[dict[str, Any]] | None
) -> Requirements | None:
    """Return the requirements; None if any worker matches."""
    if requires is None:
        requires = RequiresRequest()
    requirements = Requirements(
        labels=read_conditions("/requires/labels", requires.labels or {}),
        resources=read_amounts("/requires/resources", requires.resources or {}),
        worker=None
        if requires.worker is None
        else fields.read_name("/requires/worker", requires.worker),
        prefer=_read_preferences(prefer or []),
    )
    return None if requirements == Requirements() else requirements


def read_conditions(pointer: str, given: Mapping[str, Any]) -> tuple[Condition, ...]:
    """Return the conditions by label."""
    _check_count(pointer, given, LABELS_MAX)
    return tuple(
        _read_condition(f"{pointer}/{escape(label)}", label, given[label])
        for label in sorted(given)
    )


def _read_condition(pointer: str, label: str, value: object) -> Condition:
    _check_label(pointer, label)
    operator = "in" if isinstance(value, list) else "="
    if isinstance(value, dict):
        if len(value) != 1:
            raise Invalid.field(pointer, f"give exactly one operator, not {len(value)}")
        ((operator, value),) = value.items()
        if operator not in _OPERATORS:
            known = ", ".join(_OPERATORS)
            raise Invalid.field(pointer, f"{operator[:20]!a} is no operator; there are {known}")
        pointer += f"/{operator}"
    if operator in _LISTS:
        if not isinstance(value, list) or not 1 <= len(value) <= LABELS_MAX:
            raise Invalid.field(pointer, f"{operator!r} takes a list of 1 to {LABELS_MAX} values")
        values = tuple(read_value(f"{pointer}/{at}", item) for at, item in enumerate(value))
        return Condition(label, operator, tuple(dict.fromkeys(values)))  # type: ignore[arg-type]
    if operator in _ORDERS and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise Invalid.field(pointer, f"{operator!r} takes a number")
    return Condition(label, operator, (read_value(pointer, value),))  # type: ignore[arg-type]


def read_value(pointer: str, value: object) -> str:
    """Return a label's value as text."""
    text = _render_scalar(value)
    if text is None:
        raise Invalid.field(pointer, "a label's value is a text, a number, true or false")
    if len(text.encode()) > LABEL_BYTES_MAX:
        raise Invalid.field(pointer, f"a label's value has at most {LABEL_BYTES_MAX} bytes")
    if not text.isprintable():
        raise Invalid.field(pointer, f"{text[:40]!a} has characters that cannot be shown")
    return text


def _render_scalar(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < AMOUNT_MAX:
        return str(int(value))
    return repr(value) if isinstance(value, int | float) else None


def read_labels(pointer: str, given: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of a worker."""
    _check_count(pointer, given, LABELS_MAX)
    labels = {}
    for label, value in given.items():
        where = f"{pointer}/{escape(label)}"
        _check_label(where, label)
        labels[label] = read_value(where, value)
    return labels


def read_amounts(pointer: str, given: Mapping[str, Any]) -> ResourceAmounts:
    """Return the resources in thousandths by name, without zero amounts."""
    _check_count(pointer, given, RESOURCES_MAX)
    amounts = []
    for name in sorted(given):
        where = f"{pointer}/{escape(name)}"
        _check_label(where, name)
        amount = read_amount(where, given[name])
        if amount:
            amounts.append((name, amount))
    return tuple(amounts)


def read_amount(pointer: str, value: object) -> int:
    """Return an amount in thousandths, rounded, but never down to zero."""
    if isinstance(value, str):
        amount = _parse_amount(value)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        amount = None
    elif not 0 <= value <= AMOUNT_MAX:
        raise Invalid.field(pointer, f"an amount is 0 to {AMOUNT_MAX:g}")
    else:
        amount = max(round(value * 1000), 1 if value else 0)
    if amount is None:
        raise Invalid.field(pointer, 'an amount is a number, or a text with a unit such as "8GiB"')
    if amount > AMOUNT_MAX * 1000:
        raise Invalid.field(pointer, f"an amount is 0 to {AMOUNT_MAX:g}")
    return amount


def _parse_amount(text: str) -> int | None:
    found = _AMOUNT.match(text)
    if found is None:
        return None
    whole, fraction, unit = found.groups()
    scale: int = 10 ** len(fraction or "")
    return -(-int(whole + (fraction or "")) * _UNITS[unit] * 1000 // scale)


def _read_preferences(given: list[dict[str, Any]]) -> tuple[Preference, ...]:
    return tuple(
        _read_preference(f"/prefer/{at}", entry, len(given) - at) for at, entry in enumerate(given)
    )


def _read_preference(pointer: str, entry: dict[str, Any], weight: float) -> Preference:
    if "labels" not in entry:
        return Preference(read_conditions(pointer, entry), float(weight))
    labels = entry["labels"]
    if not isinstance(labels, dict):
        raise Invalid.field(f"{pointer}/labels", "this must be an object of labels")
    for name in entry:
        if name not in _PREFERENCE_FIELDS:
            detail = f"there is no such field{suggest(name, _PREFERENCE_FIELDS)}"
            raise Invalid.field(f"{pointer}/{escape(name)}", detail)
    weight = entry.get("weight", weight)
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        raise Invalid.field(f"{pointer}/weight", "this must be a number")
    if not (math.isfinite(weight) and abs(weight) <= WEIGHT_MAX):
        raise Invalid.field(f"{pointer}/weight", f"a weight is -{WEIGHT_MAX} to {WEIGHT_MAX}")
    return Preference(read_conditions(f"{pointer}/labels", labels), float(weight))


def _check_count(pointer: str, given: Mapping[str, Any], most: int) -> None:
    if len(given) > most:
        raise Invalid.field(pointer, f"{len(given)} entries; there may be at most {most}")


def _check_label(pointer: str, name: str) -> None:
    if not _LABEL.match(name):
        raise Invalid.field(pointer, f"{name[:40]!a}: {_LABEL_RULE}")


def escape(name: str) -> str:
    """Return a member's name as part of a JSON pointer, cut to 128 characters."""
    return name[:128].replace("~", "~0").replace("/", "~1")


def requirements_fields(requirements: Requirements | None) -> Iterator[tuple[str, Any]]:
    """Yield `requires` and `prefer` as in the request; neither if any worker matches."""
    if requirements is None:
        return
    requires: dict[str, Any] = {}
    if requirements.labels:
        requires["labels"] = _condition_fields(requirements.labels)
    if requirements.resources:
        requires["resources"] = amount_fields(dict(requirements.resources))
    if requirements.worker is not None:
        requires["worker"] = requirements.worker
    if requires:
        yield "requires", requires
    if requirements.prefer:
        count = len(requirements.prefer)
        yield (
            "prefer",
            [
                _preference_fields(preference, count - at)
                for at, preference in enumerate(requirements.prefer)
            ],
        )


def _condition_fields(conditions: tuple[Condition, ...]) -> dict[str, Any]:
    return {condition.label: _render_condition(condition) for condition in conditions}


def _render_condition(condition: Condition) -> Any:
    if condition.op == "=":
        return condition.values[0]
    if condition.op == "in":
        return list(condition.values)
    if condition.op == "not in":
        return {condition.op: list(condition.values)}
    value = condition.values[0]
    return {condition.op: _number(value) if condition.op in _ORDERS else value}


def _preference_fields(preference: Preference, place: int) -> dict[str, Any]:
    labels = _condition_fields(preference.conditions)
    if preference.weight == place and "labels" not in labels:
        return labels
    return {"labels": labels, "weight": _whole(preference.weight)}


def amount_fields(amounts: Mapping[str, int]) -> dict[str, int | float]:
    """Return resources as numbers by name."""
    return {name: _whole(amount / 1000) for name, amount in amounts.items()}


def _number(text: str) -> int | float:
    return _whole(float(text))


def _whole(number: float) -> int | float:
    return int(number) if number.is_integer() and abs(number) < 2**53 else number

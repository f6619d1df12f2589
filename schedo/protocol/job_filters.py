"""The conditions that select jobs: the parameters of a list, and the values of payloads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from schedo.core.job_filter import JobFilter, Order, PayloadCondition
from schedo.core.states import TIMED, State
from schedo.protocol.query import (
    Values,
    bad_parameter,
    read_choice,
    read_duration,
    read_instant,
    read_name,
    read_text,
    read_unique_key,
)

TEXT_CHARACTERS_MAX = 200  # of a text to look for, and of a path in a payload
PAYLOAD_CONDITIONS_MAX = 8
PAYLOAD_PARAMETER = "payload.PATH"
_PAYLOAD = "payload."
_PART = re.compile(r'[^"\\\x00-\x1f]+')
_DIGITS = re.compile(r"[0-9]{1,9}")

# An order of lists that only the jobs that wait for their due instant have.
DUE = "due"
ORDERS = (*(each.value for each in Order), DUE)

# Filters that have no index: a search looks at the jobs one by one.
JOB_FILTERS = (
    "state",
    "queue",
    "task",
    "schedule",
    "tag",
    "unique_key",
    "created_after",
    "created_before",
    "ended_after",
    "ended_before",
    "error",
    "worker",
    "q",
    PAYLOAD_PARAMETER,
    "late_over",
)


def read_filter(values: Values, schedule_id: int | None, now: int) -> JobFilter:
    """Return the checked filter; raise BadRequest. schedule_id: of the parameter `schedule`."""
    states = _read_states(values)
    return JobFilter(
        state=states[0].value if len(states) == 1 else None,
        states=states if len(states) > 1 else (),
        queue=read_name(values, "queue"),
        task=read_name(values, "task"),
        schedule_id=schedule_id,
        tag=read_name(values, "tag"),
        unique_key=read_unique_key(values),
        created_after=read_instant(values, "created_after"),
        created_before=read_instant(values, "created_before"),
        ended_after=read_instant(values, "ended_after"),
        ended_before=read_instant(values, "ended_before"),
        error=read_text(values, "error", TEXT_CHARACTERS_MAX),
        worker=read_name(values, "worker"),
        text=read_text(values, "q", TEXT_CHARACTERS_MAX),
        payload=_read_conditions(values),
        late_over_us=read_duration(values, "late_over"),
        late_at=now,
    )


def read_order(values: Values) -> Order | None:
    """Return the order of the list by creation, or None if it is by due instant.

    Raise BadRequest, also if no job in a state of the filter waits for its due instant.
    """
    order = read_choice(values, "order", ORDERS) or Order.NEWEST
    if order != DUE:
        return Order(order)
    if not TIMED.issuperset(_read_states(values)):
        detail = f"with order={DUE}, this must be scheduled, retrying, or both with a comma"
        raise bad_parameter("state", detail)
    return None


def _read_states(values: Values) -> tuple[State, ...]:
    text = values.get("state")
    if text is None:
        return ()
    known = [state.value for state in State]
    states = dict.fromkeys(text.split(","))
    for state in states:
        if state not in known:
            one_of = ", ".join(known)
            raise bad_parameter("state", f"this must be one of {one_of}, or several with commas")
    return tuple(State(state) for state in states)


def _read_conditions(values: Values) -> tuple[PayloadCondition, ...]:
    wanted = {
        name.removeprefix(_PAYLOAD): value
        for name, value in values.items()
        if name.startswith(_PAYLOAD)
    }
    try:
        return make_conditions(wanted.items())
    except ValueError as error:
        path, detail = error.args
        raise bad_parameter(_PAYLOAD + path if path else PAYLOAD_PARAMETER, detail) from None


def make_conditions(wanted: Iterable[tuple[str, str]]) -> tuple[PayloadCondition, ...]:
    """Return the conditions of paths and values; raise ValueError(path, detail)."""
    found = []
    for path, value in wanted:
        parts = tuple(path.split("."))
        if len(path) > TEXT_CHARACTERS_MAX or not all(map(_is_part, parts)):
            detail = (
                "a path is names of fields and numbers in arrays with dots between them,"
                f" such as order.items.0, at most {TEXT_CHARACTERS_MAX} characters"
            )
            raise ValueError(path[:40], detail)
        if len(value) > TEXT_CHARACTERS_MAX:
            raise ValueError(path, f"a value has at most {TEXT_CHARACTERS_MAX} characters")
        found.append(PayloadCondition(parts, value))
    if len(found) > PAYLOAD_CONDITIONS_MAX:
        raise ValueError("", f"give at most {PAYLOAD_CONDITIONS_MAX} values of a payload")
    return tuple(found)


def _is_part(part: str) -> bool:
    return bool(_PART.fullmatch(part)) and (not part.isdecimal() or bool(_DIGITS.fullmatch(part)))


def show_conditions(conditions: Iterable[PayloadCondition]) -> Mapping[str, str]:
    """Return the values by their paths."""
    return {".".join(condition.path): condition.value for condition in conditions}


def render_value(value: str | float | bool | None) -> str:
    """Return a value of a payload as the text that a condition has."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()

"""The parameters of the API, as openapi.json and docs/api.md describe them."""

from __future__ import annotations

import re
from typing import Any

from schedo.core.limits import UNIQUE_KEY_CHARACTERS_MAX
from schedo.core.states import State
from schedo.protocol.cursors import CURSOR_CHARACTERS_MAX, CURSOR_CHARACTERS_MIN
from schedo.protocol.fields import INSTANT_SCHEMA
from schedo.protocol.query import ATTEMPT_MAX, LIMIT_DEFAULT, LIMIT_MAX
from schedo.protocol.times import DURATION_CHARACTERS_MAX, DURATION_PATTERN

_NAME_PATTERN = "^[A-Za-z0-9._][A-Za-z0-9._-]{0,127}$"
_ID_PATTERN = "^[0-9A-Za-z]{13}$"
_WAIT = {
    "type": "string",
    "pattern": DURATION_PATTERN,
    "maxLength": DURATION_CHARACTERS_MAX,
}
_IN_PATH = re.compile(r"{([a-z]+)}")


def _query(name: str, description: str, **schema: Any) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "description": description,
        "schema": schema or {"type": "string"},
    }


def _by_name(*parameters: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {parameter["name"]: parameter for parameter in parameters}


PARAMETERS = _by_name(
    _query("state", "Only jobs in this state.", enum=[state.value for state in State]),
    _query("queue", "Only jobs of this queue.", type="string", pattern=_NAME_PATTERN),
    _query("task", "Only jobs of this task.", type="string", pattern=_NAME_PATTERN),
    _query("schedule", "Only jobs of this schedule.", type="string", pattern=_NAME_PATTERN),
    _query("tag", "Only jobs with this tag.", type="string", pattern=_NAME_PATTERN),
    _query(
        "unique_key",
        "Only jobs with this unique key.",
        type="string",
        minLength=1,
        maxLength=UNIQUE_KEY_CHARACTERS_MAX,
    ),
    _query(
        "created_after",
        "Only jobs created at this instant or later.",
        type="string",
        **INSTANT_SCHEMA,
    ),
    _query(
        "created_before",
        "Only jobs created before this instant.",
        type="string",
        **INSTANT_SCHEMA,
    ),
    _query(
        "limit",
        "How many items a page has at most.",
        type="integer",
        minimum=1,
        maximum=LIMIT_MAX,
        default=LIMIT_DEFAULT,
    ),
    _query(
        "cursor",
        "The next_cursor of the page before; the filter must be the same.",
        type="string",
        minLength=CURSOR_CHARACTERS_MIN,
        maxLength=CURSOR_CHARACTERS_MAX,
        pattern="^[A-Za-z0-9_-]+$",
    ),
    _query("wait", "Wait this long for the job's end, at most 5m.", **_WAIT),
    _query("timeout", "How long to wait, at most 5m; default 30s.", **_WAIT),
    _query(
        "stream",
        "Only this stream, as bare text, of the latest attempt.",
        enum=["stdout", "stderr", "body"],
    ),
    _query("attempt", "Only this attempt.", type="integer", minimum=1, maximum=ATTEMPT_MAX),
    _query("task_id", "The id that /schedule answered with.", type="string", pattern=_ID_PATTERN)
    | {"required": True},
    {
        "name": "Idempotency-Key",
        "in": "header",
        "description": (
            "The same key and body again within 24 hours get the same answer, "
            "and have no second effect."
        ),
        "schema": {"type": "string", "pattern": "^[ -~]{1,255}$"},
    },
    {
        "name": "Schedo-Lease-Nonce",
        "in": "header",
        "required": True,
        "description": "The nonce of the reservation.",
        "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
    },
)

_PATH_PARTS: dict[str, dict[str, Any]] = {
    "id": {"type": "string", "pattern": _ID_PATTERN},
    "name": {"type": "string", "pattern": _NAME_PATTERN},
    "code": {"type": "string"},
    "file": {"type": "string"},
}


def path_parameters(path: str) -> list[dict[str, Any]]:
    """Return the description of the parts of the path that vary."""
    return [
        {"name": name, "in": "path", "required": True, "schema": _describe_part(name, path)}
        for name in _IN_PATH.findall(path)
    ]


def _describe_part(name: str, path: str) -> dict[str, Any]:
    # Reservations are no jobs: their ids are of another form.
    return {"type": "string"} if path.startswith("/v1/reservations") else _PATH_PARTS[name]

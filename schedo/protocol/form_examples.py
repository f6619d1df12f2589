"""Examples of the forms in the OpenAPI document that are not obvious."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schedo.protocol.declarations import OWNER_PATTERN
from schedo.protocol.fields import TRACEPARENT_PATTERN
from schedo.protocol.parameters import ID_PATTERN, PARAMETERS
from schedo.protocol.times import DURATION_PATTERN, INSTANT_PATTERN

_ID = "0CR728XJV2WG0"
_CURSOR = "eyJr8W2vQ5jcMjAxNw"
_TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def _pattern_of(parameter: str) -> str:
    pattern: str = PARAMETERS[parameter]["schema"]["pattern"]
    return pattern


# By the pattern of the texts.
PATTERN_EXAMPLES: Mapping[str, str] = {
    ID_PATTERN: _ID,
    "^[0-9A-HJKMNP-TV-Z]{13}$": _ID,
    INSTANT_PATTERN: "2026-11-20T11:04:05Z",
    DURATION_PATTERN: "90s",
    f"^{OWNER_PATTERN}$": "file:jobs.toml",
    TRACEPARENT_PATTERN: _TRACEPARENT,
    _pattern_of("cursor"): _CURSOR,
    _pattern_of("state"): "failed,cancelled",
    _pattern_of("Idempotency-Key"): "order-4711-welcome",
    _pattern_of("Schedo-Lease-Nonce"): "kq3V9x0mYJ2u",
}

# By the name of the field, where a text has no pattern.
FIELD_EXAMPLES: Mapping[str, Any] = {
    "cron": "30 2 * * *",
    "next_cursor": _CURSOR,
    "normalized": "30 2 * * *",
    "owner": "file:jobs.toml",
    "pointer": "/retry/initial",
    "target": "schedules/nightly",
    "traceparent": _TRACEPARENT,
    "tracestate": "vendor=00f067aa0ba902b7",
    "tz": "Europe/Berlin",
}


def add_examples(schema: Any) -> None:
    """Add an example to each text below whose form is not obvious, unless it has one."""
    if isinstance(schema, dict):
        example = PATTERN_EXAMPLES.get(schema.get("pattern", ""))
        if example is not None:
            schema.setdefault("examples", [example])
        for name, described in schema.get("properties", {}).items():
            if name in FIELD_EXAMPLES and described.get("type") == "string":
                described.setdefault("examples", [FIELD_EXAMPLES[name]])
        schema = list(schema.values())
    if isinstance(schema, list):
        for inner in schema:
            add_examples(inner)

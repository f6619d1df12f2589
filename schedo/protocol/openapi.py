"""The OpenAPI 3.1 document, built from the table of operations and the Structs of the messages.

`python -m schedo.protocol.openapi` writes it to web/static/openapi.json, which the server serves.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import orjson

from schedo.core import limits
from schedo.core.leases import STREAMS
from schedo.core.states import State
from schedo.protocol.declarations import OWNER_CHARACTERS_MAX, OWNER_PATTERN
from schedo.protocol.fields import INSTANT_SCHEMA
from schedo.protocol.fires import HOURS_DEFAULT, HOURS_MAX
from schedo.protocol.operation import JSON_TYPE, Operation, ResponseKind
from schedo.protocol.operations import OPERATIONS
from schedo.protocol.problems import PROBLEM_TYPE, ProblemResponse
from schedo.protocol.query import (
    ATTEMPT_MAX,
    CURSOR_CHARACTERS_MAX,
    CURSOR_CHARACTERS_MIN,
    ERROR_PART_CHARACTERS_MAX,
    LIMIT_DEFAULT,
    LIMIT_MAX,
)
from schedo.protocol.times import DURATION_CHARACTERS_MAX, DURATION_PATTERN
from schedo.protocol.timeseries import POINTS_MAX, WINDOWS

DOCUMENT = Path(__file__).parent.parent / "web" / "static" / "openapi.json"

_STATUS_TEXTS = {
    200: "Done.",
    201: "Created.",
    202: "Accepted; it has not ended yet.",
    204: "Gone.",
    304: "Not changed.",
    503: "Not ready.",
}
_TAGS = ("jobs", "schedules", "queues", "workers", "right now", "short forms", "server")
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
    _query("queue", "Only jobs, or figures, of this queue.", type="string", pattern=_NAME_PATTERN),
    _query("task", "Only jobs of this task.", type="string", pattern=_NAME_PATTERN),
    _query("schedule", "Only jobs of this schedule.", type="string", pattern=_NAME_PATTERN),
    _query(
        "owner",
        "What declares the schedule, such as file:jobs.toml; without it, this changes it by hand.",
        type="string",
        pattern=f"^{OWNER_PATTERN}$",
        maxLength=OWNER_CHARACTERS_MAX,
    ),
    _query("tag", "Only jobs with this tag.", type="string", pattern=_NAME_PATTERN),
    _query(
        "unique_key",
        "Only jobs with this unique key.",
        type="string",
        minLength=1,
        maxLength=limits.UNIQUE_KEY_CHARACTERS_MAX,
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
    _query("failing", "`true`: only schedules whose last run has failed.", enum=["true", "false"]),
    _query(
        "ended_after",
        "Only jobs that ended at this instant or later.",
        type="string",
        **INSTANT_SCHEMA,
    ),
    _query(
        "ended_before", "Only jobs that ended before this instant.", type="string", **INSTANT_SCHEMA
    ),
    _query(
        "error",
        "Only jobs whose error has this text in its type or message.",
        type="string",
        minLength=1,
        maxLength=ERROR_PART_CHARACTERS_MAX,
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
    _query("window", "How far the figures go back; default 15m.", enum=list(WINDOWS)),
    _query(
        "points",
        "Into how many intervals the window is cut at most.",
        type="integer",
        minimum=1,
        maximum=POINTS_MAX,
        default=POINTS_MAX,
    ),
    _query("from", "The first instant; default now.", type="string", **INSTANT_SCHEMA),
    _query("to", "The last instant; default a day later.", type="string", **INSTANT_SCHEMA),
    _query(
        "hours",
        "How long the range is.",
        type="integer",
        minimum=1,
        maximum=HOURS_MAX,
        default=HOURS_DEFAULT,
    ),
    _query("bucket", "The length of a bucket; default 5m.", **_WAIT),
    _query("topics", "The topics, with commas between them; default all."),
    _query("job", "Only changes of this job.", type="string", pattern=_ID_PATTERN),
    _query("who", "Only changes by the token of this name.", pattern=_NAME_PATTERN),
    _query("action", "Only changes by this operation, by its name here."),
    _query("target", "Only changes of this: an address below /v1/, such as schedules/nightly."),
    _query("before", "Only changes before this instant.", type="string", **INSTANT_SCHEMA),
    _query("names", "The names of the figures, with commas between them; default all."),
    _query("wait", "Wait this long for the job's end, at most 5m.", **_WAIT),
    _query("timeout", "How long to wait, at most 5m; default 30s.", **_WAIT),
    _query(
        "stream",
        "Only this stream, as bare text, of the latest attempt.",
        enum=list(STREAMS),
    ),
    _query("attempt", "Only this attempt.", type="integer", minimum=1, maximum=ATTEMPT_MAX),
    _query("task_id", "The id that /schedule answered with.", type="string", pattern=_ID_PATTERN)
    | {"required": True},
    {
        "name": "Idempotency-Key",
        "in": "header",
        "description": (
            "The same key and body again within 24 hours get the same response, "
            "and have no second effect."
        ),
        "schema": {"type": "string", "pattern": "^[ -~]{1,255}$"},
    },
    {
        "name": "Prefer",
        "in": "header",
        "description": (
            "`return=minimal`: the response has only the id, the state, the task and the queue of "
            "each job."
        ),
        "schema": {"type": "string"},
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


def build_document() -> dict[str, Any]:
    """Return the OpenAPI document of all operations."""
    types = _list_types()
    made, components = msgspec.json.schema_components(
        types,
        ref_template="#/components/schemas/{name}",
        schema_hook=_describe_raw,
    )
    _dedent_descriptions(components)
    _bound_integers(components)
    _share_durations(components)
    references = dict(zip(types, made, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        item = paths.setdefault(operation.path, {})
        item[operation.method.lower()] = _describe(operation, references)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "schedo",
            "version": "1",
            "summary": "A durable scheduler of cron, delayed and immediate jobs.",
            "description": (
                "Errors are problem documents (RFC 9457); /problems/{code} explains each code. "
                "Instants are RFC 3339 with an offset, durations are 90s, 1h30m, PT90S "
                "or a number of seconds. Unknown fields and parameters are refused by name."
            ),
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in _TAGS],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {
                "Problem": {
                    "description": "The request failed; the problem document has the reason.",
                    "content": {PROBLEM_TYPE.decode(): {"schema": references[ProblemResponse]}},
                }
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _bound_integers(schema: Any) -> None:
    """Add the bounds of 64 bits to every integer without bounds, as for all bodies."""
    if isinstance(schema, dict):
        if schema.get("type") == "integer":
            schema.setdefault("minimum", -limits.INTEGER_MAX - 1)
            schema.setdefault("maximum", limits.INTEGER_MAX)
        schema = list(schema.values())
    if isinstance(schema, list):
        for inner in schema:
            _bound_integers(inner)


def _dedent_descriptions(components: dict[str, Any]) -> None:
    """Remove the indentation of docstrings, as Python does from 3.13 on."""
    for schema in components.values():
        if "description" in schema:
            schema["description"] = inspect.cleandoc(schema["description"])


def _share_durations(components: dict[str, Any]) -> None:
    """Describe durations once, because their pattern is long; keep what a field adds."""
    found = components["JobRequest"]["properties"]["delay"]["anyOf"][0]
    whole, shared = dict(found), {"$ref": "#/components/schemas/Duration"}

    def share(schema: Any) -> None:
        if isinstance(schema, dict):
            if schema.get("pattern") == whole["pattern"]:
                own = {name: value for name, value in schema.items() if value != whole.get(name)}
                schema.clear()
                schema.update(shared | own)
            schema = list(schema.values())
        if isinstance(schema, list):
            for inner in schema:
                share(inner)

    share(components)
    components["Duration"] = whole


def _describe_raw(kind: type) -> dict[str, Any]:
    """Describe a payload as any JSON; msgspec asks only about types it does not know."""
    assert kind is msgspec.Raw, f"nothing describes {kind}"
    return {}


def _list_types() -> list[type[msgspec.Struct]]:
    types: dict[type[msgspec.Struct], None] = {ProblemResponse: None}
    for operation in OPERATIONS:
        if operation.request is not None:
            types[operation.request] = None
        types |= {shape: None for kind in operation.responses.values() for shape in _shapes(kind)}
    return list(types)


def _shapes(kind: ResponseKind) -> tuple[type[msgspec.Struct], ...]:
    if isinstance(kind, str):
        return ()
    return kind if isinstance(kind, tuple) else (kind,)


def _describe(operation: Operation, references: dict[type[msgspec.Struct], Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "security": [{"token": [operation.role]}, {}] if operation.role else [{}],
        "responses": {
            str(status): _describe_response(status, kind, references)
            for status, kind in operation.responses.items()
        }
        | {"default": {"$ref": "#/components/responses/Problem"}},
    }
    parameters = path_parameters(operation.path) + [PARAMETERS[name] for name in operation.query]
    if operation.takes_key:
        parameters.append(PARAMETERS["Idempotency-Key"])
    if operation.is_batch:
        parameters.append(PARAMETERS["Prefer"])
    if operation.takes_nonce:
        parameters.append(PARAMETERS["Schedo-Lease-Nonce"])
    if parameters:
        described["parameters"] = parameters
    if operation.request is not None:
        described["requestBody"] = _describe_body(operation, references[operation.request])
    return described


def _describe_response(
    status: int,
    kind: ResponseKind,
    references: dict[type[msgspec.Struct], Any],
) -> dict[str, Any]:
    described: dict[str, Any] = {"description": _STATUS_TEXTS[status]}
    if not isinstance(kind, str):
        found = [references[shape] for shape in _shapes(kind)]
        schema = found[0] if len(found) == 1 else {"anyOf": found}
        described["content"] = {JSON_TYPE: {"schema": schema}}
    elif kind:
        described["content"] = {kind: {"schema": {} if kind == JSON_TYPE else {"type": "string"}}}
    return described


def _describe_body(operation: Operation, reference: dict[str, Any]) -> dict[str, Any]:
    content = {JSON_TYPE: {"schema": reference}}
    if operation.is_batch:
        content = {
            JSON_TYPE: {"schema": {"type": "array", "items": reference, "maxItems": 1000}},
            operation.media_types[1]: {"schema": {"type": "string"}},
        }
    return {"required": not operation.body_is_optional, "content": content}


def render_document() -> bytes:
    """Return the document as the bytes of the file in the repository."""
    return orjson.dumps(build_document(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


if __name__ == "__main__":
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_bytes(render_document())
    sys.stdout.write(f"wrote {DOCUMENT}\n")

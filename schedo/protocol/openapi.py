"""The OpenAPI 3.1 document, built from the table of operations and the Structs of the messages.

`python -m schedo.protocol.openapi` writes it to web/static/openapi.json, which the server serves.
"""

from __future__ import annotations

import copy
import inspect
import re
import sys
from pathlib import Path
from typing import Any, get_args

import msgspec
import orjson

from schedo.core import limits
from schedo.errors import SchedoError
from schedo.protocol.cron import CronText, Zone
from schedo.protocol.error_statuses import has_retry_after, list_all_errors, list_errors
from schedo.protocol.examples import EXAMPLES
from schedo.protocol.field_texts import find_field_text
from schedo.protocol.fields import NAME_PATTERN, Duration, Instant, Name, Priority
from schedo.protocol.form_examples import add_examples
from schedo.protocol.leases import LeaseText
from schedo.protocol.operation import JSON_TYPE, Operation, ResponseKind, list_shapes
from schedo.protocol.operations import OPERATIONS
from schedo.protocol.options import TaskName
from schedo.protocol.parameters import ID_PATTERN, PARAMETERS
from schedo.protocol.problems import PROBLEM_TYPE, ProblemResponse, list_kinds
from schedo.protocol.work import WorkerName

DOCUMENT = Path(__file__).parent.parent / "web" / "static" / "openapi.json"

_STATUS_TEXTS = {
    200: "Done.",
    201: "Created.",
    202: "Accepted; it has not ended yet.",
    204: "Gone.",
    207: "Done for several jobs; each has its own status.",
    304: "Not changed.",
    503: "Not ready.",
}
_TAGS = (
    "jobs",
    "schedules",
    "expectations",
    "queues",
    "workers",
    "right now",
    "short forms",
    "server",
)
_PART_EXAMPLES = {"id": "0CR728XJV2WG0", "name": "nightly", "code": "not-found"}
# What the varying part of a path names, by what is before it.
_PART_TEXTS = {
    "/problems/": "The code of the error.",
    "/v1/expectations/": "The name of the expectation.",
    "/v1/jobs/": "The id of the job.",
    "/v1/operations/": "The id of the operation.",
    "/v1/queues/": "The name of the queue.",
    "/v1/reservations/": "The id of the reservation.",
    "/v1/schedules/": "The name of the schedule.",
    "/v1/workers/": "The name of the worker.",
}
_IN_PATH = re.compile(r"{([a-z]+)}")

# What the descriptions of these types say is the form of a value, not the meaning of a field.
FORMS = frozenset(
    get_args(kind)[1].description
    for kind in (Name, Instant, Duration, Priority, TaskName, LeaseText, CronText, Zone, WorkerName)
)

_PATH_PARTS: dict[str, dict[str, Any]] = {
    "id": {"type": "string", "pattern": ID_PATTERN},
    "name": {"type": "string", "pattern": NAME_PATTERN},
    "code": {"type": "string"},
}


def path_parameters(path: str) -> list[dict[str, Any]]:
    """Return the description of the parts of the path that vary."""
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PART_TEXTS[path.split("{")[0]],
            "schema": _describe_part(name, path),
            "example": _PART_EXAMPLES[name],
        }
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
    _fit_generators(components)
    _describe_fields(components)
    add_examples(components)
    references = dict(zip(types, made, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        item = paths.setdefault(operation.path, {})
        item[operation.method.lower()] = _describe(operation, references)
    paths = copy.deepcopy(paths)  # the parameters are those of the table
    for item in paths.values():
        for described in item.values():
            add_examples(described.get("parameters"))
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
                "Problem": _describe_problem(
                    "The request failed; the problem document has the reason."
                )
            }
            | {error.__name__: _describe_error(error) for error in list_all_errors()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe_fields(components: dict[str, Any]) -> None:
    """Say what each field means, before the form of its values."""
    for name, schema in components.items():
        for field, described in schema.get("properties", {}).items():
            form = described.get("description", "")
            text = find_field_text(name, field)
            if text is not None and (not form or form in FORMS):
                described["description"] = f"{text} {form}".strip()


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


def _fit_generators(schema: Any) -> None:
    """Say what generators of clients for typed languages would read in another way.

    They take a field with a default for one that callers must give, so defaults are `x-default`;
    and they take an object without properties for one that must be empty.
    """
    if isinstance(schema, dict):
        default = schema.pop("default", None)
        if default is not None:
            schema["x-default"] = default
        if schema.get("type") == "object" and "properties" not in schema:
            schema.setdefault("additionalProperties", True)
        schema = list(schema.values())
    if isinstance(schema, list):
        for inner in schema:
            _fit_generators(inner)


def _describe_raw(kind: type) -> dict[str, Any]:
    """Describe a payload as any JSON; msgspec asks only about types it does not know."""
    assert kind is msgspec.Raw, f"nothing describes {kind}"
    return {}


def _list_types() -> list[type[msgspec.Struct]]:
    types: dict[type[msgspec.Struct], None] = {ProblemResponse: None}
    for operation in OPERATIONS:
        if operation.request is not None:
            types[operation.request] = None
        types |= {
            shape: None for kind in operation.responses.values() for shape in list_shapes(kind)
        }
    return list(types)


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
        | {
            str(error.status): {"$ref": f"#/components/responses/{error.__name__}"}
            for error in list_errors(operation)
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
        found = [references[shape] for shape in list_shapes(kind)]
        schema = found[0] if len(found) == 1 else {"anyOf": found}
        described["content"] = {JSON_TYPE: {"schema": schema}}
    elif kind:
        described["content"] = {kind: {"schema": {} if kind == JSON_TYPE else {"type": "string"}}}
    return described


def _describe_error(error: type[SchedoError]) -> dict[str, Any]:
    """Describe the responses with the status of an error: what their codes mean."""
    kinds = [kind for kind in list_kinds() if kind.status == error.status]
    described = _describe_problem(" ".join(f"{kind.code}: {kind.description}" for kind in kinds))
    if has_retry_after(error):
        described["headers"] = {
            "Retry-After": {
                "description": "After how many seconds to send the request again.",
                "schema": {"type": "integer", "minimum": 0},
            }
        }
    return described


def _describe_problem(text: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{ProblemResponse.__name__}"}
    return {"description": text, "content": {PROBLEM_TYPE.decode(): {"schema": schema}}}


def _describe_body(operation: Operation, reference: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, dict[str, Any]] = {JSON_TYPE: {"schema": reference}}
    if operation.is_batch:
        content = {
            JSON_TYPE: {"schema": {"type": "array", "items": reference, "maxItems": 1000}},
            operation.media_types[1]: {"schema": {"type": "string"}},
        }
    if operation.name in EXAMPLES:
        content[JSON_TYPE]["example"] = EXAMPLES[operation.name]
    return {"required": not operation.body_is_optional, "content": content}


def render_document() -> bytes:
    """Return the document as the bytes of the file in the repository."""
    return orjson.dumps(build_document(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


if __name__ == "__main__":
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_bytes(render_document())
    sys.stdout.write(f"wrote {DOCUMENT}\n")

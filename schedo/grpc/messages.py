"""Turns the messages of schedo.proto into the JSON of the HTTP API, and back.

Both have the same names, so the descriptors say everything except which texts hold JSON. What a
value may be is checked where the HTTP API checks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec
import orjson
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from msgspec import UNSET, Raw, Struct

from schedo.errors import BadJson
from schedo.protocol.reading import Steps, at_once

# The fields whose text is any JSON value, in every message that has them. Here `retry` is JSON
# although it is often a number, so that a client has one field for all forms.
# fmt: off
JSON_FIELDS = frozenset({
    "payload", "result", "meta", "keep", "retry", "requires", "prefer", "on_failure", "unique",
    "labels", "resources", "task_defaults",
})
# fmt: on
Fields = dict[str, Any]
M = TypeVar("M", bound=Message)

_KINDS: Mapping[int, Any] = {
    FieldDescriptor.CPPTYPE_INT32: int,
    FieldDescriptor.CPPTYPE_INT64: int,
    FieldDescriptor.CPPTYPE_UINT64: int,
    FieldDescriptor.CPPTYPE_DOUBLE: float,
    FieldDescriptor.CPPTYPE_BOOL: bool,
    FieldDescriptor.CPPTYPE_STRING: str,
}


def to_fields(message: Message, pointer: str = "") -> Fields:
    """Return the fields of the message that are set, as JSON data; raise BadJson.

    pointer: where the message is in the request, for the error.
    """
    return at_once(to_fields_in_steps(message, pointer))


def to_fields_in_steps(message: Message, pointer: str = "") -> Steps[Fields]:
    """Return the same; the entries of a list in the message are a step each."""
    fields: Fields = {}
    for field, value in message.ListFields():
        name = field.name
        if name in JSON_FIELDS:
            fields[name] = _check_json(value, f"{pointer}/{name}")
        elif field.message_type is None:
            fields[name] = list(value) if field.is_repeated else value
        elif field.is_repeated:
            entries = fields[name] = []
            for at, each in enumerate(value):
                entries.append(to_fields(each, f"{pointer}/{name}/{at}"))
                yield
        else:
            fields[name] = to_fields(value, f"{pointer}/{name}")
    return fields


def render(fields: Any) -> bytes:
    """Return JSON data from `to_fields` as JSON."""
    return orjson.dumps(fields)


def _check_json(text: str, pointer: str) -> orjson.Fragment:
    """Return the text as a part of a larger JSON text; it must be one value and nothing else."""
    try:
        msgspec.json.decode(text, type=Raw)
    except msgspec.DecodeError as error:
        raise BadJson.field(pointer, f"the text is not JSON: {error}") from None
    return orjson.Fragment(text)


def read_message(kind: type[M], text: bytes) -> M:
    """Return the message with the fields of this JSON object; those it has no place for are left.

    The text is one that the server itself has rendered.
    """
    return at_once(read_message_in_steps(kind, text))


def read_message_in_steps(kind: type[M], text: bytes) -> Steps[M]:
    """Return the same; the entries of a list in the message are a step each."""
    fields = yield from _plain_in_steps(_decoder(kind.DESCRIPTOR).decode(text))
    return kind(**fields)


def _plain(entry: Struct) -> Fields:
    """Return the fields that are set, for the constructor of a message."""
    return at_once(_plain_in_steps(entry))


def _plain_in_steps(entry: Struct) -> Steps[Fields]:
    fields = {}
    for name in entry.__struct_fields__:
        value = getattr(entry, name)
        if value is UNSET or value is None:
            continue
        if isinstance(value, Raw):
            value = bytes(value).decode()
        elif isinstance(value, Struct):
            value = _plain(value)
        elif isinstance(value, list) and value and isinstance(value[0], Struct):
            entries, value = value, []
            for each in entries:
                value.append(_plain(each))
                yield
        fields[name] = value
    return fields


@cache
def _decoder(descriptor: Descriptor) -> msgspec.json.Decoder[Struct]:
    return msgspec.json.Decoder(_struct(descriptor))


@cache
def _struct(descriptor: Descriptor) -> type[Struct]:
    """Return the Struct that decodes the JSON of a message."""
    return msgspec.defstruct(
        descriptor.name,
        [(field.name, _kind(field), UNSET) for field in descriptor.fields],
    )


def _kind(field: FieldDescriptor) -> Any:
    if field.name in JSON_FIELDS:
        return Raw
    kind = _KINDS[field.cpp_type] if field.message_type is None else _struct(field.message_type)
    return (list[kind] if field.is_repeated else kind) | None  # type: ignore[valid-type]

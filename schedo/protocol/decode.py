"""Decodes the bytes of a body into a checked request; errors have the field's JSON pointer."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from schedo.core.strict_json import decode_strictly
from schedo.errors import Invalid
from schedo.suggestions import suggest

T = TypeVar("T", bound=msgspec.Struct)

# What msgspec raises for a text that is no value of the type: the last one if the text is nested
# deeper than the interpreter's limit for calls.
UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_WHERE = re.compile(r" - at `\$(.*)`\Z", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[([0-9]+|\.\.\.)\]")
_FIELD = re.compile(r"Object (?:missing required|contains unknown) field `(.*)`\Z", re.DOTALL)
_TYPES = re.compile(r"`([^`]*)`")
_WRONG_CHOICE = re.compile(r"Invalid enum value (.*)\Z", re.DOTALL)
# msgspec names Python's types; clients in other languages know these names.
_JSON_NAMES = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false"}
_DETAIL_CHARACTERS_MAX = 200
_SEARCHED_BYTES_MAX = 16_384  # for the name of a wrong member; a search decodes some 10 times


def _ignore(_: Any) -> None:
    """Use no value."""


def decode_request(body: bytes, kind: type[T], see: Callable[[Any], None] = _ignore) -> T:
    """Return the request in a small JSON body; raise BadJson or Invalid. `see` gets its value."""
    see(decode_strictly(body))
    return decode_checked(body, kind)


def decode_checked(body: bytes | msgspec.Raw, kind: type[T]) -> T:
    """Return the request in JSON that decode_strictly has passed; raise Invalid."""
    try:
        value: T = _decoder(kind).decode(body)
    except msgspec.ValidationError as error:
        message = str(error)
        raise _name_member(point_at(message, kind), message, body, kind) from None
    return value


@lru_cache(maxsize=64)
def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind)


def point_at(message: str, kind: type[msgspec.Struct]) -> Invalid:
    """Turn msgspec's "Expected `int` <= 9 - at `$.priority`" into an error about /priority."""
    where = _WHERE.search(message)
    detail = message[: where.start()] if where else message
    steps: list[str] = [
        name or index for name, index in _STEP.findall(where.group(1) if where else "")
    ]
    pointer = "".join("/" + step for step in steps)
    choice = _WRONG_CHOICE.match(detail)
    field = _FIELD.match(detail)
    if choice:
        detail = f"{choice.group(1)[:40]} is none of {', '.join(_list_choices(kind, steps))}"
    elif field:
        name = field.group(1)[:_DETAIL_CHARACTERS_MAX]
        pointer += "/" + name.replace("~", "~0").replace("/", "~1")
        unknown = "unknown" in detail[:30]
        hint = suggest(name, _list_fields(kind, steps)) if unknown else ""
        detail = f"there is no such field{hint}" if unknown else "this field is required"
    else:
        detail = _TYPES.sub(_render_types, detail)
    # A field's name may look like part of the message, so neither part is trusted to be short.
    pointer = pointer[:_DETAIL_CHARACTERS_MAX]
    return Invalid.field(pointer, detail[:_DETAIL_CHARACTERS_MAX])


def _name_member(
    error: Invalid, message: str, body: bytes | msgspec.Raw, kind: type[msgspec.Struct]
) -> Invalid:
    """Put the name of an object's member in place of the dots by which msgspec points at it."""
    (problem,) = error.problems
    above, dots, below = problem.pointer.partition("/...")
    if not dots or len(body) > _SEARCHED_BYTES_MAX:
        return error
    request = msgspec.json.decode(body)
    place = request
    try:
        for step in above.split("/")[1:]:
            place = place[int(step) if isinstance(place, list) else step]
        members = list(place.items())
    except (LookupError, TypeError, ValueError, AttributeError):  # a name that looks like a place
        return error

    def is_among(first: int) -> bool:
        place.clear()
        place.update(members[:first])
        try:
            _decoder(kind).decode(msgspec.json.encode(request))
        except msgspec.ValidationError as found:
            return str(found) == message
        return False

    # msgspec stops at the first one that is wrong.
    count = bisect_left(range(len(members) + 1), True, key=is_among)
    if not 0 < count <= len(members):
        return error
    name = members[count - 1][0][:_DETAIL_CHARACTERS_MAX].replace("~", "~0").replace("/", "~1")
    return Invalid.field(f"{above}/{name}{below}"[:_DETAIL_CHARACTERS_MAX], problem.detail)


def _render_types(match: re.Match[str]) -> str:
    """Return "`str | int | float | null`" as "text or number": null counts as not given."""
    names = match[1].split(" | ")
    if len(names) > 1:
        hidden = {"null", "int"} if "float" in names else {"null"}
        names = [name for name in names if name not in hidden]
    return " or ".join(_JSON_NAMES.get(name, name) for name in names)


def _list_fields(kind: type[msgspec.Struct], steps: list[str]) -> Iterator[str]:
    """Yield the names of the fields at a place in a request."""
    for place in _find_types(kind, steps):
        if isinstance(place, inspect.StructType):
            yield from (field.encode_name for field in place.fields)


def _list_choices(kind: type[msgspec.Struct], steps: list[str]) -> Iterator[str]:
    """Yield the values that are allowed at a place in a request."""
    for place in _find_types(kind, steps):
        if isinstance(place, inspect.LiteralType):
            yield from map(str, place.values)
        if isinstance(place, inspect.EnumType):
            yield from (str(choice.value) for choice in place.cls)


def _find_types(kind: type[msgspec.Struct], steps: list[str]) -> list[inspect.Type]:
    """Return the types that a place in a request may have."""
    places = _alternatives(inspect.type_info(kind))
    for step in steps:
        places = [inner for place in places for inner in _descend(place, step)]
    return places


def _alternatives(place: inspect.Type) -> list[inspect.Type]:
    if isinstance(place, inspect.Metadata):  # Annotated
        place = place.type
    return list(place.types) if isinstance(place, inspect.UnionType) else [place]


def _descend(place: inspect.Type, step: str) -> list[inspect.Type]:
    if isinstance(place, inspect.ListType):
        return _alternatives(place.item_type)
    if isinstance(place, inspect.StructType):
        found = (field.type for field in place.fields if field.encode_name == step)
        return [inner for each in found for inner in _alternatives(each)]
    return []

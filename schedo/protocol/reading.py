"""Reads bodies of any size in steps, so that no step blocks the event loop for long.

A body of up to PIECE_BYTES is read in one step. A larger one is checked piece by piece, and what it
holds is then decoded field by field, so that no list or object in it takes long.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, inspect

from schedo.core import limits
from schedo.core.strict_json import DEPTH_MAX, decode_strictly, explain, to_canonical
from schedo.errors import BadJson, Invalid, Problem, TooLarge
from schedo.protocol.decode import decode_checked, point_at
from schedo.protocol.pieces import (
    PIECE_BYTES,
    VALUES_MAX,
    check_pieces,
    count_values,
    too_many_values,
)

T = TypeVar("T", bound=Struct)
U = TypeVar("U")
Steps = Generator[None, None, U]

# One list or object other than a payload, a result or a list of entries. Decoding one that is as
# large as this and dense takes some milliseconds.
FIELD_BYTES_MAX = 262_144

# A batch in JSON lines can contain empty lines. This limit keeps a body of nothing but line breaks
# from being split into millions of pieces, which would take hundreds of megabytes.
_LINES_MAX = 10 * limits.BATCH_JOBS_MAX

# A job whose payload is as large as it may be, and all its other fields.
_ITEM_BYTES_MAX = limits.PAYLOAD_BYTES_MAX + FIELD_BYTES_MAX
_ARRAY = re.compile(rb"[ \t\r\n]*\[")
_CHECKED_BYTES_MAX = 65_536  # of a body that is not an array; a longer one is refused unparsed
_COUNTED_BYTES = 262_144
_VALUE_SIGNS = (b",", b"[", b"{")
_BUILT = (inspect.StructType, inspect.ListType, inspect.DictType, inspect.AnyType)


def _ignore(_: Any) -> None:
    """Use no value."""


def read_request(body: bytes, kind: type[T], see: Callable[[Any], None] = _ignore) -> Steps[T]:
    """Return the request in a JSON body; raise BadJson or Invalid.

    `see` gets the value, or for a body that is read in several steps its SHA-256.
    """
    yield from _check(body, see)
    return (yield from read_checked(body, kind))


def read_small_item(item: Raw, number: int, kind: type[T], see: Callable[[Any], None]) -> T:
    """Return one request of a batch that is no longer than a piece; raise as read_item."""
    try:
        see(decode_strictly(bytes(item)))
    except BadJson as error:
        raise BadJson(f"value {number}: {error}") from None
    return decode_checked(item, kind)


def read_small_items(items: Sequence[Raw], kind: type[T]) -> tuple[list[T], bytes] | None:
    """Return requests of a batch, and their canonical JSON with commas between; None: one by one.

    items: together no longer than a piece, and parts of an array, whose syntax was checked. Reading
    them together takes half the time. Whatever one of them is refused for, read_small_item says.
    """
    text = b"[%b]" % b",".join(items)
    if _count_brackets(text) > DEPTH_MAX and any(
        _count_brackets(bytes(item)) > DEPTH_MAX for item in items
    ):
        return None
    canonical = to_canonical(text)
    if canonical is None:
        return None
    try:
        return _small_decoder(kind).decode(text), canonical[1:-1]
    except msgspec.ValidationError:
        return None


def _count_brackets(text: bytes) -> int:
    return text.count(b"[") + text.count(b"{")


@lru_cache(maxsize=8)
def _small_decoder(kind: type[T]) -> msgspec.json.Decoder[list[T]]:
    return msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]


def read_item(item: Raw, number: int, kind: type[T], see: Callable[[Any], None]) -> Steps[T]:
    """Return one request of a batch; raise BadJson, which says which it is, or Invalid."""
    if len(item) > _ITEM_BYTES_MAX:
        raise TooLarge(f"value {number}: a job is larger than {_ITEM_BYTES_MAX} bytes")
    try:
        yield from _check(bytes(item), see)
    except BadJson as error:
        raise BadJson(f"value {number}: {error}") from None
    return (yield from read_checked(item, kind))


def _check(text: bytes, see: Callable[[Any], None]) -> Steps[None]:
    if len(text) <= PIECE_BYTES:
        see(decode_strictly(text))
    else:
        yield from check_pieces(text)
        see(hashlib.sha256(text).hexdigest())
        yield


def read_checked(text: bytes | Raw, kind: type[T]) -> Steps[T]:
    """Return the request in JSON that was checked; raise Invalid."""
    if len(text) <= FIELD_BYTES_MAX:
        return decode_checked(text, kind)
    outline = _outline(kind)
    try:
        found = outline.decoder.decode(text)
    except msgspec.ValidationError as error:
        raise point_at(str(error), kind) from None
    yield
    taken: dict[str, Any] = {}
    for name, field in outline.fields.items():
        raw = getattr(found, name)
        if raw is UNSET or len(raw) <= FIELD_BYTES_MAX or field.is_text:
            continue
        pointer = f"/{field.key}"
        sign = bytes(memoryview(raw)[:1])
        if sign == b"[" and field.entry is not None:
            taken[name] = yield from _read_entries(raw, field, pointer)
        elif sign == b"{" and field.struct is not None:
            taken[name] = yield from _read_under(pointer, raw, field.struct)
        else:
            raise Invalid.field(
                pointer, f"{len(raw)} bytes; this field has at most {FIELD_BYTES_MAX}"
            )
        setattr(found, name, UNSET)
    request = decode_checked(msgspec.json.encode(found), kind)
    for name, value in taken.items():
        setattr(request, name, value)
    yield
    return request


def _read_entries(raw: Raw, field: _Field, pointer: str) -> Steps[list[Any]]:
    assert field.entry is not None
    try:
        entries = _split(raw, field.entries_max)
    except _TooMany:
        most = field.entries_max
        raise Invalid.field(pointer, f"Expected array of length <= {most}") from None
    read = []
    for at, entry in enumerate(entries):
        read.append((yield from _read_under(f"{pointer}/{at}", entry, field.entry)))
        yield
    return read


def _read_under(pointer: str, raw: Raw, kind: type[T]) -> Steps[T]:
    try:
        return (yield from read_checked(raw, kind))
    except Invalid as error:
        where = error.problems[0]
        raise Invalid.field(pointer + where.pointer, where.detail) from None


def at_once(steps: Steps[U]) -> U:
    """Run all steps and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: U = end.value
            return value


class _Field(NamedTuple):
    """The types that a large field of a request may have."""

    key: str
    is_text: bool  # text, or JSON that stays undecoded
    struct: type[Struct] | None
    entry: type[Struct] | None  # of a list
    entries_max: int


class _Outline(NamedTuple):
    """A request whose fields are not decoded."""

    decoder: msgspec.json.Decoder[Any]
    fields: dict[str, _Field]


@lru_cache(maxsize=64)
def _outline(kind: type[Struct]) -> _Outline:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    fields = {field.name: _describe(field) for field in info.fields}
    shell = msgspec.defstruct(
        kind.__name__,
        [(name, Raw | UnsetType, UNSET) for name in fields],
        rename={name: field.key for name, field in fields.items()},
        forbid_unknown_fields=info.forbid_unknown_fields,
    )
    return _Outline(msgspec.json.Decoder(shell), fields)


def _describe(field: inspect.Field) -> _Field:
    kinds = list(_alternatives(field.type))
    struct = next((each.cls for each in kinds if isinstance(each, inspect.StructType)), None)
    entry, entries_max = None, 0
    for each in kinds:
        if isinstance(each, inspect.ListType) and isinstance(each.item_type, inspect.StructType):
            entry, entries_max = each.item_type.cls, each.max_length or 0
    is_text = not any(isinstance(each, _BUILT) for each in kinds)
    return _Field(field.encode_name, is_text, struct, entry, entries_max)


def _alternatives(found: inspect.Type) -> Iterator[inspect.Type]:
    """Yield the possible types of a value, without their metadata."""
    if isinstance(found, inspect.Metadata):
        yield from _alternatives(found.type)
    elif isinstance(found, inspect.UnionType):
        for each in found.types:
            yield from _alternatives(each)
    else:
        yield found


# The items of a batch.


def split_array(body: bytes) -> Steps[list[Raw]]:
    """Return the items of a JSON array; of their content, only the syntax is checked."""
    if not body:
        raise BadJson("the body is empty; it must be a JSON value")
    yield from _check_count(body)
    if _ARRAY.match(body) is None:
        if len(body) <= _CHECKED_BYTES_MAX:
            decode_strictly(body)
        raise Invalid("the body must be a JSON array", Problem("", "expected an array"))
    try:
        return _split(body, limits.BATCH_JOBS_MAX)
    except _TooMany:
        raise _too_many() from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadJson(explain(body, str(error))) from None


def split_lines(body: bytes) -> list[Raw]:
    """Return the lines of newline-delimited JSON that are not empty, unchecked."""
    if body.count(b"\n") > _LINES_MAX:
        raise TooLarge(f"the batch has more than {_LINES_MAX} lines, empty ones included")
    lines = [line for line in body.split(b"\n") if line.strip()]
    if len(lines) > limits.BATCH_JOBS_MAX:
        raise _too_many()
    return [Raw(line) for line in lines]


def _too_many() -> TooLarge:
    most = limits.BATCH_JOBS_MAX
    return TooLarge(f"the batch has more than {most} jobs; that is the most taken at once")


def _check_count(body: bytes) -> Steps[None]:
    """Refuse a body with too many values to split in a short time; strings do not count."""
    if len(body) <= VALUES_MAX:
        return
    count = 0
    for at in range(0, len(body), _COUNTED_BYTES):
        count += sum(body.count(sign, at, at + _COUNTED_BYTES) for sign in _VALUE_SIGNS)
        yield
    if count > VALUES_MAX and (yield from count_values(body)) > VALUES_MAX:
        raise too_many_values()


class _TooMany(Exception):
    """An array has too many items."""


def _split(array: bytes | Raw, most: int) -> list[Raw]:
    """Return the texts of an array's items; raise _TooMany before creating more than `most`."""
    try:
        found = _list_decoder(most).decode(array)
    except msgspec.ValidationError:
        raise _TooMany from None
    return [item for item in msgspec.structs.astuple(found) if item is not UNSET]


@lru_cache(maxsize=8)
def _list_decoder(most: int) -> msgspec.json.Decoder[Any]:
    """Return a decoder for at most `most` items; a list type would decode all of them first."""
    items = [(f"item_{number}", Raw | UnsetType, UNSET) for number in range(most)]
    shape = msgspec.defstruct("Items", items, array_like=True, forbid_unknown_fields=True)
    return msgspec.json.Decoder(shape)

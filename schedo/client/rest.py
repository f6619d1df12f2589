"""How an operation is built, and how its response is read."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NotRequired, TypedDict
from urllib.parse import quote, urlencode

from schedo.client.errors import NotSchedo
from schedo.client.messages import HttpResponse, Operation, Record
from schedo.client.options import render_options
from schedo.core import limits
from schedo.errors import Invalid

JSON = {"Content-Type": "application/json"}


class Page(TypedDict):
    """Some records, and the cursor of the next page if there is one.

    looked_at: how many jobs a search has looked at that has ended early, at those that were created
    at `searched_to`.
    """

    items: list[Record]
    next_cursor: str | None
    looked_at: NotRequired[int]
    searched_to: NotRequired[str]


def encode(value: object) -> bytes:
    """Return the value as JSON; raise Invalid if it cannot be written so."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        return text.encode()
    except UnicodeEncodeError:
        raise Invalid("the request holds text that is not UTF-8") from None
    except RecursionError:
        from schedo.core.strict_json import too_deep  # rarely needed, and slow to import

        raise Invalid(str(too_deep("the request"))) from None
    except (TypeError, ValueError) as error:
        raise Invalid(f"the request cannot be written as JSON: {error}") from error


def encode_batches(requests: Sequence[Record]) -> Iterator[tuple[int, bytes]]:
    """Yield the bodies of batches that a server takes, each with the position of its first job."""
    for start in range(0, len(requests), limits.BATCH_JOBS_MAX):
        yield from _split(requests[start : start + limits.BATCH_JOBS_MAX], start)


def _split(part: Sequence[Record], start: int) -> Iterator[tuple[int, bytes]]:
    body = encode(list(part))
    if len(body) <= limits.BATCH_BYTES_MAX or len(part) == 1:
        yield start, body
        return
    half = len(part) // 2
    yield from _split(part[:half], start)
    yield from _split(part[half:], start + half)


def read_record(response: HttpResponse) -> Record:
    """Return the JSON object of the response."""
    value = response.json()
    if not isinstance(value, dict):
        raise NotSchedo.because("it did not answer with a JSON object")
    return value


def record_with(*names: str) -> Callable[[HttpResponse], Record]:
    """Return the function that reads a JSON object, which has these fields on a schedo server."""

    def read(response: HttpResponse) -> Record:
        record = read_record(response)
        check_fields(record, names)
        return record

    return read


def list_with(*names: str) -> Callable[[HttpResponse], Record]:
    """As record_with, of an object whose `items` have these fields each."""

    def read(response: HttpResponse) -> Record:
        record = _read_list(response)
        items = record["items"]
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise NotSchedo.because("its answer is no list of records")
        for item in items:
            check_fields(item, names)
        return record

    return read


_read_list = record_with("items")


def check_fields(record: Record, names: Sequence[str]) -> None:
    """Raise NotSchedo if the record lacks a field that a schedo server sends."""
    for name in names:
        if name not in record:
            raise NotSchedo.because(f"its answer has no {name!r}")


def page_with(*names: str) -> Callable[[HttpResponse], Page]:
    """Return the function that reads a page of a list, whose records have these fields."""
    read_list = list_with(*names)

    def read(response: HttpResponse) -> Page:
        record = read_list(response)
        page: Page = {"items": record["items"], "next_cursor": record.get("next_cursor")}
        if "looked_at" in record:
            page["looked_at"], page["searched_to"] = record["looked_at"], record["searched_to"]
        return page

    return read


def items_with(*names: str) -> Callable[[HttpResponse], list[Record]]:
    """As page_with, of a list that has one page."""
    read_list = list_with(*names)

    def read(response: HttpResponse) -> list[Record]:
        items: list[Record] = read_list(response)["items"]
        return items

    return read


def read_nothing(response: HttpResponse) -> None:
    """Check that the response has no body, which says that it is done."""
    if response.status != HTTPStatus.NO_CONTENT:
        raise NotSchedo.because(f"it answered {response.status} with {response.content_type}")


def render_query(values: Mapping[str, object]) -> str:
    """Return the query of a target, with its question mark; None is left out."""
    plain = render_options(values)
    try:
        return f"?{urlencode(plain)}" if plain else ""
    except UnicodeEncodeError:
        raise Invalid("the request holds text that is not UTF-8") from None


def quote_part(name: str) -> str:
    """Return a name or an id as a part of a path; raise Invalid if it would be another path."""
    if not name or "/" in name:
        raise Invalid(
            f"{name[:100]!a} is neither a name nor an id: these are not empty and have no slash"
        )
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise Invalid(f"{name!a} is not UTF-8 text") from None


def get(target: str, parse: Callable[[HttpResponse], Any], held_s: float = 0.0) -> Operation[Any]:
    """Return a read; the server may hold it open for `held_s` seconds."""
    return Operation("GET", target, parse, is_repeatable=True, held_s=held_s)


def post(
    target: str,
    options: Mapping[str, object] | None = None,
    parse: Callable[[HttpResponse], Record] = read_record,
    *,
    is_repeatable: bool = False,
) -> Operation[Record]:
    """Return an action, whose response is a record; options that are None are left out."""
    body = encode(render_options(options or {}))
    return Operation("POST", target, parse, body, JSON, is_repeatable)


def submit_headers(key: str | None) -> dict[str, str]:
    """Return the headers of a submit; without a key it gets a random one."""
    key = uuid.uuid4().hex if key is None else key
    if not key or not all(" " <= character <= "~" for character in key):
        raise Invalid("an idempotency key is visible ASCII")
    quoted = key.replace("\\", "\\\\").replace('"', '\\"')
    return {**JSON, "Idempotency-Key": f'"{quoted}"'}

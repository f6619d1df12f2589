"""Output is rendered in pieces, which together are one JSON document."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import orjson
import pytest

from schedo.core.changes import Changes, Output
from schedo.core.leases import CapturedOutput
from schedo.protocol.jobs import OutputResponse
from schedo.store.sqlite.store import SqliteStore
from schedo.web.handlers.outputs import read_output, render_outputs
from tests.factories import make_job


async def rendered(*outputs: Output) -> tuple[list[Any], int]:
    """Return the items of the rendered page, and the size of its largest piece."""
    store = SqliteStore(":memory:")
    await store.open()
    await store.commit(Changes(jobs={1: make_job(id=1)}, outputs=list(outputs)))
    sizes = await store.list_output_sizes(1)
    pieces = [piece async for piece in render_outputs(store, 1, sizes)]
    await store.close()
    page = orjson.loads(b"".join(pieces))
    for item in page["items"]:
        msgspec.convert(item, OutputResponse)
    return page["items"], max(map(len, pieces))


async def test_one_page_has_all_streams_of_all_attempts() -> None:
    items, _ = await rendered(
        Output(1, 1, CapturedOutput("stderr", b"a", b"b", 2)),
        Output(1, 1, CapturedOutput("stdout", b"ab", b"yz", 10)),
        Output(1, 2, CapturedOutput("stdout", b"", b"", 0)),
    )

    assert items == [
        {"attempt": 1, "stream": "stderr", "text": "ab", "total_bytes": 2, "truncated": False},
        {
            "attempt": 1,
            "stream": "stdout",
            "text": "ab\n[... 6 bytes left out ...]\nyz",
            "total_bytes": 10,
            "truncated": True,
        },
        {"attempt": 2, "stream": "stdout", "text": "", "total_bytes": 0, "truncated": False},
    ]


@pytest.mark.parametrize(
    "character", ["x", "\x01", '"', "\u00e9", "\u20ac", "\U0001f600"], ids=ascii
)
async def test_a_character_may_extend_over_two_pieces(character: str) -> None:
    text = "." + character * 200_000
    data = text.encode()

    kept = CapturedOutput("stdout", data[:399_999], data[399_999:], len(data))
    items, largest = await rendered(Output(1, 1, kept))

    assert items[0]["text"] == text
    assert "base64" not in items[0]
    assert largest < 700_000


@pytest.mark.parametrize("data", [b"\xff" * 200_000, b"ab\xe2\x82", b"\xed\xa0\x80" * 50_000])
async def test_bytes_that_are_not_text_are_returned_in_base64(data: bytes) -> None:
    kept = CapturedOutput("stdout", data[:100_001], data[100_001:], len(data))
    items, _ = await rendered(Output(1, 1, kept))

    assert items[0]["text"] == data.decode(errors="replace")
    assert items[0]["encoding"] == "base64"
    assert base64.b64decode(items[0]["base64"], validate=True) == data


async def test_a_job_without_output_has_an_empty_page() -> None:
    assert await rendered() == ([], len(b'{"items":['))


async def test_output_that_has_been_deleted_is_empty() -> None:
    store = SqliteStore(":memory:")
    await store.open()
    await store.commit(
        Changes(
            jobs={1: make_job(id=1)}, outputs=[Output(1, 1, CapturedOutput("stdout", b"a", b"", 1))]
        )
    )
    sizes = await store.list_output_sizes(1)

    parts = [part async for part in read_output(store, 2, sizes[0])]
    await store.close()

    assert b"".join(parts) == b""

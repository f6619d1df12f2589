"""A chunked body is parsed strictly, in whatever pieces it arrives."""

from __future__ import annotations

import pytest

from schedo.web.chunked_body import BadChunk, Chunks

WHOLE = b"5\r\nhello\r\n1;name=value\r\n,\r\n006\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n"


def read(*pieces: bytes) -> tuple[bytes, bytes, bool]:
    """Return the data, the bytes after the body, and whether the body is complete."""
    chunks, data, behind = Chunks(), b"", b""
    for piece in pieces:
        parts, behind = chunks.feed(piece)
        data += b"".join(parts)
    return data, behind, chunks.is_complete


@pytest.mark.parametrize("size", range(1, len(WHOLE) + 1))
def test_the_data_of_a_chunked_body_do_not_depend_on_how_it_arrives(size: int) -> None:
    pieces = [WHOLE[at : at + size] for at in range(0, len(WHOLE), size)]

    assert read(*pieces) == (b"hello, world", b"", True)


def test_bytes_after_the_body_are_not_consumed() -> None:
    assert read(WHOLE + b"GET / HTTP/1.1") == (b"hello, world", b"GET / HTTP/1.1", True)


@pytest.mark.parametrize(
    "wire",
    [
        b"zz\r\n",
        b"\r\n",
        b"-1\r\n",
        b"+1\r\n",
        b"0x1\r\n",
        b" 1\r\n",
        b"1 \r\n",
        b"1\n",
        b"1\r\nab\r\n",
        b"1\r\na\n",
        b"1\r\na\rb",
        b"100000000\r\n",
        b"1;a\x00b\r\n",
        b"1;a\nb\r\n",
        b"1" * 5_000,
        b"0\r\nno trailer\r\n",
        b"0\r\nX : 1\r\n",
        b"0\r\n folded\r\n",
    ],
    ids=lambda wire: repr(wire)[:30],
)
def test_an_invalid_chunked_body_is_refused(wire: bytes) -> None:
    with pytest.raises(BadChunk):
        read(wire + b"." * 5_000)


@pytest.mark.parametrize(
    "wire",
    [
        b"1;" + b"e" * 1_000 + b"\r\na\r\n",
        b"1\r\na\r\n",
    ],
    ids=["extensions", "chunks of one byte"],
)
def test_a_chunked_body_with_more_framing_than_data_is_refused(wire: bytes) -> None:
    with pytest.raises(BadChunk):
        read(*[wire] * (140_000 // len(wire)))


def test_endless_trailers_are_refused() -> None:
    with pytest.raises(BadChunk):
        read(b"0\r\n", *[b"X-A: " + b"a" * 1_000 + b"\r\n"] * 100)


def test_a_body_in_chunks_of_a_hundred_bytes_is_accepted() -> None:
    chunk = b"64\r\n" + b"a" * 100 + b"\r\n"

    data, _, is_complete = read(*[chunk * 100] * 100, b"0\r\n\r\n")

    assert (len(data), is_complete) == (1_000_000, True)

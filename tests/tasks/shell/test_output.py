"""The kept parts of a stream, and its output file."""

from __future__ import annotations

import asyncio
import os
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedo.tasks.head_and_tail import HeadAndTail
from schedo.tasks.shell.output import OutputFile, PipeReader


@pytest.mark.parametrize(
    ("chunks", "head", "tail"),
    [
        ([], b"", b""),
        ([b"abc"], b"abc", b""),
        ([b"abcd"], b"abcd", b""),
        ([b"abcdef"], b"abcd", b"ef"),
        ([b"abcdefgh"], b"abcd", b"efgh"),
        ([b"abc", b"defgh", b"ijk"], b"abcd", b"hijk"),
        ([b"abcdefghijklmnopqrstuvwxyz"], b"abcd", b"wxyz"),
        ([b"abcdefg", b"hijklmnop", b"q"], b"abcd", b"nopq"),
    ],
)
def test_the_first_and_the_last_bytes_of_the_output_are_kept(
    chunks: list[bytes], head: bytes, tail: bytes
) -> None:
    kept = HeadAndTail(half_bytes=4)

    for chunk in chunks:
        kept.feed(chunk)

    assert (kept.head, kept.tail, kept.total_bytes) == (head, tail, sum(map(len, chunks)))


@given(st.lists(st.binary(max_size=20), max_size=20), st.integers(1, 12))
def test_the_kept_bytes_do_not_depend_on_how_the_output_is_chunked(
    chunks: list[bytes], half: int
) -> None:
    kept = HeadAndTail(half)

    for chunk in chunks:
        kept.feed(chunk)

    whole = b"".join(chunks)
    assert kept.head == whole[:half]
    assert kept.tail == whole[half:][-half:]


async def test_a_drain_reads_what_is_there_and_does_not_wait_for_the_writer() -> None:
    tap = PipeReader("stdout")
    writer = os.dup(tap.write_end)
    os.write(writer, b"here")
    tap.start()

    tap.drain()

    assert tap.kept.head == b"here"
    assert not tap.ended.done()
    os.close(writer)
    tap.close()


async def test_the_end_of_the_last_writer_is_noticed() -> None:
    tap = PipeReader("stdout")
    os.write(tap.write_end, b"all")

    tap.start()
    async with asyncio.timeout(10):
        await tap.ended

    assert tap.capture().head == b"all"
    tap.close()


async def test_an_output_file_gets_every_byte_in_order(tmp_path: Path) -> None:
    file = OutputFile(tmp_path / "out")

    for number in range(1_000):
        file.write(f"{number}\n".encode())
    await file.close()

    assert file.path.read_text() == "".join(f"{n}\n" for n in range(1_000))
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert file.note is None


async def test_without_output_no_file_is_made(tmp_path: Path) -> None:
    file = OutputFile(tmp_path / "out")

    await file.close()

    assert not file.path.exists()


@pytest.mark.parametrize("plant", ["file", "link", "pipe"])
async def test_an_existing_file_at_the_path_is_not_changed(tmp_path: Path, plant: str) -> None:
    path, target = tmp_path / "out", tmp_path / "target"
    target.write_text("precious")
    if plant == "file":
        path.write_text("precious")
    elif plant == "link":
        path.symlink_to(target)
    else:
        os.mkfifo(path)
    file = OutputFile(path, tmp_path / "other")

    file.write(b"new")
    await file.close()

    assert (tmp_path / "other").read_bytes() == b"new"
    assert target.read_text() == "precious"
    assert plant != "file" or path.read_text() == "precious"


async def test_an_output_file_that_cannot_be_made_is_reported_once(tmp_path: Path) -> None:
    file = OutputFile(tmp_path / "missing" / "out")

    file.write(b"one")
    await file.close()
    file.write(b"two")

    assert file.note == "out is incomplete: No such file or directory"


async def test_an_output_file_that_cannot_grow_is_reported(tmp_path: Path) -> None:
    file = OutputFile(tmp_path / "out")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))  # as good as a full disk
    try:
        file.write(b"x" * 5_000)
        await file.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert file.note == "out is incomplete: File too large"
    assert file.path.stat().st_size == 1_000


async def test_the_pipe_waits_while_its_file_is_behind_and_loses_nothing(tmp_path: Path) -> None:
    tap = PipeReader("stdout", OutputFile(tmp_path / "out"))
    writer = os.dup(tap.write_end)
    tap.start()
    block = bytes(range(256)) * 4_096

    def flood() -> None:
        for _ in range(8):
            os.write(writer, block)
        os.close(writer)

    await asyncio.to_thread(flood)
    async with asyncio.timeout(20):
        await tap.ended
    assert tap.file is not None
    await tap.file.close()

    assert tap.file.path.read_bytes() == block * 8


@pytest.mark.parametrize(
    ("chunks", "count", "end"),
    [
        ([], 4, ("", 0)),
        ([b"abc"], 4, ("abc", 3)),
        ([b"abcdef"], 4, ("cdef", 6)),
        ([b"abcdefghijk"], 4, ("hijk", 11)),
        ([b"abcdefg"], 6, ("bcdefg", 7)),
        (["aé".encode()], 2, ("é", 3)),
        (["aéb".encode()], 2, ("b", 4)),
        (["aé".encode()[:-1]], 4, ("a", 1)),
        ([b"a\xffb"], 4, ("a\ufffdb", 3)),
    ],
)
def test_the_end_of_a_stream_has_whole_characters(
    chunks: list[bytes], count: int, end: tuple[str, int]
) -> None:
    kept = HeadAndTail(half_bytes=4)

    for chunk in chunks:
        kept.feed(chunk)

    assert kept.read_end(count) == end

"""The checker of cluster runs sees a limit that was broken, and the link holds what it must."""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.cluster.limits import find_most_at_once
from tests.e2e.cluster.link import Link, Streams
from tests.e2e.takeover.evidence import Line


def runs(*spans: tuple[str, int, float, float]) -> list[Line]:
    """Return the lines of attempts: job, attempt, start and end in s; no end if it is 0."""
    lines = []
    for job, attempt, start, end in spans:
        token = f"limit1-{job}"
        lines.append(Line("start", token, job, attempt, attempt, "", start, "child"))
        if end:
            lines.append(Line("end", token, job, attempt, attempt, "", end, "child"))
    return lines


def test_attempts_at_the_same_time_are_counted() -> None:
    lines = runs(("a", 1, 1.0, 2.0), ("b", 1, 1.5, 2.5), ("c", 1, 3.0, 4.0))

    assert find_most_at_once(lines, "limit1-") == (2, 3)


def test_attempts_one_after_the_other_are_not_at_the_same_time() -> None:
    lines = runs(("a", 1, 1.0, 2.0), ("b", 1, 2.0, 2.5))

    assert find_most_at_once(lines, "limit1-") == (1, 2)


def test_an_attempt_whose_lease_was_revoked_does_not_count() -> None:
    lines = runs(("a", 1, 1.0, 9.0), ("a", 2, 2.0, 3.0), ("b", 1, 4.0, 5.0))

    assert find_most_at_once(lines, "limit1-") == (1, 2)


def test_other_queues_and_attempts_without_an_end_do_not_count() -> None:
    lines = runs(("a", 1, 1.0, 0.0), ("b", 1, 1.5, 2.5))

    assert find_most_at_once(lines, "limit1-") == (1, 1)
    assert find_most_at_once(lines, "limit10-") == (0, 0)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)
    writer.close()


async def open_link() -> tuple[Link, asyncio.Server, Streams]:
    target = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = target.sockets[0].getsockname()[1]
    link = Link(lambda: asyncio.open_connection("127.0.0.1", port))
    await link.open()
    return link, target, await asyncio.open_connection("127.0.0.1", link.port)


async def test_a_cut_link_holds_what_is_sent_until_it_is_healed() -> None:
    link, target, (reader, writer) = await open_link()
    writer.write(b"1")
    assert await reader.readexactly(1) == b"1"

    for direction in ("there", "back", "both"):
        link.cut(direction)
        writer.write(b"2")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.05)
        link.heal()
        assert await reader.readexactly(1) == b"2"

    writer.close()
    await link.close()
    target.close()


async def test_a_request_passes_before_its_connection_is_reset() -> None:
    link, target, (reader, writer) = await open_link()
    writer.write(b"1")
    assert await reader.readexactly(1) == b"1"

    link.reset_after_request()
    writer.write(b"2")

    with pytest.raises(ConnectionError):
        await reader.read(1)
    writer.close()
    await link.close()
    target.close()

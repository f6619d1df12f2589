"""Long lists are rendered while they are sent, short ones in one piece."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import orjson
import pytest

from schedo.engine import sharing
from schedo.web.pages import page_response
from tests.web.world import World

ITEM = {"text": "x" * 1_000}


async def whole(render: Any, items: Any, cursor: str | None = None) -> Any:
    answer = await page_response(render, items, cursor)
    pieces = [] if answer.pieces is None else [piece async for piece in answer.pieces]
    return orjson.loads(b"".join([*pieces, answer.body]))


async def test_a_short_list_is_one_piece() -> None:
    answer = await page_response(str, [1, 2], "next")

    assert answer.pieces is None
    assert answer.body == b'{"items":["1","2"],"next_cursor":"next"}'
    assert (await page_response(str, [])).body == b'{"items":[]}'


async def test_a_long_list_sent_in_pieces_is_complete() -> None:
    numbers = list(range(50_000))

    assert await whole(lambda number: number, numbers) == {"items": numbers}
    assert await whole(lambda _: ITEM, range(200), "c") == {
        "items": [ITEM] * 200,
        "next_cursor": "c",
    }


async def test_the_items_of_a_long_list_are_made_as_the_client_reads() -> None:
    made = 0

    def items() -> Iterator[int]:
        nonlocal made
        for number in range(10_000):
            made += 1
            yield number

    answer = await page_response(lambda _: ITEM, items())
    assert answer.pieces is not None
    seen = []
    async for piece in answer.pieces:
        assert len(piece) < 70_000
        seen.append(made)

    assert seen[0] < 100
    assert all(after - before < 100 for before, after in pairwise(seen))
    assert made == 10_000


async def test_other_work_of_the_loop_runs_between_the_items(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = 0
    turn = sharing.LoopShare._turn

    def count(share: sharing.LoopShare) -> None:
        nonlocal turns
        turns += 1
        turn(share)

    monkeypatch.setattr(sharing, "SLICE_S", 0.0)
    monkeypatch.setattr("schedo.web.pages.STEP_S", 0.0)
    monkeypatch.setattr(sharing.LoopShare, "_turn", count)
    await page_response(str, range(500))

    assert turns >= 500


async def test_many_queues_are_listed_in_pieces(world: World) -> None:
    for number in range(1_000):
        await world.engine.change_queue(f"q{number:04}", concurrency=5)

    reply = await world.get("/v1/queues")

    assert "content-length" not in reply.headers
    assert [item["name"] for item in reply.json()["items"]] == [f"q{n:04}" for n in range(1_000)]

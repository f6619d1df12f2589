"""Outbox: many items of one turn go together, in order, and never too many bytes at once."""

from __future__ import annotations

import asyncio

from schedo.worker.process.batcher import Batcher

HALF = b"x" * 524_288


class Post:
    """An outbox of bytes, and what it has sent."""

    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []
        self.outbox: Batcher[bytes] = Batcher(len, self.sent.append)

    async def turn(self) -> None:
        """Let the loop turn once."""
        turned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(turned.set_result, None)
        await turned


async def test_what_is_said_in_one_turn_is_sent_together_at_its_end() -> None:
    post = Post()
    post.outbox.add(b"1")
    post.outbox.add(b"2")
    before = list(post.sent)

    await post.turn()
    post.outbox.add(b"3")
    await post.turn()

    assert before == []
    assert post.sent == [[b"1", b"2"], [b"3"]]


async def test_items_are_sent_early_before_they_are_too_large_together() -> None:
    post = Post()

    for item in (HALF, HALF, b"1"):
        post.outbox.add(item)
    await post.turn()

    assert post.sent == [[HALF, HALF], [b"1"]]


async def test_an_item_larger_than_a_batch_goes_alone() -> None:
    post = Post()

    for item in (b"1", 3 * HALF, b"2"):
        post.outbox.add(item)
    await post.turn()

    assert post.sent == [[b"1"], [3 * HALF], [b"2"]]


async def test_what_is_sent_at_once_is_not_sent_again() -> None:
    post = Post()
    post.outbox.add(b"1")

    post.outbox.flush()
    post.outbox.flush()
    await post.turn()

    assert post.sent == [[b"1"]]

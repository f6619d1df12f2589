"""Channels, which connect the engine's parts: send items one by one and drain them at once."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from schedo.engine.channel import Channel

SIZES = [1, 100, 10_000]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size:>6,} in a batch")
@pytest.mark.benchmark(group="channel: send and drain")
def test_channel(benchmark: BenchmarkFixture, size: int) -> None:
    channel: Channel[int] = Channel(lambda: None, size)

    def pass_through() -> int:
        for item in range(size):
            channel.try_send(item)
        return len(channel.drain())

    assert benchmark(pass_through) == size

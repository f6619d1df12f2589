"""A server that does not know whether it still owns its jobs says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedo.engine.standstill import DOUBT, DOUBT_CAUSES
from schedo.errors import StoreError
from tests.engine.test_ownership import sharing


@pytest.mark.parametrize("refuses", [False, True], ids=["at once", "when requests are refused"])
async def test_a_server_in_doubt_says_why_its_heartbeats_fail(path: Path, refuses: bool) -> None:
    async with sharing(path) as (world, shards):
        shards.is_known = False
        shards.beat_error = StoreError("cannot connect to db: all sessions are in use")
        if refuses:
            world.engine._loop.suspend()

        assert world.engine.health().reasons == [
            f"{DOUBT}: its heartbeats fail: cannot connect to db: all sessions are in use"
        ]

        shards.beat_error = None
        assert world.engine.health().reasons == [DOUBT_CAUSES]

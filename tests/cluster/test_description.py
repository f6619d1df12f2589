"""What a server says of its cluster."""

from __future__ import annotations

import pytest

from schedo.core.limits import SECOND
from tests.cluster.members import FakeCluster, running_cluster


async def test_heartbeats_are_as_old_as_what_the_server_has_seen_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_cluster() as (everything, (first, _)):
        everything.members[1] = everything.members[1]._replace(silent_us=20_000)
        monkeypatch.setattr(FakeCluster, "unseen_us", lambda self: 7 * SECOND)

        found = first.router.describe()

    assert [each.silent_us for each in found.members] == [7 * SECOND, 7_020_000]

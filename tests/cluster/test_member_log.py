"""The log of a server says who is in its cluster, and how many shards it has itself."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from schedo.cluster import member_log
from schedo.cluster.member_log import MemberLog
from schedo.core.shards import SHARDS
from schedo.store.cluster import Member, MemberState
from tests.cluster.members import FakeCluster, Map
from tests.passes import one_pass

FIRST = Member(1, "host 1", "http://host1:8080", 1, "1.2", MemberState.OPEN, 0)
SECOND = Member(2, "host 2", "http://host2:8080", 2, "1.3", MemberState.OPEN, 0)
LEAVING = SECOND._replace(state=MemberState.LEAVING)
HALF = SHARDS // 2

See = Callable[..., list[str]]


@pytest.fixture
def see(caplog: pytest.LogCaptureFixture) -> See:
    """Return what the first server logs when it sees these others; shards: how many it has."""
    caplog.set_level(logging.INFO, "schedo.cluster")
    everything = Map()
    cluster = FakeCluster(everything, 1)
    log = MemberLog(cluster)

    def see_members(*others: Member, shards: int = SHARDS) -> list[str]:
        everything.members[:] = [FIRST, *others]
        everything.owners[:] = [1] * shards + [2] * (SHARDS - shards)
        caplog.clear()
        log.look()
        return [f"{each.levelname.lower()}: {each.message}" for each in caplog.records]

    return see_members


def test_a_server_that_joins_is_logged_once_and_so_are_the_shards_that_it_gets(see: See) -> None:
    assert see() == [f"info: this server has {SHARDS} of {SHARDS} shards"]
    assert see(SECOND._replace(url="")) == []  # it does not listen yet
    assert see(SECOND) == [
        "info: server 2 (host 2) is in the cluster, with schedo 1.3 at http://host2:8080"
    ]
    assert see(SECOND, shards=HALF) == [f"info: this server has {HALF} of {SHARDS} shards"]
    assert see(SECOND._replace(epoch=7), shards=HALF) == []


def test_a_server_that_leaves_in_order_is_logged(see: See) -> None:
    see(SECOND)

    assert see(LEAVING) == ["info: server 2 (host 2) leaves the cluster: it gives its shards away"]
    assert see(LEAVING) == []
    assert see() == ["info: server 2 (host 2) has left the cluster"]


def test_a_server_that_dies_is_logged_as_a_warning(see: See) -> None:
    see(SECOND, shards=HALF)

    assert see(SECOND._replace(silent_us=None), shards=HALF) == []  # it has its shards still
    assert see(SECOND._replace(silent_us=None)) == [
        "warning: server 2 (host 2) is gone, and others have its shards",
        f"info: this server has {SHARDS} of {SHARDS} shards",
    ]
    assert see(SECOND._replace(silent_us=None)) == []


async def test_changes_that_follow_each_other_are_logged_together_a_moment_later(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A take-over is known in steps, and its jobs need the processors first."""
    monkeypatch.setattr(member_log, "LOOK_AFTER_S", 0.0)
    caplog.set_level(logging.INFO, "schedo.cluster")
    everything = Map()
    everything.members[:], everything.owners[:] = [FIRST], [1] * HALF + [2] * HALF
    log = MemberLog(FakeCluster(everything, 1))

    log.note_change()
    everything.owners[:] = [1] * SHARDS
    log.note_change()
    assert not caplog.records
    await one_pass()
    await one_pass()

    assert [each.message for each in caplog.records] == [
        f"this server has {SHARDS} of {SHARDS} shards"
    ]
    log.note_change()
    log.stop()
    assert log._timer is None

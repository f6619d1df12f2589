"""Figures that several servers tell each second, as one."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest

from schedo.cluster.live import LiveFigures
from schedo.core.series import COUNTS, GAUGES
from schedo.engine.summary import WORKERS_MAX

OK = {"level": "ok", "text": "Jobs start on time.", "others": []}


def tick(figures: dict[str, int | None] | None = None, **fields: Any) -> dict[str, Any]:
    """Return the data of a tick; figures: those that are not 0."""
    data = {"now": "2026-01-01T00:00:00Z", "verdict": OK, "running": 0, "slots": 0} | fields
    if figures is not None:
        names = [name for name in (*COUNTS, *GAUGES) if name != "commit_us"]
        data["figures"] = dict.fromkeys(names, 0) | figures
        data["lateness"] = {"timer": [1, 2], "submit": [0, 3]}
    return data


@pytest.fixture
def live() -> LiveFigures:
    return LiveFigures("own")


def test_counts_of_another_server_wait_for_the_next_tick_and_are_told_once(
    live: LiveFigures,
) -> None:
    assert live.merge("other", "tick", tick({"started": 5})) is None
    assert live.merge("other", "tick", tick({"started": 7})) is None

    merged = live.merge("own", "tick", tick({"started": 1}))
    then = live.merge("own", "tick", tick({"started": 1}))

    assert merged is not None
    assert then is not None
    assert [each["figures"]["started"] for each in (merged, then)] == [13, 1]
    assert merged["lateness"] == {"timer": [3, 6], "submit": [0, 9]}


def test_gauges_are_added_or_the_largest_of_the_last_ones_that_each_server_told(
    live: LiveFigures,
) -> None:
    live.merge("other", "tick", tick({"due": 4, "loop_lag_us": 9, "slots": None}))
    live.merge("own", "tick", tick({"due": 1, "loop_lag_us": 2, "slots": None}))

    merged = live.merge("own", "tick", tick({"due": 2, "loop_lag_us": 3, "slots": 8}))

    assert merged is not None
    assert [merged["figures"][name] for name in ("due", "loop_lag_us", "slots")] == [6, 9, 8]


def test_a_tick_without_figures_has_those_of_the_others(live: LiveFigures) -> None:
    live.merge("other", "tick", tick({"failed": 2}))

    merged, then = live.merge("own", "tick", tick()), live.merge("own", "tick", tick())

    assert merged is not None
    assert merged["figures"]["failed"] == 2
    assert then is not None
    assert "figures" not in then


def test_what_another_server_complains_about_is_the_verdict(live: LiveFigures) -> None:
    late = {"level": "critical", "text": "Jobs start late.", "others": []}
    live.merge("other", "tick", tick(verdict=late, running=2, slots=2))

    merged = live.merge("own", "tick", tick(running=1, slots=4))

    assert merged is not None
    assert merged["verdict"] == {
        "level": "critical",
        "text": "other: Jobs start late.",
        "others": [],
    }
    assert (merged["running"], merged["slots"]) == (3, 6)


def test_a_change_of_a_queue_adds_what_the_others_listed_or_told_last(live: LiveFigures) -> None:
    live.note_queues("other", [{"name": "mail", "running": 1, "waiting": {"queued": 2}}])
    event = {"count": 1, "queues": [{"name": "mail", "running": 1, "waiting": {"retrying": 1}}]}
    merged = live.merge("own", "queues", event)
    live.merge(
        "other", "queues", {"count": 1, "queues": [{"name": "mail", "running": 0, "waiting": {}}]}
    )
    event = {"count": 1, "queues": [{"name": "mail", "running": 3, "waiting": {}}]}

    then = live.merge("own", "queues", event)

    assert merged is not None
    assert merged["queues"] == [
        {"name": "mail", "running": 2, "waiting": {"queued": 2, "retrying": 1}}
    ]
    assert then is not None
    assert then["queues"] == [{"name": "mail", "running": 3, "waiting": {}}]


@pytest.mark.parametrize("running", [7, 0])
def test_what_an_event_told_is_newer_than_the_list(live: LiveFigures, running: int) -> None:
    told = {"queues": [{"name": "mail", "running": running, "waiting": {}}]}
    live.merge("other", "queues", told)
    live.note_queues("other", [{"name": "mail", "running": 1, "waiting": {"queued": 2}}])

    merged = live.merge(
        "own", "queues", {"queues": [{"name": "mail", "running": 1, "waiting": {}}]}
    )

    assert merged is not None
    assert merged["queues"] == [{"name": "mail", "running": running + 1, "waiting": {}}]


def test_a_stream_keeps_nothing_of_queues_that_have_no_jobs_any_more(live: LiveFigures) -> None:
    live.note_queues("other", [{"name": "listed", "running": 0, "waiting": {}}])

    def tell() -> int:
        tracemalloc.start()
        for number in range(2_000):
            for running in (1, 0):
                queue = {"name": f"tenant-{number}", "running": running, "waiting": {"queued": 0}}
                live.merge("other", "queues", {"queues": [queue]})
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return kept

    assert tell() < 100_000


def test_a_change_of_limits_is_passed_on_as_it_is(live: LiveFigures) -> None:
    for event in (
        {"count": 900},
        {"count": 1, "queues": [{"name": "mail", "paused": True, "concurrency": 2}]},
    ):
        assert live.merge("other", "queues", dict(event)) == event


def worker(name: str = "w", **fields: Any) -> dict[str, Any]:
    """Return a worker as an event tells of it."""
    usual = {"name": name, "kind": "remote", "state": "active", "slots": 4, "running": 0}
    return usual | {"running_tasks": {}, "health": None} | fields


def told(*workers: dict[str, Any], gone: Sequence[str] = ()) -> dict[str, Any]:
    return {"workers": [*workers], "gone": [*gone]}


def test_a_remote_worker_runs_what_each_server_tells(live: LiveFigures) -> None:
    live.merge("other", "workers", told(worker(running=1, running_tasks={"a": 1})))

    merged = live.merge("own", "workers", told(worker(running=2, running_tasks={"a": 1, "b": 1})))

    assert merged == told(worker(running=3, running_tasks={"a": 2, "b": 1}, server="own"))


def test_a_remote_worker_is_at_the_server_that_it_polls(live: LiveFigures) -> None:
    live.merge("other", "workers", told(worker(relayed=False)))

    merged = live.merge("own", "workers", told(worker(relayed=True, running=1)))
    moved = live.merge("own", "workers", told(worker(relayed=False, running=1)))

    servers = [each["workers"][0]["server"] for each in (merged, moved) if each is not None]
    assert servers == ["other", "own"]


def test_a_worker_that_one_server_still_knows_is_not_gone(live: LiveFigures) -> None:
    live.merge("other", "workers", told(worker(running=1), worker("v")))
    live.merge("own", "workers", told(worker(running=2)))

    left = live.merge("other", "workers", told(gone=["w", "v"]))
    gone = live.merge("own", "workers", told(gone=["w"]))

    assert left == told(worker(running=2, server="own"), gone=["v"])
    assert gone == told(gone=["w"])


def test_each_server_has_own_workers_of_the_same_name(live: LiveFigures) -> None:
    local = worker("local", kind="server")
    live.merge("other", "workers", told(local | {"running": 1}))

    merged = live.merge("own", "workers", told(local))
    left = live.merge("other", "workers", told(gone=["local"]))

    assert merged == told(local | {"server": "own"})
    assert left == told()


def test_a_worker_is_connected_and_healthy_if_it_is_for_one_server(live: LiveFigures) -> None:
    live.merge("other", "workers", told(worker()))

    away = live.merge("own", "workers", told(worker(state="disconnected", health="it is away")))
    silent = live.merge("own", "workers", told(worker(health="it does not poll")))

    assert away == told(worker(server="other"))
    assert silent == told(worker(server="own"))


def test_the_slots_of_a_remote_worker_count_once_if_all_workers_are_known(
    live: LiveFigures,
) -> None:
    for server in ("other", "own"):
        live.workers.note(server, [worker(runs=[]), worker("local", kind="server", runs=[])])
    live.merge("own", "workers", told(worker("v", slots=2), worker("u", state="draining")))
    live.merge("other", "tick", tick({"slots": 8}, slots=8))

    merged = live.merge("own", "tick", tick({"slots": 14}, slots=14))

    assert merged is not None
    assert merged["slots"] == merged["figures"]["slots"] == 4 + 2 * 4 + 2


def test_the_slots_of_more_workers_than_are_told_are_added_up(live: LiveFigures) -> None:
    many = [worker(f"w{n}", runs=[]) for n in range(WORKERS_MAX + 1)]
    for server in ("other", "own"):
        live.workers.note(server, many)
    live.merge("other", "tick", tick(slots=300))

    merged = live.merge("own", "tick", tick(slots=200))

    assert merged is not None
    assert merged["slots"] == 500


def test_the_slots_are_added_up_when_workers_come_that_are_not_told(live: LiveFigures) -> None:
    few, more = ([worker(f"{name}{n}", runs=[]) for n in range(40)] for name in "ab")
    for server in ("other", "own"):
        live.workers.note(server, few)
    live.merge("other", "tick", tick(slots=320))
    live.merge("own", "workers", told(*more[: WORKERS_MAX - 40]))  # and there are 16 others

    merged = live.merge("own", "tick", tick(slots=320))

    assert merged is not None
    assert merged["slots"] == 640


def test_a_worker_of_a_server_of_the_version_before_is_of_the_kind_that_its_list_says(
    live: LiveFigures,
) -> None:
    old = worker(running=1)
    del old["kind"]
    for server in ("other", "third"):
        live.workers.note(server, [worker(runs=[])])
    live.merge("other", "workers", told(old))

    merged = live.merge("third", "workers", told(old))

    assert merged == told(worker(running=2, server="third"))


def test_what_an_event_told_of_a_worker_is_newer_than_the_list(live: LiveFigures) -> None:
    live.merge("other", "workers", told(worker(running=3)))
    live.workers.note("other", [worker(running=1, runs=[])])

    merged = live.merge("own", "workers", told(worker(running=1)))

    assert merged == told(worker(running=4, server="own"))

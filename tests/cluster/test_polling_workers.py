"""A gateway forgets a worker that has sent it no request for an hour."""

from __future__ import annotations

import pytest

from schedo.cluster import polling_workers
from schedo.cluster.polling_worker import Place
from schedo.cluster.polling_workers import KEPT_S, PollingWorkers
from tests.cluster.conftest import Cluster
from tests.cluster.workers import HandWorker, result


class Known:
    """The workers of a gateway, at an instant that a test says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.workers = PollingWorkers(lambda: self.now)

    def ask(self, name: str, *elsewhere: str) -> None:
        """Carry a request out after which the worker runs these leases of other servers."""
        worker = self.workers.note_request(name)
        worker.elsewhere.update(dict.fromkeys(elsewhere, Place()))
        self.workers.forget_if_done(worker)


def test_a_worker_that_runs_nothing_for_other_servers_is_forgotten_at_once() -> None:
    known = Known()

    known.ask("w")

    assert "w" not in known.workers


def test_a_worker_that_runs_something_for_another_server_is_known_as_long_as_it_may_live() -> None:
    known = Known()
    known.ask("w", "a lease")

    known.now = KEPT_S
    known.ask("other")
    assert "w" in known.workers

    known.now = 2 * KEPT_S
    known.ask("other")
    assert "w" not in known.workers


def test_a_worker_that_asks_again_is_known_for_longer() -> None:
    known = Known()
    known.ask("w", "a lease")
    known.now = KEPT_S
    known.ask("w", "a lease")

    known.now = 2 * KEPT_S
    known.ask("other")

    assert "w" in known.workers


async def test_a_worker_of_which_only_other_servers_have_asked_is_forgotten() -> None:
    known = Known()
    known.workers.doubt("w", 2)

    known.now = 2 * KEPT_S
    known.workers.doubt("other", 2)

    assert "w" not in known.workers


async def test_workers_that_end_through_another_gateway_are_forgotten(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    known = second.router._gateway._workers
    names = [f"pod-{number}" for number in range(3)]
    for name in names:
        worker = HandWorker(name, slots=1)
        polling = worker.begin_poll(second)
        await first.submit(task="demo")
        lease = (await polling)["leases"][0]["lease"]
        await worker.poll(first, results=[result(lease)], draining=True)
    assert all(name in known for name in names)
    waiting = HandWorker("waits").begin_poll(second)
    monkeypatch.setattr(polling_workers, "KEPT_S", 0.0)
    monkeypatch.setattr(polling_workers, "LOOK_S", 0.0)

    while "waits" not in known:
        await second.engine.flush()
    await HandWorker("other").poll(second)

    assert [name for name in (*names, "waits") if name in known] == ["waits"]
    waiting.cancel()

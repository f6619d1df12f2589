"""How many jobs of an application's tasks the child processes of a server run at once."""

from __future__ import annotations

import pytest

from schedo.config import Config
from schedo.server.start import Start
from schedo.server.workers import make_pool_settings


@pytest.mark.parametrize("processes", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("concurrency", [1, 2, 8, 100])
def test_the_slots_of_all_processes_add_up_to_the_concurrency(
    processes: int, concurrency: int
) -> None:
    config = Config(processes=processes, concurrency=concurrency, async_concurrency=0)

    made = make_pool_settings(config, Start())
    slots = [made.slots_of(place) for place in range(1, made.processes + 1)]

    assert sum(plain for plain, _ in slots) == concurrency
    assert all(plain >= 1 and async_ == 0 for plain, async_ in slots)


def test_each_process_has_a_slot_of_each_kind_where_async_tasks_have_their_own() -> None:
    config = Config(processes=3, concurrency=2, async_concurrency=1_000)

    made = make_pool_settings(config, Start())

    assert [made.slots_of(place) for place in (1, 2, 3)] == [(1, 334), (1, 333), (1, 333)]

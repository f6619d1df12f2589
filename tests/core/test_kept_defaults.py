"""The defaults of a task while no worker that has it is there."""

from __future__ import annotations

import pytest

from schedo.core import worker_pool
from schedo.core.model import Options
from schedo.core.worker_pool import WorkerPool
from tests.core.builders import worker_spec


def test_the_defaults_of_a_worker_that_has_left_count_until_another_one_has_the_task() -> None:
    workers = WorkerPool()
    workers.attach(
        worker_spec("a", tasks=frozenset({"mail"}), task_defaults={"mail": Options(timeout_us=5)})
    )
    workers.detach("a")
    assert workers.task_defaults("mail") == Options(timeout_us=5)

    workers.attach(worker_spec("b", tasks=frozenset({"mail"})))
    assert workers.task_defaults("mail") is None
    workers.detach("b")
    assert workers.task_defaults("mail") is None


def test_the_kept_defaults_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "DEFAULTS_KEPT_MAX", 2)
    workers = WorkerPool()
    defaults = {name: Options(timeout_us=5) for name in ("first", "second", "third")}
    workers.attach(worker_spec("a", task_defaults=defaults))

    workers.detach("a")

    assert [workers.task_defaults(name) is None for name in defaults] == [True, False, False]

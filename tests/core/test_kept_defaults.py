"""The defaults of a task while no worker that has it is there."""

from __future__ import annotations

import pytest

from schedo.core import worker_pool
from schedo.core.commands import AttachWorker
from schedo.core.job_maker import TASK_RETRY
from schedo.core.model import ONCE, Options
from schedo.core.worker_pool import WorkerPool
from tests.core.builders import T0, make_spec, worker_spec
from tests.core.remote_site import Site


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


def test_a_job_that_is_made_before_a_worker_returns_has_the_defaults_of_the_server() -> None:
    site = Site()
    spec = worker_spec("a", tasks=frozenset({"mail"}), task_defaults={"mail": Options(retry=ONCE)})
    early = site.submit(make_spec("mail"))

    site.apply(AttachWorker(spec), T0)

    late = site.submit(make_spec("mail"))
    found = [site.job(each.id).options.retry for each in (early, late)]
    assert found == [TASK_RETRY, ONCE]

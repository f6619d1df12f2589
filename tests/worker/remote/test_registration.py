"""The description of a worker, and the values that it refuses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import schedo
from schedo.core.model import Options, Retry
from schedo.errors import Invalid
from schedo.protocol.work import read_worker_name
from schedo.worker.remote.registration import Registration, make_name


def rendered(
    registration: Registration, tasks: list[str], defaults: dict[str, Options]
) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(registration.render(tasks, defaults))
    return told


def test_the_description_of_the_worker_is_part_of_every_request() -> None:
    offer = Registration(
        name="gpu-1",
        slots=4,
        queues=["a", "b"],
        labels={"region": "eu", "vram": 40},
        resources={"cpu": "4", "memory": "8GiB", "disk": 0},
        session_timeout_s=5.0,
    )

    told = rendered(offer, ["http", "resize"], {"resize": Options(timeout_us=30_000_000)})

    session = told.pop("session")
    assert len(session) == 16
    assert told == {
        "protocol": 1,
        "worker": "gpu-1",
        "version": schedo.__version__,
        "tasks": ["http", "resize"],
        "isolated_tasks": ["http"],
        "slots": 4,
        "session_timeout": 5.0,
        "queues": ["a", "b"],
        "labels": {"region": "eu", "vram": "40"},
        "resources": {"cpu": 4, "memory": 8_589_934_592},
        "task_defaults": {"resize": {"timeout": "30s"}},
    }


def test_a_task_without_options_has_no_defaults() -> None:
    offer = Registration(name="w1")

    told = rendered(offer, ["a", "b"], {"a": Options(), "b": Options(retry=Retry(1))})

    assert list(told["task_defaults"]) == ["b"]
    assert "queues" not in told


def test_each_description_of_a_worker_has_a_new_session() -> None:
    offer = Registration(name="w1")

    assert offer.render([], {}).session != offer.render([], {}).session


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an empty name": ({"name": ""}, "a worker's name is"),
    "a name with a space": ({"name": "my worker"}, "a worker's name is"),
    "the server's own name": ({"name": "embedded"}, "the server uses itself"),
    "a child's name": ({"name": "process-1"}, "the server uses itself"),
    "no slots": ({"slots": 0}, "1 to 10000"),
    "a short silence": ({"session_timeout_s": 1.0}, "5 s to 1 h"),
    "a queue": ({"queues": ["a b"]}, "queue 'a b'"),
    "a label": ({"labels": {"a b": "c"}}, "label/a b"),
    "a resource": ({"resources": {"cpu": "many"}}, "resource/cpu"),
}


@pytest.mark.parametrize(("fields", "reason"), WRONG.values(), ids=list(WRONG))
def test_a_bad_description_of_a_worker_is_refused_with_its_field(
    fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Invalid) as caught:
        Registration(**{"name": "w1", **fields}).render([], {})

    assert reason in str(caught.value)


def test_the_default_name_of_a_worker_is_valid() -> None:
    assert read_worker_name("", make_name()) == make_name()

"""GET /v1/names."""

from __future__ import annotations

from schedo.core.worker_pool import WorkerSpec
from tests.factories import make_spec
from tests.web.world import World


async def test_all_names_that_the_server_knows_are_listed(world: World) -> None:
    world.engine.attach(WorkerSpec("gpu-1", 1, frozenset({"resize", "crop"})), world.worker)
    await world.engine.put_schedule(make_spec(name="nightly"))
    await world.submit(queue="mail", tags=["red", "blue"])
    await world.engine.flush()

    reply = await world.get("/v1/names")

    assert reply.json() == {
        "queues": ["mail"],
        "tasks": ["crop", "http", "resize", "shell"],
        "schedules": ["nightly"],
        "workers": ["gpu-1"],
        "tags": ["blue", "red"],
    }


async def test_names_that_have_not_changed_are_not_sent_again(world: World) -> None:
    first = await world.get("/v1/names")
    tag = first.headers["etag"]

    again = await world.get("/v1/names", [("if-none-match", tag)])
    await world.submit(queue="mail")
    changed = await world.get("/v1/names", [("if-none-match", tag)])

    assert (again.status, again.body) == (304, b"")
    assert "content-length" not in again.headers
    assert again.headers["etag"] == tag
    assert changed.status == 200
    assert changed.headers["etag"] != tag

"""The pauses of the whole server: requests, and where they are shown."""

from __future__ import annotations

import pytest

from tests.web.world import World


async def test_a_pause_stops_starts_and_fires_until_the_resume(world: World) -> None:
    world.attach_worker()
    answer = await world.post("/v1/server:pause", {"note": "moving"})
    job = await world.submit()
    await world.engine.flush()

    paused = answer.json()["pauses"]
    assert [(each["scope"], each["note"], each["until"]) for each in paused] == [
        ("starts", "moving", None),
        ("schedules", "moving", None),
    ]
    assert (await world.get("/v1/info")).json()["pauses"] == paused
    why = (await world.get(f"/v1/jobs/{job['id']}/why")).json()
    assert "the server is paused (moving)" in str(why)
    assert (await world.post("/v1/server:resume", {})).json() == {"pauses": []}
    assert (await world.get("/v1/info")).json()["pauses"] == []


async def test_a_paused_server_is_ready_and_says_that_it_is_paused(world: World) -> None:
    await world.post("/v1/server:pause", {"scopes": ["starts"], "note": "moving"})

    ready = await world.get("/readyz")
    metrics = (await world.get("/metrics")).body.decode()

    assert ready.status == 200
    assert ready.json()["notes"] == [
        "the server is paused: starts (moving); schedo resume ends that"
    ]
    assert 'schedo_paused{scope="starts"} 1' in metrics
    assert 'schedo_paused{scope="schedules"} 0' in metrics


async def test_a_pause_may_have_an_end(world: World) -> None:
    body = {"scopes": ["starts", "starts"], "duration": "2h"}
    answer = (await world.post("/v1/server:pause", body)).json()

    [pause] = answer["pauses"]
    assert pause["until"] > pause["since"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"scopes": []}, "/scopes"),
        ({"scopes": ["queues"]}, "/scopes/0"),
        ({"until": "2001-01-01T00:00Z"}, "/until"),
        ({"until": "2099-01-01T00:00Z", "duration": "2h"}, "/until"),
        ({"duration": "0s"}, "/duration"),
    ],
)
async def test_a_pause_that_makes_no_sense_is_refused(
    world: World, body: object, pointer: str
) -> None:
    answer = await world.post("/v1/server:pause", body)

    assert answer.status == 422
    assert [each["pointer"] for each in answer.json()["errors"]] == [pointer]


async def test_a_queue_is_paused_with_a_note_and_an_end(world: World) -> None:
    world.attach_worker()
    body = {"note": "moving", "until": "2026-11-20T13:00:00Z"}
    paused = (await world.post("/v1/queues/mail:pause", body)).json()
    job = await world.submit(queue="mail")
    await world.engine.flush()

    assert paused["paused"]
    assert paused["pause"] == {
        "since": "2026-11-20T11:04:05.000000Z",
        "note": "moving",
        "until": "2026-11-20T13:00:00.000000Z",
    }
    why = (await world.get(f"/v1/jobs/{job['id']}/why")).json()["why"]
    assert "queue mail is paused (moving) until 2026-11-20T13:00:00Z" in why
    resumed = (await world.post("/v1/queues/mail:resume")).json()
    assert not resumed["paused"]
    assert "pause" not in resumed


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"until": "2001-01-01T00:00Z"}, "/until"),
        ({"until": "2099-01-01T00:00Z", "duration": "2h"}, "/until"),
        ({"duration": "0s"}, "/duration"),
        ({"note": "x" * 501}, "/note"),
        ({"scopes": ["starts"]}, "/scopes"),
    ],
)
async def test_a_pause_of_a_queue_that_makes_no_sense_is_refused(
    world: World, body: object, pointer: str
) -> None:
    answer = await world.post("/v1/queues/mail:pause", body)

    assert answer.status == 422
    assert [each["pointer"] for each in answer.json()["errors"]] == [pointer]
    assert (await world.get("/v1/queues")).json()["items"] == []


async def test_the_notes_of_a_paused_server_have_its_end(world: World) -> None:
    body = {"scopes": ["starts"], "note": "moving", "until": "2026-11-20T13:00:00Z"}
    await world.post("/v1/server:pause", body)

    assert (await world.get("/readyz")).json()["notes"] == [
        "the server is paused: starts (moving) until 2026-11-20T13:00:00Z; schedo resume ends that"
    ]

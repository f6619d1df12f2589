"""Batches, idempotency keys, and the refusal of tasks that no worker runs."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import orjson
import pytest

from schedo.core.states import State
from schedo.errors import Invalid
from schedo.web.settings import WebSettings
from tests.store.steps import all_jobs
from tests.web.world import World, secured


async def count_jobs(world: World) -> int:
    return len(await all_jobs(world.store))


async def test_a_batch_has_a_result_for_each_item_in_order(world: World) -> None:
    reply = await world.post(
        "/v1/jobs:batch",
        [{"task": "a"}, {"task": "../x"}, {}, {"task": "b", "delay": "1h"}, "no", None],
    )

    items = reply.json()["items"]
    assert reply.status == 200
    assert [item["status"] for item in items] == [201, 422, 422, 201, 422, 422]
    assert items[0]["job"]["task"] == "a"
    assert items[1]["problem"]["errors"][0]["pointer"] == "/task"
    assert items[3]["job"]["state"] == "scheduled"
    assert await count_jobs(world) == 2


async def test_one_bad_job_among_a_thousand_is_the_only_one_refused(world: World) -> None:
    jobs: list[object] = [{"task": "a"} for _ in range(999)]
    jobs.insert(500, {"task": "a", "priority": 10})

    items = (await world.post("/v1/jobs:batch", jobs)).json()["items"]

    assert [n for n, item in enumerate(items) if item["status"] != 201] == [500]
    assert await count_jobs(world) == 999


async def test_a_batch_may_have_one_job_on_each_line(world: World) -> None:
    body = b'{"task":"a"}\n\n{"task":"b","payload":"one\\ntwo"}\r\n'

    reply = await world.send("POST", "/v1/jobs:batch", body, content_type="application/x-ndjson")

    assert [item["job"]["task"] for item in reply.json()["items"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{}", "invalid"),
        (b'"x"', "invalid"),
        (b"", "bad-json"),
        (b"[", "bad-json"),
        (b'[{"task":"a","task":"b"}]', "bad-json"),
        (b"[" + b"1," * 1_000 + b"1]", "too-large"),
    ],
)
async def test_an_invalid_batch_is_refused_as_a_whole(world: World, body: bytes, code: str) -> None:
    headers = [("content-type", "application/json"), ("content-length", str(len(body)))]

    reply = await world.send("POST", "/v1/jobs:batch", body, headers, content_type=None)

    assert reply.code == code


async def test_a_line_that_is_no_json_refuses_the_batch_and_names_the_line(world: World) -> None:
    reply = await world.send(
        "POST", "/v1/jobs:batch", b'{"task":"a"}\n{"task"', content_type="application/x-ndjson"
    )

    assert reply.code == "bad-json"
    assert "value 2" in reply.json()["detail"]
    assert await count_jobs(world) == 0


@pytest.mark.parametrize("body", [b'[{"task":"a"}]', b" \n[]", b"[" + b'"x",' * 100_000 + b"1]"])
async def test_a_batch_that_is_sent_as_one_job_is_refused_with_the_operation_for_batches(
    world: World, body: bytes
) -> None:
    reply = await world.send("POST", "/v1/jobs", body)

    assert (reply.status, reply.code) == (422, "invalid")
    assert reply.json()["detail"] == (
        "the request: Expected object, got array; POST /v1/jobs:batch takes an array of jobs"
    )


@pytest.mark.parametrize("body", [b'"[x]"', b"1"])
async def test_another_value_in_place_of_a_job_is_refused_without_that_advice(
    world: World, body: bytes
) -> None:
    reply = await world.send("POST", "/v1/jobs", body)

    assert (reply.status, reply.code) == (422, "invalid")
    assert "batch" not in reply.json()["detail"]


async def test_an_array_that_is_no_json_is_refused_for_its_syntax(world: World) -> None:
    reply = await world.send("POST", "/v1/jobs", b'[{"task":"a"}')

    assert (reply.status, reply.code) == (400, "bad-json")


async def test_an_empty_batch_has_an_empty_result(world: World) -> None:
    assert (await world.send("POST", "/v1/jobs:batch", b"[]")).json() == {"items": []}


async def test_refused_jobs_among_many_are_named_by_their_position(world: World) -> None:
    jobs: list[dict[str, Any]] = [{"task": f"task{n}", "payload": {"n": n}} for n in range(350)]
    jobs[0] = {"task": "a", "priority": 10}
    jobs[199] = {"task": "-"}
    jobs[300] = {"task": "a", "payload": orjson.loads("[" * 62 + "]" * 62)}

    items = (await world.post("/v1/jobs:batch", jobs)).json()["items"]

    assert [n for n, item in enumerate(items) if item["status"] != 201] == [0, 199]
    assert items[0]["problem"]["errors"][0]["pointer"] == "/priority"
    assert items[199]["problem"]["errors"][0]["pointer"] == "/task"
    assert [items[n]["job"]["task"] for n in (1, 198, 300, 349)] == [
        "task1",
        "task198",
        "a",
        "task349",
    ]
    assert items[300]["job"]["payload"] == jobs[300]["payload"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b'{"task":"a","task":"b"}', "the key 'task' occurs twice"),
        (b'{"task":"a","payload":9223372036854775808}', "does not fit into 64 bits"),
        (b'{"task":"a","payload":"\\u0000"}', "U+0000"),
        (b'{"task":"a","payload":' + b"[" * 64 + b"]" * 64 + b"}", "deeper than 64 levels"),
    ],
    ids=["twice", "long", "null", "deep"],
)
async def test_one_bad_job_among_many_refuses_the_batch_and_is_named(
    world: World, bad: bytes, reason: str
) -> None:
    jobs = [b'{"task":"a"}'] * 350
    jobs[249] = bad

    reply = await world.send("POST", "/v1/jobs:batch", b"[%b]" % b",".join(jobs))

    assert reply.code == "bad-json"
    assert reply.json()["detail"].startswith("value 250: ")
    assert reason in reply.json()["detail"]
    assert await count_jobs(world) == 0


@pytest.mark.parametrize("preference", ["return=minimal", "wait=5, Return=Minimal; a=b"])
async def test_a_minimal_response_has_only_what_names_the_jobs(
    world: World, preference: str
) -> None:
    jobs = [
        {"task": "a", "payload": "x" * 9_000},
        {"task": "b", "queue": "q", "delay": "1h", "unique": "k"},
        {"task": "c", "unique": "k"},
        {"task": "-"},
    ]

    items = (await world.post("/v1/jobs:batch", jobs, [("Prefer", preference)])).json()["items"]

    ids = [item["job"].pop("id") for item in items[:3]]
    assert ids[1] == ids[2]
    assert [item.get("job") for item in items] == [
        {"state": "queued", "task": "a", "queue": "default"},
        {"state": "scheduled", "task": "b", "queue": "q"},
        {"state": "scheduled", "task": "b", "queue": "q", "conflict": True},
        None,
    ]
    assert [item["status"] for item in items] == [201, 201, 200, 422]


async def test_a_repeated_batch_gets_the_first_response_whatever_it_prefers(world: World) -> None:
    minimal = [("Prefer", "return=minimal")]
    jobs = [{"task": "a", "payload": "x" * 9_000}]

    first = await world.post("/v1/jobs:batch", jobs, KEY + minimal)
    again = await world.post("/v1/jobs:batch", jobs, KEY)

    assert again.body == first.body
    assert again.headers["idempotency-replayed"] == "true"


@pytest.mark.parametrize("preference", ["return=representation", "respond-async", ""])
async def test_another_preference_changes_nothing(world: World, preference: str) -> None:
    reply = await world.post("/v1/jobs:batch", [{"task": "a"}], [("Prefer", preference)])

    assert reply.json()["items"][0]["job"]["attempt"] == 0


async def test_a_large_payload_is_returned_in_the_result_of_a_batch(world: World) -> None:
    items = (await world.post("/v1/jobs:batch", [{"task": "a", "payload": "x" * 9_000}])).json()

    assert items["items"][0]["job"]["payload"] == "x" * 9_000


KEY = [("Idempotency-Key", '"key-1"')]


async def test_the_same_key_and_body_get_the_same_response_and_make_one_job(world: World) -> None:
    first = await world.post("/v1/jobs", {"task": "a", "delay": 60}, KEY)
    second = await world.send(
        "POST", "/v1/jobs", b' {"delay": 60, "task": "a"}', [("idempotency-key", "key-1")]
    )

    assert (second.status, second.body) == (201, first.body)
    assert second.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert second.headers["location"] == first.headers["location"]
    assert await count_jobs(world) == 1


async def test_the_same_key_with_another_body_is_refused(world: World) -> None:
    await world.post("/v1/jobs", {"task": "a"}, KEY)

    reply = await world.post("/v1/jobs", {"task": "b"}, KEY)

    assert (reply.status, reply.code) == (422, "idempotency-mismatch")
    assert await count_jobs(world) == 1


async def test_a_key_whose_first_request_is_in_progress_is_refused(world: World) -> None:
    first, second = await asyncio.gather(
        world.post("/v1/jobs", {"task": "a"}, KEY), world.post("/v1/jobs", {"task": "a"}, KEY)
    )

    assert first.status == 201
    assert (second.status, second.code) == (409, "idempotency-in-progress")
    assert await count_jobs(world) == 1


async def test_an_idempotency_key_is_valid_for_one_operation(world: World) -> None:
    single = await world.post("/v1/jobs", {"task": "a"}, KEY)
    batch = await world.post("/v1/jobs:batch", [{"task": "a"}], KEY)
    again = await world.post("/v1/jobs:batch", [{"task": "a"}], KEY)

    assert (single.status, batch.status) == (201, 200)
    assert again.body == batch.body
    assert await count_jobs(world) == 2


async def test_the_same_idempotency_key_of_another_client_is_another_key() -> None:
    tokens = ("token-a", "token-b")
    async with World(secured(*tokens)) as world:
        for name in tokens:
            headers = [*KEY, ("authorization", f"Bearer {name}")]
            assert (await world.post("/v1/jobs", {"task": name}, headers)).status == 201


async def test_a_refused_request_does_not_use_up_its_idempotency_key(world: World) -> None:
    assert (await world.post("/v1/jobs", {"task": "-"}, KEY)).status == 422
    assert (await world.post("/v1/jobs", {"task": "a"}, KEY)).status == 201


async def test_a_repeated_submit_with_a_wait_waits_for_the_same_job(world: World) -> None:
    first = await world.post("/v1/jobs?wait=0", {"task": "a", "delay": 60}, KEY)
    await world.post(f"/v1/jobs/{first.json()['id']}:cancel")

    second = await world.post("/v1/jobs?wait=0", {"task": "a", "delay": 60}, KEY)

    assert (first.status, second.status) == (202, 200)
    assert second.json()["id"] == first.json()["id"]
    assert second.json()["state"] == State.CANCELLED


@pytest.mark.parametrize("key", ["", '""', "x" * 256, "a\tb", "caf\u00e9"])
async def test_a_bad_idempotency_key_is_refused(world: World, key: str) -> None:
    reply = await world.post("/v1/jobs", {"task": "a"}, [("idempotency-key", key)])

    assert reply.code == "bad-request"


async def test_two_idempotency_keys_are_refused(world: World) -> None:
    assert (await world.post("/v1/jobs", {"task": "a"}, [*KEY, *KEY])).code == "bad-request"


SHELL = {"task": "shell", "payload": {"command": "id"}}


async def test_without_allow_shell_no_operation_makes_a_shell_job() -> None:
    async with World(WebSettings()) as world:
        job = await world.post("/v1/jobs", SHELL)
        batch = await world.post("/v1/jobs:batch", [SHELL, {"task": "a"}])
        schedule = await world.put("/v1/schedules/s", {**SHELL, "every": "1m"})
        short = await world.post("/schedule", {"command": "id"})

        for reply in (job, schedule, short):
            assert (reply.status, reply.code) == (403, "shell-disabled")
        assert [item["status"] for item in batch.json()["items"]] == [403, 201]
        assert batch.json()["items"][0]["problem"]["code"] == "shell-disabled"
        assert await count_jobs(world) == 1
        assert (await world.get("/v1/schedules")).json()["items"] == []


async def test_a_payload_that_its_task_cannot_run_is_refused_at_the_submit() -> None:
    def check(payload: bytes) -> None:
        if "url" not in orjson.loads(payload):
            raise Invalid.field("/payload/url", "this field is required")

    async with World(WebSettings(payload_checks={"http": check})) as world:
        reply = await world.post("/v1/jobs", {"task": "http", "payload": {"method": "GET"}})
        batch = await world.post("/v1/jobs:batch", [{"task": "http", "payload": {"a": 1}}])
        schedule = await world.put(
            "/v1/schedules/s", {"task": "http", "payload": {"a": 1}, "every": 60}
        )

        assert reply.json()["errors"] == [
            {"pointer": "/payload/url", "detail": "this field is required"}
        ]
        assert batch.json()["items"][0]["status"] == 422
        assert schedule.code == "invalid"
        assert await count_jobs(world) == 0


async def test_the_errors_of_refused_jobs_are_freed(world: World) -> None:
    gc.collect()
    gc.disable()
    try:
        before = count_errors()
        reply = await world.post("/v1/jobs:batch", [{"task": "a", "x": 1}] * 500)
        assert [item["status"] for item in reply.json()["items"]] == [422] * 500
        kept = count_errors() - before
    finally:
        gc.enable()

    assert kept == 0


def count_errors() -> int:
    return sum(isinstance(each, Invalid) for each in gc.get_objects())

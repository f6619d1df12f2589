"""Lists of schedules over HTTP: how their runs ended, their health, and searches."""

from __future__ import annotations

import pytest

from schedo.core.changes import Changes
from schedo.core.leases import AttemptResult, Completed, Failed
from schedo.core.model import Failure
from schedo.core.run_history import EndedRun
from schedo.core.states import State
from schedo.protocol.times import parse_instant, render_instant
from schedo.store.sqlite import schedule_search
from schedo.web.handlers import schedules
from tests.stores import needs_sqlite
from tests.web.world import SECOND, T0, World

DAILY = {"cron": "30 9 * * mon-fri", "tz": "Europe/Paris", "task": "report"}


async def end_run(world: World, name: str, outcome: Completed | Failed) -> str:
    """Trigger the schedule, let the run end, and return its job's id."""
    job = (await world.post(f"/v1/schedules/{name}:trigger", {})).json()["job"]
    await world.engine.flush()  # a turn that starts the run
    world.engine.report(AttemptResult(world.worker.leases[-1].key, outcome))
    await world.engine.flush()
    return str(job["id"])


async def test_a_schedule_shows_how_its_runs_ended(world: World) -> None:
    world.attach_worker()
    await world.put("/v1/schedules/daily", {**DAILY, "retry": 1})

    first = await end_run(world, "daily", Completed())
    failure = Failure("exit-code", "x" * 600, exit_code=3)
    world.clock.stall(SECOND)
    second = await end_run(world, "daily", Failed(failure))

    runs = (await world.get("/v1/schedules/daily")).json()["runs"]
    assert runs == {
        "completed": 1,
        "failed": 1,
        "cancelled": 0,
        "expired": 0,
        "failed_in_row": 1,
        "last": [
            {
                "job": second,
                "state": "failed",
                "ended_at": "2026-11-20T11:04:06.000000Z",
                "duration": "0s",
                "scheduled_for": "2026-11-20T11:04:06.000000Z",
            },
            {
                "job": first,
                "state": "completed",
                "ended_at": "2026-11-20T11:04:05.000000Z",
                "duration": "0s",
                "scheduled_for": "2026-11-20T11:04:05.000000Z",
            },
        ],
        "last_completed_at": "2026-11-20T11:04:05.000000Z",
        "last_failure": {
            "job": second,
            "at": "2026-11-20T11:04:06.000000Z",
            "type": "exit-code",
            "message": "x" * 500,
        },
    }
    assert (await world.put("/v1/schedules/daily", DAILY)).json()["runs"] == runs


async def test_failing_schedules_are_listed_alone(world: World) -> None:
    world.attach_worker()
    for name in ("a", "b", "c"):
        await world.put(f"/v1/schedules/{name}", {**DAILY, "retry": 1})
    await end_run(world, "a", Completed())
    await end_run(world, "b", Failed(Failure("lost", "")))

    reply = await world.get("/v1/schedules?failing=true&limit=1")

    assert [each["name"] for each in reply.json()["items"]] == ["b"]
    assert len((await world.get("/v1/schedules?failing=false")).json()["items"]) == 3
    refused = await world.get("/v1/schedules?failing=yes")
    assert refused.status == 400
    assert "failing: this must be one of true, false" in refused.json()["detail"]


async def names_of(world: World, query: str) -> list[str]:
    reply = await world.get(f"/v1/schedules?{query}")
    assert reply.status == 200, reply.json()
    return [each["name"] for each in reply.json()["items"]]


async def test_schedules_are_listed_by_their_health_and_counted(world: World) -> None:
    world.attach_worker()
    await world.put("/v1/schedules/ended", {"task": "mail", "at": "2020-01-01T00:00:00Z"})
    await world.put("/v1/schedules/failing", {**DAILY, "retry": 1, "paused": True})
    await world.put("/v1/schedules/held", {**DAILY, "paused": True})
    late = {"every": "1m", "task": "nobody", "expect": {"within": "30s"}}
    await world.put("/v1/schedules/late", late)
    await world.put("/v1/schedules/well", DAILY)
    await end_run(world, "failing", Failed(Failure("lost", "")))
    await world.clock.run_until(world.engine, T0 + 100 * SECOND)
    await world.engine.flush()

    shown = {
        each["name"]: each["health"] for each in (await world.get("/v1/schedules")).json()["items"]
    }

    assert shown == {
        "ended": "ended",
        "failing": "failing",
        "held": "paused",
        "late": "overdue",
        "well": "ok",
    }
    for name, health in shown.items():
        assert await names_of(world, f"health={health}") == [name]
    assert await names_of(world, "failing=true") == ["failing"]
    assert await names_of(world, "paused=true") == ["failing", "held"]
    assert await names_of(world, "paused=false&q=E") == ["ended", "late", "well"]
    first = (await world.get("/v1/schedules?limit=2&q=l")).json()
    counts = {"total": 5, "overdue": 1, "failing": 1, "paused": 1, "ended": 1}
    assert first["counts"] == counts
    rest = (await world.get(f"/v1/schedules?limit=2&q=l&cursor={first['next_cursor']}")).json()
    assert "counts" not in rest


async def test_schedules_are_found_by_words_in_the_name_the_task_and_the_queue(
    world: World,
) -> None:
    await world.put("/v1/schedules/mail.daily", DAILY)
    await world.put("/v1/schedules/report", {**DAILY, "task": "send_mail"})
    await world.put("/v1/schedules/backup", {**DAILY, "queue": "mail"})
    await world.put("/v1/schedules/other", {**DAILY, "payload": {"to": "mail"}})

    assert await names_of(world, "q=MAIL") == ["backup", "mail.daily", "report"]
    assert await names_of(world, "q=daily%20%20mail") == ["mail.daily"]
    assert await names_of(world, "q=nowhere") == []


@needs_sqlite
async def test_a_search_among_many_schedules_ends_its_page_and_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "SEARCH_S", 0)
    monkeypatch.setattr(schedule_search, "STEP_S", 0)
    monkeypatch.setattr(schedule_search, "LOOKED_AT_ONCE", 2)
    for number in range(5):
        await world.put(f"/v1/schedules/s{number}", DAILY)

    first = (await world.get("/v1/schedules?q=s4")).json()
    second = (await world.get(f"/v1/schedules?q=s4&cursor={first['next_cursor']}")).json()
    third = (await world.get(f"/v1/schedules?q=s4&cursor={second['next_cursor']}")).json()

    assert (first["items"], first["looked_at"]) == ([], 2)
    assert second["items"] == []
    assert [each["name"] for each in third["items"]] == ["s4"]
    assert "next_cursor" not in third


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("paused=1", "paused: this must be one of true, false"),
        ("health=bad", "health: this must be one of overdue, failing, paused, ended, ok"),
        ("q=", "q: give 1 to 200 characters"),
        ("task=a", "task: there is no such parameter here"),
    ],
)
async def test_a_filter_of_schedules_that_cannot_be_read_is_refused(
    world: World, query: str, detail: str
) -> None:
    reply = await world.get(f"/v1/schedules?{query}")

    assert reply.status == 400
    assert detail in reply.json()["detail"]


async def test_the_median_run_is_that_of_the_last_completed_runs(world: World) -> None:
    world.attach_worker()
    await world.put("/v1/schedules/daily", {**DAILY, "retry": 1})
    assert "median_run" not in (await world.get("/v1/schedules/daily")).json()
    schedule = await world.engine.get_schedule("daily")
    runs = [
        EndedRun(schedule.id, number, state, T0, took, None)
        for number, (state, took) in enumerate(
            [
                (State.COMPLETED, 3 * SECOND),
                (State.FAILED, 90 * SECOND),
                (State.COMPLETED, 1 * SECOND),
                (State.CANCELLED, None),
                (State.COMPLETED, 2 * SECOND),
            ]
        )
    ]
    await world.engine.store.commit(Changes(ended_runs=runs))

    assert (await world.get("/v1/schedules/daily")).json()["median_run"] == "2s"


async def test_a_list_shows_only_the_fields_of_schedules_that_are_asked_for(world: World) -> None:
    await world.put("/v1/schedules/daily", DAILY)
    whole = (await world.get("/v1/schedules")).json()

    page = (await world.get("/v1/schedules?fields=name,next_fires,expect")).json()

    [schedule] = whole["items"]
    assert page["items"] == [{name: schedule[name] for name in ("name", "next_fires")}]
    assert page["counts"] == whole["counts"]


async def test_an_unknown_field_of_a_schedule_is_named(world: World) -> None:
    reply = await world.get("/v1/schedules?fields=name,taks")

    assert reply.status == 400
    assert reply.json()["errors"] == [
        {"parameter": "fields", "detail": "a schedule has no field 'taks'; did you mean task?"}
    ]


@pytest.mark.parametrize("ahead_s", [-90_000, -60, 0, 1, 59, 60, 100_000])
async def test_the_next_fires_are_those_of_the_rule_wherever_the_clock_is(
    world: World, ahead_s: int
) -> None:
    rule = {"cron": "* * * * *", "task": "report", "paused": True}
    await world.put("/v1/schedules/minutely", rule)
    world.clock.stall(ahead_s * SECOND)
    await world.post("/v1/schedules/minutely:resume", {})

    [schedule] = (await world.get("/v1/schedules")).json()["items"]

    after = render_instant(max(world.engine.clock.now(), T0))
    fires = (await world.get(f"/v1/schedules/minutely/fires?from={after}")).json()["items"]
    assert (
        schedule["next_fires"]
        == [fire["at"] for fire in fires if parse_instant(fire["at"]) > parse_instant(after)][:5]
    )

"""Requests whose jobs must be in certain shards, while these get another owner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from schedo.core.changes import Changes, IdempotencyRecord
from schedo.core.commands import DeclareSchedules
from schedo.core.expectation_table import DeclareExpectations
from schedo.core.expectations import ExpectationSpec
from schedo.core.limits import MINUTE
from schedo.core.model import Expect
from schedo.core.shards import shard_of
from schedo.engine.call_results import Accepted
from schedo.errors import StoreError, Unavailable
from tests.core.builders import every, make_schedule_spec
from tests.engine.test_ownership import sharing
from tests.engine.world import T0, Answers, spec
from tests.passes import one_pass


def expect(name: str) -> ExpectationSpec:
    return ExpectationSpec(name, every(3_600), Expect(within_us=MINUTE))


@pytest.mark.parametrize("fails", [False, True])
async def test_a_request_whose_home_moves_while_it_waits_makes_no_job(
    path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    async with sharing(path) as (world, shards):
        home = shard_of("one")
        submits: list[asyncio.Task[Answers]] = []

        async def change() -> None:
            submit: Callable[..., Coroutine[Any, Any, Answers]] = world.engine.submit
            submits.append(asyncio.create_task(submit([spec()], home_shards=[home])))
            await one_pass()
            await one_pass()  # its turn puts it off
            shards.mine.discard(home)
            shards.given.clear()
            if fails:
                raise StoreError("the session has ended")

        monkeypatch.setattr(shards, "change_shards", change)
        shards.given = {home}
        shards.on_due()

        while not submits:
            await one_pass()
        with pytest.raises(Unavailable, match="has just moved"):
            await submits[0]
        await world.engine.flush()
        assert not world.worker.leases


async def test_a_job_of_a_limited_queue_that_the_server_makes_itself_needs_no_certain_shard(
    path: Path,
) -> None:
    async with sharing(path) as (world, shards):
        await world.engine.change_queue("one", concurrency=1)
        shards.mine.discard(shard_of("one"))
        submits: list[asyncio.Future[object]] = []

        async def change() -> None:
            submits.append(asyncio.ensure_future(world.submit(queue="one")))
            await one_pass()

        await world.engine._loop.restart(change)

        assert await submits[0]


async def test_a_request_whose_home_has_moved_makes_no_job(path: Path) -> None:
    async with sharing(path) as (world, shards):
        shards.mine.discard(7)

        with pytest.raises(Unavailable, match="has just moved"):
            await world.engine.submit([spec()], home_shards=[7])
        answers: Answers = await world.engine.submit([spec()], home_shards=[8])

        assert isinstance(answers[0], Accepted)


async def test_what_is_put_under_a_name_whose_shard_has_moved_is_refused(path: Path) -> None:
    async with sharing(path) as (world, shards):
        shards.mine.discard(shard_of("moved"))
        engine = world.engine
        schedule, expectation = make_schedule_spec("moved"), expect("moved")
        puts: list[Callable[[], Coroutine[Any, Any, object]]] = [
            partial(engine.put_schedule, schedule),
            partial(engine.declarations.put, DeclareSchedules("cli", [schedule])),
            partial(engine.expectations.put, expectation),
            partial(engine.expectations.declare, DeclareExpectations("cli", [expectation])),
        ]

        for put in puts:
            with pytest.raises(Unavailable, match="has just moved"):
                await put()

        assert not await world.store.get_schedule("moved")
        assert (await engine.put_schedule(make_schedule_spec("own")))[0].id


async def test_a_look_up_of_a_key_sees_what_another_server_has_done_meanwhile(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sharing(path) as (world, shards):
        record = IdempotencyRecord("scope", b"fingerprint", 201, b"{}", T0)
        store, restart = world.engine.store, world.engine._loop.restart
        find, answers = store.find_idempotency_record, list[IdempotencyRecord | None]()

        async def find_late(scope: str, fingerprint: bytes) -> IdempotencyRecord | None:
            answers.append(found := await find(scope, fingerprint))
            if len(answers) > 1:
                return found
            shards.given = {7}
            await restart(shards.change_shards)
            await store.commit(Changes(idempotency_records=[record]))  # by the owner of that time
            shards.mine.add(7)
            await restart(shards.change_shards)
            return found

        monkeypatch.setattr(store, "find_idempotency_record", find_late)

        assert await world.engine.find_response("scope", b"fingerprint") == record
        assert answers == [None, record]

"""What the error of a request whose store has failed says of the effect of the request."""

from __future__ import annotations

import pytest

from schedo.engine.failures import interrupted
from schedo.engine.waiters import after_job_is_made
from schedo.errors import SchedoError, StoreError, StoreRefused, StoreUnsuitable, Unavailable
from schedo.web.context import AppContext
from schedo.web.handler_table import HANDLERS
from schedo.web.holding import NothingChanged
from schedo.web.http import Request, Response
from tests.web.world import World


def job_is_made() -> SchedoError:
    """Return the error of a wait for a job that was made."""
    with pytest.raises(StoreError) as caught, after_job_is_made():
        raise Unavailable("the server has stopped")
    return caught.value


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (StoreError("away"), "away; the change may or may not have been carried out"),
        (StoreUnsuitable("away"), "away; the change may or may not have been carried out"),
        (interrupted(StoreError("away")), "away; the change may or may not be durable"),
        (StoreRefused("odd; nothing was written"), "odd; nothing was written"),
        (
            job_is_made(),
            "the job was made, but its end is not known here: the server has stopped",
        ),
    ],
    ids=str,
)
async def test_a_change_without_its_store_is_answered_with_what_is_known_of_it(
    monkeypatch: pytest.MonkeyPatch, error: SchedoError, detail: str
) -> None:
    async def fail(site: AppContext, request: Request) -> Response:
        await site.engine.flush()
        raise error

    monkeypatch.setitem(HANDLERS, "pause_queue", fail)
    async with World() as world:
        reply = await world.post("/v1/queues/mail:pause", None)

    assert (reply.status, reply.code) == (503, "outcome-unknown")
    assert reply.json()["detail"] == detail


@pytest.mark.parametrize(
    "error", [StoreError("away"), StoreUnsuitable("away"), NothingChanged(StoreError("away"), b"")]
)
async def test_a_request_that_has_sent_nothing_to_the_engine_has_changed_nothing(
    monkeypatch: pytest.MonkeyPatch, error: SchedoError
) -> None:
    async def fail(site: AppContext, request: Request) -> Response:
        raise error

    monkeypatch.setitem(HANDLERS, "pause_queue", fail)
    async with World() as world:
        await world.post("/v1/queues/mail:resume", None)  # this is another request
        reply = await world.post("/v1/queues/mail:pause", None)

    assert (reply.status, reply.code) == (503, "unavailable")
    assert reply.json()["detail"] == "away; this request has changed nothing, so send it again"


async def test_a_submit_while_the_store_is_known_to_be_away_has_changed_nothing() -> None:
    async with World() as world:
        world.engine._loop.failure = StoreError("away")
        reply = await world.post("/v1/jobs", {"task": "a"})
        world.engine._loop.failure = None

    assert (reply.status, reply.code) == (503, "unavailable")
    assert reply.json()["detail"] == "away; this request has changed nothing, so send it again"

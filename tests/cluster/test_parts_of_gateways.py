"""A part of a worker's request, at the server that its gateway takes for the owner of the jobs."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import msgspec
import pytest

from schedo.cluster.client_request import NOT_OWNER, ClientRequest
from schedo.cluster.work_parts import PartResponse, WorkerRequest, read_response
from schedo.web.context import AppContext
from schedo.web.http import Response
from tests.cluster.conftest import Cluster
from tests.cluster.workers import result

MOVED, GIVEN = "0CRAAAE7DYK81.1.9", "0CRAAAE7DYK91.1.10"


class Part(NamedTuple):
    """What PartsOfGateways needs of a ClientRequest, with the response to it."""

    context: AppContext
    request: Any
    answer: PartResponse

    async def here(self) -> Response:
        return Response(200, msgspec.json.encode(self.answer))


async def respond(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], **fields: Any
) -> Response:
    """Return the response to a part about a lease whose job moves while it is carried out."""
    first = cluster[1]
    parts = first.router._gateway._parts
    owned = [{MOVED}, set[str]()]  # before, and afterwards

    async def find_owned(leases: Sequence[str]) -> set[str]:
        return owned.pop(0)

    monkeypatch.setattr(parts._owners, "find_owned", find_owned)
    shown = {"protocol": 1, "epoch": 1, "stop": [], "heartbeat": 10, "session_timeout": 30}
    whole = {"leases": [], "revoked": [], "refused": [], "drain": False, **shown, **answer}
    answered = read_response(msgspec.json.encode(whole))
    part = Part(first.app.context, SimpleNamespace(id="r"), answered)
    body = msgspec.json.encode({"worker": "w", "max_leases": 0, **fields})
    return await parts.respond(cast(ClientRequest, part), WorkerRequest(body))


async def test_a_lease_beside_the_denial_of_one_that_has_just_moved_reaches_the_worker(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"leases": [{"lease": GIVEN}], "revoked": [MOVED]}

    response = await respond(cluster, monkeypatch, answer, running=[MOVED])

    assert response.status == 200
    found = read_response(response.body)
    assert (found.new_leases, found.denied) == ([GIVEN], [])


async def test_a_part_with_the_result_of_a_job_that_has_just_moved_is_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = {"lease": MOVED, "status": 409, "code": "stale-lease", "detail": "it is not held"}

    response = await respond(cluster, monkeypatch, {"refused": [refused]}, results=[result(MOVED)])

    assert (response.status, (NOT_OWNER, b"1") in response.headers) == (503, True)


class Unsearchable(list[str]):
    """Leases of a large request, which no one may search one by one."""

    def __contains__(self, lease: object) -> bool:
        raise AssertionError("a search for each lease takes seconds with 10,000 of them")


def test_a_part_is_made_without_a_search_for_each_lease() -> None:
    request = WorkerRequest(msgspec.json.encode({"worker": "w", "running": [MOVED, GIVEN]}))

    part = request.make_part(Unsearchable([GIVEN]))

    assert msgspec.json.decode(part)["running"] == [GIVEN]

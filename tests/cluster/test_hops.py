"""What a server believes of a request that says it comes from another server."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec import structs

from schedo.cluster.hops import Hop, Signer, find_target
from schedo.core.limits import MINUTE, SECOND
from schedo.errors import Unauthorized, Unavailable
from schedo.protocol.roles import Role
from schedo.web.permissions import ANYONE, TokenPermission
from tests.cluster.conftest import Cluster
from tests.cluster.members import KEY, running_cluster
from tests.cluster.test_forwarding import text_of
from tests.web.world import T0, secured

BOB = TokenPermission(Role.OPERATOR, "bob", queues=frozenset({"mail"}), tasks=None)
SCOPE = {"method": "GET", "path": "/v1/jobs", "query_string": b"limit=1"}


def make_hop(permission: TokenPermission | None = BOB, at: int = T0) -> Hop:
    return Hop("forward", at, "GET", "/v1/jobs?limit=1", "c", "r-1", "10.0.0.9", permission)


def headers_of(hop: Hop, key: bytes = KEY) -> dict[bytes, bytes]:
    return {name.encode(): text.encode() for name, text in Signer(key).sign(hop).items()}


@pytest.mark.parametrize("permission", [BOB, None, TokenPermission(Role.VIEWER, "v", None, None)])
def test_a_signed_request_has_the_rights_that_the_first_server_found(
    permission: TokenPermission | None,
) -> None:
    hop = make_hop(permission)

    assert Signer(KEY).check(headers_of(hop), SCOPE, T0) == hop


def test_a_client_of_a_server_without_tokens_stays_that() -> None:
    assert Signer(KEY).check(headers_of(make_hop(ANYONE)), SCOPE, T0).permission is ANYONE


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({b"schedo-hop": b"1"}, "for servers of this cluster"),
        ({b"schedo-client": b"."}, "for servers of this cluster"),
        ({b"schedo-client": "é.é".encode("latin-1")}, "for servers of this cluster"),
        (headers_of(make_hop(), b"x" * 32), "for servers of this cluster"),
    ],
)
def test_a_forged_signature_is_refused(headers: dict[bytes, bytes], why: str) -> None:
    with pytest.raises(Unauthorized, match=why):
        Signer(KEY).check(headers, SCOPE, T0)


@pytest.mark.parametrize(
    ("at", "why"),
    [(T0 - MINUTE - SECOND, "61 s ahead of that"), (T0 + MINUTE + SECOND, "61 s behind that")],
)
def test_a_request_of_a_server_whose_clock_is_far_off_can_be_sent_again(at: int, why: str) -> None:
    with pytest.raises(Unavailable, match=f"{why} of the server .* synchronise them"):
        Signer(KEY).check(headers_of(make_hop(at=at)), SCOPE, T0)


def test_a_request_that_only_a_later_version_knows_can_be_sent_again() -> None:
    later = structs.replace(make_hop(), purpose=cast("Any", "borrow"))

    with pytest.raises(Unavailable, match=r"'borrow'.*upgrade this one"):
        Signer(KEY).check(headers_of(later), SCOPE, T0)


@pytest.mark.parametrize("other", [{"method": "POST"}, {"path": "/v1/log"}, {"query_string": b""}])
def test_a_signature_is_good_for_one_request_only(other: dict[str, object]) -> None:
    with pytest.raises(Unauthorized, match="for another request"):
        Signer(KEY).check(headers_of(make_hop()), SCOPE | other, T0)


def test_a_changed_permission_breaks_the_signature() -> None:
    text, _, _ = headers_of(make_hop(ANYONE))[b"schedo-client"].partition(b".")
    _, _, mac = headers_of(make_hop())[b"schedo-client"].partition(b".")

    with pytest.raises(Unauthorized):
        Signer(KEY).check({b"schedo-client": text + b"." + mac}, SCOPE, T0)


def test_the_target_keeps_what_a_path_may_have() -> None:
    scope = {"path": "/v1/jobs/0AB:cancel", "query_string": b"a=%20b"}

    assert find_target(scope) == "/v1/jobs/0AB:cancel?a=%20b"
    assert find_target({"path": "/v1/workers/ä b", "query_string": b""}) == (
        "/v1/workers/%C3%A4%20b"
    )


async def test_a_client_cannot_speak_for_another_server(cluster: Cluster) -> None:
    _, first, _ = cluster
    forged = [("schedo-hop", "1"), ("schedo-client", "eyJ9.abc")]

    reply = await first.get("/v1/jobs", forged)

    assert (reply.status, reply.code) == (401, "unauthorized")


async def test_a_server_alone_ignores_the_headers(cluster: Cluster) -> None:
    _, first, _ = cluster
    context = first.app.context
    context.cluster = context.credentials.peers = None

    assert (await first.get("/v1/jobs", [("schedo-hop", "1")])).status == 200


async def test_a_forwarded_request_needs_the_token_of_the_client_only_once() -> None:
    async with running_cluster(2, secured("secret")) as (_, (first, second)):
        token = [("authorization", "Bearer secret")]
        job = {"task": "demo", "unique": text_of(first)}

        refused = await second.post("/v1/jobs", job)
        made = await second.post("/v1/jobs", job, token)
        log = await second.post(f"/v1/jobs/{made.json()['id']}:cancel", None, token)
        logged = (await first.get("/v1/log", token)).json()["items"]

    assert [refused.status, made.status, log.status] == [401, 201, 200]
    assert [(each["who"], each["action"]) for each in logged] == [("admin", "cancel_job")]


async def test_a_request_that_was_forwarded_once_is_not_forwarded_again(cluster: Cluster) -> None:
    _, first, second = cluster
    hop = Hop("forward", first.engine.clock.now(), "POST", "/v1/jobs", "c", "r-1", "", ANYONE)
    signed = [*Signer(KEY).sign(hop).items()]

    reply = await first.post("/v1/jobs", {"task": "demo", "unique": text_of(second)}, signed)

    assert (reply.status, reply.code) == (503, "unavailable")
    assert reply.headers["schedo-not-owner"] == "1"
    assert reply.headers["x-request-id"] == "r-1"

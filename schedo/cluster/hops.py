"""A request that one server of a cluster sends to another one, and the proof that it did.

The header `schedo-hop` says that a request comes from another server, and `schedo-client` says for
whom: it has the rights that the first server has found, and a signature. Its key is made from the
random key in the database, so only servers of the cluster can sign. The receiver sends no such
request on, so none goes round in a circle.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Literal, NamedTuple
from urllib.parse import quote

import msgspec
from starlette.types import Scope

from schedo.core.limits import MINUTE, SECOND
from schedo.errors import Unauthorized, Unavailable
from schedo.protocol.roles import Role
from schedo.web.elsewhere import CLIENT, HOP
from schedo.web.permissions import ANYONE, TokenPermission

# forward: the receiver answers in place of the first server, and refuses what it does not own.
# confirm: a part of a request that another server carries out for the whole cluster. The receiver
#     follows a change, makes the jobs of a broadcast for its own workers, changes its jobs of an
#     operation, or lists its remote workers.
# work: a part of the request of a worker, which polls the first server (see gateway.py).
# surplus: a question for jobs that no worker of the receiver has room for (see surplus.py).
# recall: a worker whose gateway polls the receiver wants no more jobs, or has not got some leases
#     (see relayed_polls.py).
# why: a question for what keeps a job from the workers that poll the receiver (worker_reasons.py).
# served: a question which jobs the workers that poll the receiver could run (unserved.py).
# lists: a request to hear what workers run when they poll the receiver (unheard_workers.py).
Purpose = Literal["forward", "confirm", "work", "surplus", "recall", "why", "served", "lists"]
_KEY_PURPOSE = b"what one server of a cluster sends to another one"
_AGE_US_MAX = MINUTE  # by the clocks of two servers


class Hop(msgspec.Struct, frozen=True):
    """What a server signs when it sends a request to another one: the request and its client."""

    purpose: Purpose
    at: int  # when it was sent
    method: str
    target: str  # path and query
    client_id: str
    request_id: str
    address: str  # of the client
    permission: TokenPermission | None
    home_shard: int | None = None  # whose owner the receiver must be


class OwnRequest(NamedTuple):
    """A request that a server sends by itself, and not for a client."""

    method: str
    target: str
    id: str
    permission: TokenPermission
    body: bytes = b""


OWN_PERMISSION = TokenPermission(Role.ADMIN, "cluster")  # of requests that no client has sent

NOT_SIGNED = "the header schedo-hop is for servers of this cluster, which sign it"
_DECODER = msgspec.json.Decoder(Hop)


class Signer:
    """Signs the hops of this server, and checks those of the others."""

    def __init__(self, key: bytes) -> None:
        """key: the random key that all servers of the cluster read in the database."""
        self._key = hmac.digest(key, _KEY_PURPOSE, "sha256")

    def sign(self, hop: Hop) -> dict[str, str]:
        """Return the headers of a request to another server."""
        text = base64.urlsafe_b64encode(msgspec.json.encode(hop)).decode()
        return {HOP.decode(): "1", CLIENT.decode(): f"{text}.{self._mac(text)}"}

    def check(self, headers: Mapping[bytes, bytes], scope: Scope, now: int) -> Hop:
        """Return what another server says of a request; raise Unauthorized if it did not sign.

        Raise Unavailable for a request that only a later version understands, and if the clocks
        of the two servers differ by more than a minute.
        """
        text, _, mac = headers.get(CLIENT, b"").decode("latin-1").rpartition(".")
        if not hmac.compare_digest(self._mac(text).encode(), mac.encode()):
            raise Unauthorized(NOT_SIGNED)
        try:
            hop = _DECODER.decode(base64.urlsafe_b64decode(text))
        except msgspec.ValidationError as error:  # not 4xx: a worker would drop its results
            raise Unavailable(
                "another server of the cluster sends what this version of schedo does not know"
                f" ({error}); upgrade this one, too"
            ) from error
        if abs(now - hop.at) > _AGE_US_MAX:
            raise Unavailable(
                f"the clock of this server is {abs(now - hop.at) / SECOND:.0f} s"
                f" {'ahead of' if now > hop.at else 'behind'} that of the server that has sent the"
                " request; from a minute on they refuse each other's requests: synchronise them"
            )
        if (hop.method, hop.target) != (scope["method"], find_target(scope)):
            raise Unauthorized("another server has signed this for another request")
        # The handlers know by identity whether a server has tokens at all.
        return msgspec.structs.replace(hop, permission=ANYONE) if hop.permission == ANYONE else hop

    def _mac(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


def find_target(scope: Scope) -> str:
    """Return the path of a request below the server's prefix, and its query."""
    query: bytes = scope["query_string"]
    path = quote(scope["path"], safe="/:@!$&'()*+,;=~-._")
    return f"{path}?{query.decode('latin-1')}" if query else path


class RemoteClient:
    """Stands for the transport of a request that came to another server first."""

    def __init__(self, address: str) -> None:
        self._address = address

    def get_extra_info(self, name: str) -> object:
        """Return the address of the client as a transport does; nothing else is known."""
        return (self._address, 0) if name == "peername" and self._address else None

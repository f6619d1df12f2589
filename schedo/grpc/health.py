"""The health check of gRPC (grpc.health.v1), which Kubernetes and load balancers call.

Its two messages are so small that they are compared and written as bytes.
"""

from __future__ import annotations

from schedo.grpc.requests import Caller
from schedo.grpc.status import Code, fail

HEALTH_PATH = "/grpc.health.v1.Health/Check"
_SERVICE = b"schedo.v1.Schedo"
_KNOWN = (b"", b"\x0a" + bytes((len(_SERVICE),)) + _SERVICE)  # the field `service`, or none
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"  # the field `status`
_READY = 200


async def answer_health(caller: Caller, data: bytes | None) -> bytes:
    """Return whether the server is ready, as GET /readyz says; raise CallFailed for NOT_FOUND."""
    if data not in _KNOWN:
        raise fail(Code.NOT_FOUND, "there is no such service")
    answer = await caller.ask("GET /readyz")
    return _SERVING if answer.status == _READY else _NOT_SERVING

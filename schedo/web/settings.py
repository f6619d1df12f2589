"""The settings of the HTTP side, as the composition root makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from schedo.web.permissions import WorkerPermission

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True)
class WebSettings:
    """Access, hosts and permitted work."""

    token_sha256: Sequence[bytes] | None = (
        None  # SHA-256 of each valid token; None: no token needed
    )
    worker_tokens: Mapping[bytes, WorkerPermission] = field(default_factory=dict)  # by SHA-256
    allowed_hosts: Sequence[str] = (
        LOOPBACK_HOSTS  # names for the Host header, without port; "*" allows any
    )
    permissions: AbstractSet[str] = frozenset()  # of this server's own worker, see BuiltInTask
    # By task: raises Invalid if the task cannot run the payload.
    payload_checks: Mapping[str, Callable[[bytes], object]] = field(default_factory=dict)
    version: str = "0"

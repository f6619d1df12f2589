"""The settings of the HTTP side, as the composition root makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from schedo.core.lateness import OBJECTIVE_US
from schedo.protocol.public_url import PublicUrl
from schedo.protocol.roles import Role
from schedo.web.permissions import ANYONE, TokenPermission

if TYPE_CHECKING:
    import ssl

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")


class Tls(NamedTuple):
    """A certificate and its key, ready for use; digest: the SHA-256 of their files.

    grpc: for the gRPC port, if there is one.
    """

    context: ssl.SSLContext
    digest: bytes
    grpc: ssl.SSLContext | None = None


@dataclass(frozen=True, slots=True)
class WebSettings:
    """Access, hosts and permitted work."""

    tokens: Mapping[bytes, TokenPermission] = field(default_factory=dict)  # by SHA-256
    anyone: TokenPermission | None = ANYONE  # without a token; None: a token is needed
    allowed_hosts: Sequence[str] = (
        LOOPBACK_HOSTS  # names for the Host header, without port; "*" allows any
    )
    permissions: AbstractSet[str] = frozenset()  # of this server's own worker, see BuiltInTask
    # By task: raises Invalid if the task cannot run the payload.
    payload_checks: Mapping[str, Callable[[bytes], object]] = field(default_factory=dict)
    public_url: PublicUrl | None = None
    version: str = "0"
    tls: Tls | None = None  # for connections over TCP; None: they are not encrypted
    is_strict: bool = False  # refuse a task that no worker has offered
    lateness_objective_us: int = OBJECTIVE_US  # one of DURATION_BOUNDS_US

    @property
    def prefix(self) -> str:
        """The path in front of all addresses for browsers: empty, or such as /schedo."""
        return self.public_url.prefix if self.public_url is not None else ""

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach the server by TLS."""
        return self.public_url.is_secure if self.public_url is not None else self.tls is not None

    @property
    def has_login(self) -> bool:
        """Whether a token permits more than none."""
        return self.anyone is None or self.anyone.role is not Role.ADMIN

"""The messages of the control socket: JSON objects, each with its type in the field `type`.

The first message of a client is Hello, and the active server's first one is Welcome or Refused.
Then a standby asks for the listeners, reports its state, and pings; `schedo status` asks for the
status. Descriptors travel beside a message (SCM_RIGHTS), and only beside Listeners.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from schedo.errors import SchedoError
from schedo.handover.steps import Step

PROTOCOL = 1
MESSAGE_BYTES_MAX = 65_536
DESCRIPTORS_MAX = 16  # beside one message: a listener for each address of the host

ClientRole = Literal["standby", "observer", "operator", "successor", "predecessor"]


class BadMessage(SchedoError):
    """The peer sent something that is no message of the control socket."""

    code = "bad-message"


class UpgradeFailed(SchedoError):
    """The server was not replaced, and serves on."""

    code = "upgrade-failed"


class _Message(msgspec.Struct, frozen=True, tag_field="type", tag=str.lower):
    """What all messages share; unknown fields are those of a newer version."""


class Hello(_Message, frozen=True, kw_only=True):
    """A client introduces itself; schema: the newest schema of the store that it can open.

    store: the path of the database that the settings of a successor name. takes_grpc: a successor
    can tell the listeners of gRPC from the others; older versions get only the others. worker: the
    name by which a predecessor ends its attempts; older versions have that of their pid.
    """

    protocol: int = PROTOCOL
    role: ClientRole
    version: str
    schema: int
    pid: int
    store: str = ""
    takes_grpc: bool = False
    worker: str = ""


class Welcome(_Message, frozen=True, kw_only=True):
    """The active server introduces itself.

    schema: the oldest one whose schedo may open the store. takeovers: of the store so far.
    """

    protocol: int = PROTOCOL
    version: str
    schema: int
    pid: int
    epoch: int
    takeovers: int


class Refused(_Message, frozen=True):
    """The server closes the connection, for this reason."""

    reason: str


class GetListeners(_Message, frozen=True):
    """The client asks for the sockets on which the server listens; takes_grpc: as in Hello."""

    takes_grpc: bool = False


class Listeners(_Message, frozen=True):
    """The server's listening sockets are beside this message, in the order of the addresses.

    addresses: of those for HTTP, which come first. grpc: of those for gRPC.
    """

    addresses: list[str]
    grpc: list[str] = []


class Ping(_Message, frozen=True):
    """The server answers with a Pong of the same number from its event loop."""

    number: int


class Pong(_Message, frozen=True):
    """The response to a Ping."""

    number: int


class StandbyStatus(_Message, frozen=True, kw_only=True):
    """A standby's state; since and its durations are in the units of their names."""

    pid: int
    version: str
    since: str  # RFC 3339
    is_warm: bool
    warmed_ms: float | None = None  # how long that took
    kill_stuck_s: float | None = None  # None: it never kills the active server
    notes: list[str] = []


class LastTakeover(msgspec.Struct, frozen=True, kw_only=True):
    """The take-over by which the active server became active."""

    at: str  # RFC 3339
    was_killed: bool  # the server before did not stop in order
    took_ms: float  # from the lock to the first request that it could accept
    steps_ms: dict[str, float]


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """A passing of the store that is under way; step: the last one that the old process has done.

    pid: of the new process of an upgrade; None: the store passes to a standby.
    """

    step: Step
    pid: int | None


class GetStatus(_Message, frozen=True):
    """The client asks for the status."""


class Status(_Message, frozen=True, kw_only=True):
    """The active server and its standbys."""

    pid: int
    version: str
    epoch: int
    since: str  # RFC 3339
    store: str
    addresses: list[str]
    is_ready: bool
    reasons: list[str]
    takeovers: int
    last_takeover: LastTakeover | None
    standbys: list[StandbyStatus]
    handover: Handover | None = None  # None: the store stays with this server
    notes: list[str] = []  # such as a pause; those of /readyz


# An upgrade: an operator asks for it, and the server passes everything to a new process.


class Upgrade(_Message, frozen=True):
    """An operator asks the server to replace itself by a new process."""

    timeout_s: float  # within which the new process is ready


class Failed(_Message, frozen=True):
    """The upgrade has changed nothing, for this reason; the old process serves on."""

    reason: str


class Ready(_Message, frozen=True):
    """The new process can take the store at once."""


class Locks(_Message, frozen=True):
    """The descriptors of the store's two locks are beside this message."""

    takeovers: int  # of the store so far


class Frozen(_Message, frozen=True):
    """The old server has made its last commit and closed the store; worker: as in Hello.

    older: the pids of the processes that this one has replaced, and that may live, by such a name.
    """

    held_at: float  # time.monotonic() since when no server accepts requests
    worker: str = ""
    older: dict[str, int] = {}


class Activated(_Message, frozen=True, kw_only=True):
    """The new server is active; the durations are those of its take-over."""

    pid: int
    version: str
    epoch: int
    took_ms: float
    steps_ms: dict[str, float]


class ServeHttp(_Message, frozen=True):
    """A connection of the old process for HTTP is beside this message.

    is_trusted: its requests need no token, because they are those of the old process itself, as a
    worker; else each one is a client's, and has the token of the client.
    """

    is_trusted: bool


Message = (
    Hello
    | Welcome
    | Refused
    | GetListeners
    | Listeners
    | Ping
    | Pong
    | StandbyStatus
    | GetStatus
    | Status
    | Upgrade
    | Failed
    | Ready
    | Locks
    | Frozen
    | Activated
    | ServeHttp
)

_encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def encode(message: Message) -> bytes:
    """Return the message as JSON."""
    return _encode(message)


def decode(data: bytes) -> Message:
    """Return the message of its JSON; raise BadMessage if it is not one."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(f"this is no message of the control socket: {error}") from error

"""Everything schedo raises on purpose.

SchedoError
    NotFound              no such job, schedule, queue or task       404
    Conflict              the request contradicts the current state  409
        StaleLease        another attempt holds the job
        IllegalTransition that cannot follow the present state
        DuplicateKey      a job with this unique key is not finished
        KeyInProgress     the first request with this key still runs
        NoReservation     there is no such reservation (any more)
    Invalid               the request can never succeed              422
        KeyReused         the Idempotency-Key belongs to another one 422
        Unsatisfiable     no worker that is known could ever take it
        BadRequest        it cannot even be read                     400
            BadJson       its body is not the JSON that is accepted
    Unauthorized          the token is missing or wrong              401
    Forbidden             this server does not allow it              403
        ShellDisabled     it runs no commands
        CrossSite         another web site sent it
    MethodNotAllowed      the address exists, not with this method   405
    TooLarge              the body is larger than the limit          413
    UnsupportedMedia      the body is not in an accepted form        415
    Misdirected           the Host header is not one of this server  421
    Overloaded            a limit is reached, try later              429
    StoreError            the store failed; the outcome is unknown   503
        StoreFull         the disk is full                           507
        StoreRefused      no row takes a value of this commit
        StoreLocked       another server holds the store
        StoreUnsuitable   no store can be where it was asked for, or this version cannot read it
        StoreDamaged      a part of the store's files is missing or damaged
        StoreBroken       the disk failed; this process must end
    Unavailable           the server is starting or draining         503
        ServerBroken      the same bug comes again and again; this process must end
    NoCapacity            no worker takes it right now               503
    InvocationFailed      the worker took it, and it did not succeed 502
    InvocationTimeout     it has not ended yet                       504

Each class carries a stable `code` and the HTTP `status` it is answered with. A message is a
sentence with the values in it. Programmer errors are asserts and crash; only operating errors live
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class SchedoError(Exception):
    """The root of all that schedo raises on purpose."""

    code = "internal"
    status = 500


class NotFound(SchedoError):
    """There is no such job, schedule, queue or task."""

    code = "not-found"
    status = 404


class Conflict(SchedoError):
    """The request contradicts the current state."""

    code = "conflict"
    status = 409


class StaleLease(Conflict):
    """The result names an attempt that no longer holds the job."""

    code = "stale-lease"


class IllegalTransition(Conflict):
    """The job's present state does not allow that."""

    code = "illegal-transition"


class DuplicateKey(Conflict):
    """A job with this unique key exists already."""

    code = "duplicate-key"


class KeyInProgress(Conflict):
    """The first request with this Idempotency-Key has not been answered yet."""

    code = "idempotency-in-progress"


class WorkerReplaced(Conflict):
    """Another process works under this name now; this one must end or take another."""

    code = "worker-replaced"


class NoReservation(Conflict):
    """There is no such reservation: it was used, released or never made, or its time is up."""

    code = "no-reservation"


class Problem:
    """What is wrong with one field: `pointer` is a JSON Pointer into the request."""

    __slots__ = ("detail", "pointer")

    def __init__(self, pointer: str, detail: str) -> None:
        self.pointer = pointer
        self.detail = detail

    def __repr__(self) -> str:
        return f"Problem({self.pointer!r}, {self.detail!r})"


class Invalid(SchedoError):
    """The request can never succeed; its problems name the fields."""

    code = "invalid"
    status = 422

    def __init__(self, message: str, *problems: Problem) -> None:
        super().__init__(message)
        self.problems = problems

    @classmethod
    def field(cls, pointer: str, detail: str) -> Invalid:
        """Return an error about the single field at the JSON Pointer."""
        return cls(f"{pointer or 'the request'}: {detail}", Problem(pointer, detail))


class KeyReused(Invalid):
    """The Idempotency-Key was used before, with another request."""

    code = "idempotency-mismatch"


class Unsatisfiable(Invalid):
    """No worker that is known could ever take it, however free it was."""

    code = "unsatisfiable"


class BadRequest(Invalid):
    """The request cannot be read."""

    code = "bad-request"
    status = 400


class BadJson(BadRequest):
    """The body is not JSON, or JSON that is not accepted, such as duplicate keys."""

    code = "bad-json"


class Unauthorized(SchedoError):
    """The token is missing or wrong."""

    code = "unauthorized"
    status = 401


class Forbidden(SchedoError):
    """This server does not allow that."""

    code = "forbidden"
    status = 403


class ShellDisabled(Forbidden):
    """Nobody here runs commands; start the server, or a worker, with --allow-shell."""

    code = "shell-disabled"


class CrossSite(Forbidden):
    """Another web site sent this request through a browser."""

    code = "cross-site"


class MethodNotAllowed(SchedoError):
    """The address exists, but not with this method; `allow` lists those it has."""

    code = "method-not-allowed"
    status = 405

    def __init__(self, message: str, allow: str) -> None:
        super().__init__(message)
        self.allow = allow


class TooLarge(SchedoError):
    """The body is larger than the limit."""

    code = "too-large"
    status = 413


class UnsupportedMedia(SchedoError):
    """The body is not in a form that is accepted here."""

    code = "unsupported-media-type"
    status = 415


class Misdirected(SchedoError):
    """The Host header does not name this server."""

    code = "misdirected"
    status = 421


class Overloaded(SchedoError):
    """A limit is reached; try again after `retry_after_s` seconds."""

    code = "overloaded"
    status = 429

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StoreError(SchedoError):
    """The store failed; what was asked may or may not have happened."""

    code = "outcome-unknown"
    status = 503


class StoreFull(StoreError):
    """The disk has no room for another commit."""

    code = "storage-full"
    status = 507


class StoreRefused(StoreError):
    """The store cannot take a value, or a change of what it does not have: nothing was written.

    A bug, not the disk's failure. `jobs` says of each job that brought such a value what is wrong;
    it is empty if none of them did.
    """

    def __init__(self, message: str, jobs: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.jobs = dict(jobs or {})


class StoreLocked(StoreError):
    """Another server holds this store."""

    code = "store-locked"


class StoreUnsuitable(StoreError):
    """No store can be where it was asked for, or this version cannot read the one that is there."""


class StoreDamaged(StoreError):
    """The files are not what the last server left: starting with them would lose commits."""

    code = "store-damaged"


class StoreBroken(StoreError):
    """The disk failed under the store: end the process and start again, trust nothing in memory.

    After a failed fsync the same connection answers the next commit "OK", and the failed one may
    still come back, so going on would make promises that nobody can keep.
    """

    code = "store-broken"


class Unavailable(SchedoError):
    """The server is starting or draining; try again soon."""

    code = "unavailable"
    status = 503


class ServerBroken(Unavailable):
    """A bug came again after each recovery: end the process, a new one may do better."""


class NoCapacity(SchedoError):
    """No worker takes it right now; `rejected` counts why, of the `considered` workers."""

    code = "no-capacity"
    status = 503

    def __init__(
        self,
        message: str,
        considered: int = 0,
        rejected: Mapping[str, int] | None = None,
        retry_after_s: int = 1,
    ) -> None:
        super().__init__(message)
        self.considered = considered
        self.rejected = dict(rejected or {})
        self.retry_after_s = retry_after_s


class InvocationFailed(SchedoError):
    """A worker took the job at once, and it did not succeed there; `job` says why."""

    code = "invocation-failed"
    status = 502


class InvocationTimeout(SchedoError):
    """A worker took the job at once, but it has not ended within the time; it goes on."""

    code = "invocation-timeout"
    status = 504


class Exit(IntEnum):
    """How a process ended, for whoever started it: README.md has the same table."""

    DONE = 0, "Done."
    REFUSED = 1, "A server or a job said no, or no server could be reached."
    MISUSED = 2, "The command line or a setting is wrong."
    DAMAGED = 65, "A part of the store is missing or damaged: look at it before the next start."
    BROKEN = 70, "The disk failed or is full, or a bug came again and again: start it again."
    LOCKED = 73, "Another server holds the store: start it again when that one has ended."
    UNSUITABLE = 78, "The settings cannot work here: a directory, a port, an app or a store."

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Exit:
        """Return the code with its meaning."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member


def exit_of_server(error: Exception) -> Exit:
    """Return how a server ends that this error has ended or kept from starting."""
    codes: tuple[tuple[type[Exception], Exit], ...] = (
        (StoreDamaged, Exit.DAMAGED),
        (StoreLocked, Exit.LOCKED),
        (StoreUnsuitable, Exit.UNSUITABLE),
        (StoreError, Exit.BROKEN),
        (ServerBroken, Exit.BROKEN),
    )
    return next((code for kind, code in codes if isinstance(error, kind)), Exit.UNSUITABLE)

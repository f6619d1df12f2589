"""The errors that schedo raises on purpose, with their HTTP status.

SchedoError
    NotFound              no such job, schedule, queue or task       404
    Conflict              the request contradicts the current state  409
        StaleLease        another attempt holds the job
        IllegalTransition the job's state does not allow the change
        DuplicateKey      a job with this unique key is not finished
        KeyInProgress     the first request with this key still runs
        WorkerReplaced    another process uses this worker's name
        NoReservation     the reservation does not exist (any more)
    Invalid               the request can never succeed              422
        KeyReused         the Idempotency-Key was used for another request
        Unsatisfiable     no known worker could ever run the job
        BadRequest        the request cannot be parsed               400
            BadJson       the body is not JSON that schedo accepts
    Unauthorized          the token is missing or wrong              401
    Forbidden             this server does not allow it              403
        ShellDisabled     the server runs no commands
        CrossSite         another web site sent the request
    MethodNotAllowed      the address exists, not with this method   405
    TooLarge              the body is larger than the limit          413
    UnsupportedMedia      the body is not in an accepted form        415
    Misdirected           the Host header does not name this server  421
    Overloaded            a limit is reached, retry later            429
    StoreError            the store failed; the outcome is unknown   503
        StoreFull         the disk is full                           507
        StoreRefused      the commit has a value that no row can hold
        StoreLocked       another server holds the store
        StoreUnsuitable   the path cannot hold a store, or this version cannot read the store
        StoreBroken       the disk failed; this process must end
            StoreDamaged  a part of the store's files is missing or damaged
    Unavailable           the server is starting or draining         503
        PeerUnreachable   the server that owns the job is out of reach
        ServerBroken      a bug occurred again and again; this process must end
    NoCapacity            no worker has a free slot for it right now 503
    InvocationFailed      the job ran, and it did not succeed        502
    InvocationTimeout     the job has not ended yet                  504

Each class has a stable `code` and the HTTP `status` of its response. A message is a sentence that
contains the values. A bug of the program is an assertion and crashes; only operating errors have a
class here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class SchedoError(Exception):
    """The base class of all errors that schedo raises on purpose."""

    code = "internal"
    status = 500


class NotFound(SchedoError):
    """The job, schedule, queue or task does not exist."""

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
    """The job's current state does not allow the change."""

    code = "illegal-transition"


class DuplicateKey(Conflict):
    """An unfinished job with this unique key exists already."""

    code = "duplicate-key"


class KeyInProgress(Conflict):
    """The first request with this Idempotency-Key still runs."""

    code = "idempotency-in-progress"


class WorkerReplaced(Conflict):
    """Another process uses this worker's name now; this one must end or use another name."""

    code = "worker-replaced"


class NoReservation(Conflict):
    """The reservation does not exist: it was used, was released, has expired or was never made."""

    code = "no-reservation"


class Problem:
    """A problem with one field; `pointer` is a JSON Pointer into the request."""

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

    def under(self, pointer: str) -> Invalid:
        """Return the error about the same fields inside of the field at the JSON Pointer."""
        if not self.problems:
            return Invalid.field(pointer, str(self))
        below = [Problem(pointer + each.pointer, each.detail) for each in self.problems]
        return Invalid("; ".join(f"{each.pointer}: {each.detail}" for each in below), *below)


class KeyReused(Invalid):
    """The Idempotency-Key was used before with a different request."""

    code = "idempotency-mismatch"


class Unsatisfiable(Invalid):
    """No known worker could ever run the job, however many of its slots were free."""

    code = "unsatisfiable"


class BadRequest(Invalid):
    """The request cannot be parsed."""

    code = "bad-request"
    status = 400


class BadJson(BadRequest):
    """The body is not JSON, or is JSON that schedo rejects, such as duplicate keys."""

    code = "bad-json"


class Unauthorized(SchedoError):
    """The token is missing or wrong."""

    code = "unauthorized"
    status = 401


class Forbidden(SchedoError):
    """This server does not allow the request."""

    code = "forbidden"
    status = 403


class ShellDisabled(Forbidden):
    """No worker runs commands; start the server, or a worker, with --allow-shell."""

    code = "shell-disabled"


class CrossSite(Forbidden):
    """Another web site sent this request through a browser."""

    code = "cross-site"


class MethodNotAllowed(SchedoError):
    """The address does not support this method; `allow` lists the methods that it supports."""

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
    """The body has a media type or an encoding that the server does not accept."""

    code = "unsupported-media-type"
    status = 415


class Misdirected(SchedoError):
    """The Host header does not name this server."""

    code = "misdirected"
    status = 421


class Overloaded(SchedoError):
    """A limit is reached; retry after `retry_after_s` seconds."""

    code = "overloaded"
    status = 429

    def __init__(self, message: str, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StoreError(SchedoError):
    """The store or a server failed or stopped; the requested change may or may not be durable."""

    code = "outcome-unknown"
    status = 503


class StoreFull(StoreError):
    """The disk has no room for another commit."""

    code = "storage-full"
    status = 507


class StoreRefused(StoreError):
    """The commit has a value that no row can hold, or changes a row that does not exist.

    Nothing was written. The cause is a bug, not the disk. `jobs` has the error of each job that
    brought such a value; it is empty if no job did.
    """

    def __init__(self, message: str, jobs: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.jobs = dict(jobs or {})

    @classmethod
    def of_commit(cls, error: Exception, jobs: Mapping[int, str]) -> StoreRefused:
        """Return the refusal of a commit for this error of the database or of an encoder."""
        whose = f" in {len(jobs)} of its jobs" if jobs else ""
        reason = f"the store refuses a value of this commit{whose} ({error}); nothing was written"
        return cls(reason, jobs)


class StoreLocked(StoreError):
    """Another server holds this store."""

    code = "store-locked"


class StoreUnsuitable(StoreError):
    """The path cannot hold a store, or this version of schedo cannot read the store there."""


class StoreBroken(StoreError):
    """The disk failed under the store: the process must end, and nothing in memory can be trusted.

    After a failed fsync the same connection reports the next commit as successful, and the failed
    one may still reach the disk, so a server that goes on would acknowledge commits that it may
    lose.
    """

    code = "store-broken"


class StoreDamaged(StoreBroken):
    """A part of the store's files is missing or wrong, so another start cannot help."""

    code = "store-damaged"


class Unavailable(SchedoError):
    """The server starts, stops or has no store. Nothing was changed; retry soon."""

    code = "unavailable"
    status = 503


class PeerUnreachable(Unavailable):
    """Another server of the cluster must carry the request out, and cannot be reached."""

    code = "peer-unreachable"


class ServerBroken(Unavailable):
    """A bug occurred again after each recovery: the process must end, a new one may succeed."""


class NoCapacity(SchedoError):
    """No worker has a free slot for the job right now.

    `considered` is the number of workers; `rejected` counts those that were ruled out, by reason.
    """

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
    """The invoked job ran on a worker and did not succeed; the response's `job` has its error."""

    code = "invocation-failed"
    status = 502


class InvocationTimeout(SchedoError):
    """The invoked job did not end within the caller's timeout; it still runs."""

    code = "invocation-timeout"
    status = 504


def all_errors() -> dict[str, type[SchedoError]]:
    """Return the errors of this module by code; a code's class is the one nearest the root."""
    classes: dict[str, type[SchedoError]] = {}
    open_ends: list[type[SchedoError]] = [SchedoError]
    for kind in open_ends:
        if kind.__module__ == __name__:
            classes.setdefault(kind.code, kind)
        open_ends += kind.__subclasses__()
    return classes


class Exit(IntEnum):
    """The exit codes of all commands; README.md and docs/architecture.md have the same table."""

    DONE = 0, "Done."
    REFUSED = (
        1,
        "The server rejected the request, the job did not succeed, or no server could be reached.",
    )
    MISUSED = 2, "The command line or a setting is wrong."
    DIFFERENT = 3, "`schedo apply --diff`: the server differs from the files."
    DAMAGED = 65, "A part of the store is missing or damaged: inspect it before the next start."
    BROKEN = (
        70,
        "The disk failed or is full, the database is silent, or a bug occurred again and again:"
        " start the server again.",
    )
    LOCKED = 73, "Another server holds the store: start this one when the other has ended."
    UNSUITABLE = 78, "The settings cannot work here: a directory, a port, an app or a store."

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Exit:
        """Return the code with its meaning."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member


def exit_of_server(error: Exception) -> Exit:
    """Return the exit code of a server that this error ended or kept from starting."""
    codes: tuple[tuple[type[Exception], Exit], ...] = (
        (StoreDamaged, Exit.DAMAGED),
        (StoreLocked, Exit.LOCKED),
        (StoreUnsuitable, Exit.UNSUITABLE),
        (StoreError, Exit.BROKEN),
        (ServerBroken, Exit.BROKEN),
    )
    return next((code for kind, code in codes if isinstance(error, kind)), Exit.UNSUITABLE)

"""The messages of the worker protocol, POST /v1/work (docs/protocol.md), in both directions.

Only here unknown fields are ignored, so that a newer worker can speak to an older server, and an
older worker to a newer server. Known fields are checked as strictly as elsewhere. One bad field
refuses the whole request, and nothing in it takes effect. A null in a request counts as absent.
"""

from __future__ import annotations

import re
from typing import Annotated, Self, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import astuple

from schedo.core import limits
from schedo.core.model import LeaseKey, Options
from schedo.core.progress import ProgressUpdate
from schedo.core.value_limits import NOTE_CHARACTERS_MAX, fit_text
from schedo.core.worker_messages import PollRequest, PollResponse, Progress
from schedo.core.worker_pool import WorkerSpec
from schedo.errors import Invalid, SchedoError, StaleLease
from schedo.protocol import fields
from schedo.protocol.decode import UNDECODABLE
from schedo.protocol.fields import Duration, Name
from schedo.protocol.keep import KeepRequest, read_keep
from schedo.protocol.leases import (
    LeaseResponse,
    LeaseText,
    StopResponse,
    parse_lease,
    read_leases,
    render_lease,
    whole_seconds,
)
from schedo.protocol.options import (
    Delivery,
    EventJobRequest,
    TaskName,
    read_delivery,
    read_event_job,
)
from schedo.protocol.reading import Steps
from schedo.protocol.requirements import Labels, Resources, escape, read_amounts, read_labels
from schedo.protocol.results import ResultRequest, without_nul
from schedo.protocol.retries import PresetName, RetryCount, RetryRequest, read_retry, retry_request
from schedo.protocol.times import render_duration

PROTOCOL = 1
HEARTBEATS_PER_TIMEOUT = 3
NAMES_MAX = 1_000  # of tasks, and of queues
SLOTS_MAX = 10_000
ENTRIES_MAX = 1_000  # results, progress, offers in one request
WAIT_US_MAX = limits.MINUTE
SESSION_TIMEOUT_US = (5 * limits.SECOND, limits.HOUR)
SESSION_TIMEOUT_US_DEFAULT = 30 * limits.SECOND

_WORKER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_WORKER_RULE = (
    "a worker's name is 1 to 128 letters, digits, dots, underscores and hyphens, "
    "and begins with a letter or digit"
)
_OWN_WORKERS = frozenset({"embedded", "embedded-alone", "server", "local"})  # and process-*
T = TypeVar("T")

WorkerName = Annotated[
    str,
    Meta(
        description="1 to 128 letters, digits, dots, underscores and hyphens.",
        extra_json_schema={"pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"},
    ),
]
Names = Annotated[list[Name], Meta(max_length=NAMES_MAX)]
Percent = Annotated[float, Meta(ge=0, le=100)]
ByteCount = Annotated[int, Meta(ge=0, le=2**53, description="The length of a stream so far.")]


class TaskDefaultsRequest(Struct, omit_defaults=True):
    """Defaults of a task: for jobs that do not set these options."""

    retry: RetryRequest | RetryCount | PresetName | None = None
    timeout: Duration | None = None
    delivery: Delivery | None = None
    on_failure: EventJobRequest | TaskName | None = None
    keep: KeepRequest | None = None

    @classmethod
    def of(cls, options: Options) -> Self:
        """Return the options as a worker announces them."""
        on_failure = options.on_failure
        return cls(
            retry=None if options.retry is None else retry_request(options.retry),
            timeout=None if options.timeout_us is None else render_duration(options.timeout_us),
            delivery="at_most_once" if options.at_most_once else None,
            on_failure=None if on_failure is None else EventJobRequest.of(on_failure),
            keep=None if options.keep is None else KeepRequest.of(options.keep),
        )

    def to_options(self) -> Options:
        return Options(
            retry=read_retry(self.retry),
            timeout_us=fields.read_duration_or_none("/timeout", self.timeout, limits.MILLISECOND),
            at_most_once=read_delivery(self.delivery),
            on_failure=read_event_job("/on_failure", self.on_failure),
            keep=read_keep("/keep", self.keep),
        )


class ProgressRequest(Struct, omit_defaults=True):
    """The progress of a running attempt; long texts are cut."""

    lease: LeaseText
    percent: Percent | None = None
    message: str | None = None
    log: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    stdout_bytes: ByteCount | None = None
    stderr_bytes: ByteCount | None = None

    @classmethod
    def of(cls, key: LeaseKey, update: ProgressUpdate) -> Self:
        """Return the entry without U+0000, which the server refuses."""
        return cls(render_lease(key), *map(without_nul, astuple(update)))

    def read(self, pointer: str) -> Progress:
        """Return the progress, cut to the limits."""
        lease = parse_lease(self.lease, f"{pointer}/lease")
        update = ProgressUpdate(
            self.percent,
            self.message,
            self.log,
            self.stdout,
            self.stderr,
            self.stdout_bytes,
            self.stderr_bytes,
        )
        return Progress(lease, update.fit())


class RejectRequest(Struct, omit_defaults=True):
    """An offer that the worker rejects."""

    lease: LeaseText
    reason: str | None = None

    def read(self, pointer: str) -> tuple[LeaseKey, str]:
        """Return the lease and the reason."""
        lease = parse_lease(self.lease, f"{pointer}/lease")
        return lease, fit_text(self.reason or "", NOTE_CHARACTERS_MAX)


class WorkRequest(Struct, kw_only=True, omit_defaults=True):
    """One request of a worker. Unknown fields are ignored."""

    worker: WorkerName
    protocol: Annotated[int, Meta(ge=1, description="The highest version known.")] | None = None
    session: Annotated[str, Meta(max_length=128)] | None = None
    tasks: Names | None = None
    queues: Names | None = None
    slots: Annotated[int, Meta(ge=0, le=SLOTS_MAX)] | None = None
    labels: Labels | None = None
    resources: Resources | None = None
    version: Annotated[str, Meta(max_length=128)] | None = None
    task_defaults: dict[str, TaskDefaultsRequest] | None = None
    isolated_tasks: Names | None = None
    running: Annotated[list[LeaseText], Meta(max_length=SLOTS_MAX)] | None = None
    results: Annotated[list[ResultRequest], Meta(max_length=ENTRIES_MAX)] | None = None
    progress: Annotated[list[ProgressRequest], Meta(max_length=ENTRIES_MAX)] | None = None
    accept: Annotated[list[LeaseText], Meta(max_length=ENTRIES_MAX)] | None = None
    reject: Annotated[list[RejectRequest], Meta(max_length=ENTRIES_MAX)] | None = None
    offers: bool | None = None
    draining: bool | None = None
    wait: Duration | None = None
    max_leases: Annotated[int, Meta(ge=0, le=ENTRIES_MAX)] | None = None
    session_timeout: Duration | None = None

    def to_poll(self) -> Steps[PollRequest]:
        """Return the request for the engine, in steps."""
        spec = self._read_spec()
        yield
        reports = []
        for at, result in enumerate(self.results or ()):
            reports.append(result.to_result(f"/results/{at}"))
            yield
        progress = []
        for at, entry in enumerate(self.progress or ()):
            progress.append(entry.read(f"/progress/{at}"))
            yield
        running = None
        if self.running is not None:
            running = frozenset((yield from read_leases("/running", self.running)))
        accept = yield from read_leases("/accept", self.accept or [])
        return PollRequest(
            worker=spec.id,
            session=self.session or "",
            spec=spec,
            running=running,
            reports=reports,
            progress=progress,
            accept=accept,
            reject=[each.read(f"/reject/{at}") for at, each in enumerate(self.reject or ())],
            is_draining=self.draining or False,
            supports_offers=self.offers or False,
            wait_s=self._read_wait(),
            max_leases=self.max_leases,
            session_timeout_s=self._read_session_timeout(),
        )

    def _read_spec(self) -> WorkerSpec:
        """Return the description of the worker."""
        return WorkerSpec(
            id=read_worker_name("/worker", self.worker),
            slots=1 if self.slots is None else self.slots,
            tasks=_read_names("/tasks", self.tasks),
            queues=_read_names("/queues", self.queues),
            task_defaults=_read_defaults(self.task_defaults or {}),
            labels=read_labels("/labels", self.labels or {}),
            resources=dict(read_amounts("/resources", self.resources or {})),
            isolated_tasks=_read_names("/isolated_tasks", self.isolated_tasks) or frozenset(),
            version=self.version,
            polls=True,
        )

    def _read_wait(self) -> float:
        """Return how long the server may hold a poll open, in seconds."""
        us = 0 if self.wait is None else fields.read_duration("/wait", self.wait)
        _check_most("/wait", us, WAIT_US_MAX)
        return us / limits.SECOND

    def _read_session_timeout(self) -> float:
        """Return after how many seconds without a request the worker is lost."""
        if self.session_timeout is None:
            return SESSION_TIMEOUT_US_DEFAULT / limits.SECOND
        least, most = SESSION_TIMEOUT_US
        us = fields.read_duration("/session_timeout", self.session_timeout, least)
        _check_most("/session_timeout", us, most)
        return us / limits.SECOND


class RefusedResponse(Struct):
    """A result that came too late: the attempt had ended, or another worker has the job."""

    lease: LeaseText
    status: int
    code: str
    detail: str

    @classmethod
    def of(cls, key: LeaseKey, reason: str) -> Self:
        return cls(render_lease(key), StaleLease.status, StaleLease.code, reason)


class WorkResponse(Struct, kw_only=True):
    """The response to a worker; heartbeat and session_timeout are seconds."""

    protocol: int
    epoch: int
    leases: list[LeaseResponse]
    stop: list[StopResponse]
    revoked: list[LeaseText]
    refused: list[RefusedResponse]
    heartbeat: float
    session_timeout: float
    drain: bool

    @classmethod
    def of(cls, response: PollResponse, epoch: int, session_timeout_s: float) -> Self:
        return cls(
            protocol=PROTOCOL,
            epoch=epoch,
            leases=[
                LeaseResponse.of(each, each.key in response.offers) for each in response.leases
            ],
            stop=[StopResponse.of(stop) for stop in response.stops],
            revoked=[render_lease(key) for key in response.revoked],
            refused=[RefusedResponse.of(key, reason) for key, reason in response.refused],
            heartbeat=whole_seconds(session_timeout_s / HEARTBEATS_PER_TIMEOUT),
            session_timeout=whole_seconds(session_timeout_s),
            drain=response.drain,
        )


_responses = msgspec.json.Decoder(WorkResponse)


def parse_response(body: bytes) -> WorkResponse:
    """Return the response in a body; raise SchedoError if there is none."""
    try:
        return _responses.decode(body)
    except UNDECODABLE as error:
        raise SchedoError(
            f"the response is not one of a schedo server to a worker: {error}"
        ) from None


def is_own_worker(name: str) -> bool:
    """Whether servers give this name to workers of their own."""
    return name in _OWN_WORKERS or name.startswith("process-")


def read_worker_name(pointer: str, name: str) -> str:
    """Return the worker's name; raise Invalid for a bad one and for those of the server itself."""
    if not _WORKER.match(name):
        raise Invalid.field(pointer, f"{name[:40]!a}: {_WORKER_RULE}")
    if is_own_worker(name):
        raise Invalid.field(pointer, f"{name!r} is a name that the server uses itself")
    return name


def _read_names(pointer: str, names: list[str] | None) -> frozenset[str] | None:
    if names is None:
        return None
    return frozenset(fields.read_name(f"{pointer}/{at}", name) for at, name in enumerate(names))


def _read_defaults(requests: dict[str, TaskDefaultsRequest]) -> dict[str, Options]:
    if len(requests) > NAMES_MAX:
        raise Invalid.field("/task_defaults", f"there may be at most {NAMES_MAX}")
    defaults = {}
    for task, request in requests.items():
        pointer = f"/task_defaults/{escape(task)}"
        fields.read_name(pointer, task)
        defaults[task] = fields.read_under(pointer, request.to_options)
    return defaults


def _check_most(pointer: str, us: int, most: int) -> None:
    if us > most:
        raise Invalid.field(pointer, f"this must be at most {render_duration(most)}")

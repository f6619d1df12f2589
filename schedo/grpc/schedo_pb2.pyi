# Made by `make proto` with grpcio-tools 1.85.1 from 0fc3be6fd0c3b7fd67388bdc38e284d1e4eb7dbd22d8c790e8652c88af63dc46.
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubmitRequest(_message.Message):
    __slots__ = ("task", "queue", "payload", "priority", "delay", "run_at", "timeout", "expires_in", "expires_at", "delivery", "tags", "meta", "keep", "retry", "requires", "prefer", "on_failure", "unique", "traceparent", "tracestate", "wait")
    TASK_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    RUN_AT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    REQUIRES_FIELD_NUMBER: _ClassVar[int]
    PREFER_FIELD_NUMBER: _ClassVar[int]
    ON_FAILURE_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    TRACESTATE_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    task: str
    queue: str
    payload: str
    priority: int
    delay: str
    run_at: str
    timeout: str
    expires_in: str
    expires_at: str
    delivery: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    meta: str
    keep: str
    retry: str
    requires: str
    prefer: str
    on_failure: str
    unique: str
    traceparent: str
    tracestate: str
    wait: str
    def __init__(self, task: _Optional[str] = ..., queue: _Optional[str] = ..., payload: _Optional[str] = ..., priority: _Optional[int] = ..., delay: _Optional[str] = ..., run_at: _Optional[str] = ..., timeout: _Optional[str] = ..., expires_in: _Optional[str] = ..., expires_at: _Optional[str] = ..., delivery: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., meta: _Optional[str] = ..., keep: _Optional[str] = ..., retry: _Optional[str] = ..., requires: _Optional[str] = ..., prefer: _Optional[str] = ..., on_failure: _Optional[str] = ..., unique: _Optional[str] = ..., traceparent: _Optional[str] = ..., tracestate: _Optional[str] = ..., wait: _Optional[str] = ...) -> None: ...

class SubmitBatchRequest(_message.Message):
    __slots__ = ("jobs", "minimal")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    MINIMAL_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[SubmitRequest]
    minimal: bool
    def __init__(self, jobs: _Optional[_Iterable[_Union[SubmitRequest, _Mapping[str, object]]]] = ..., minimal: _Optional[bool] = ...) -> None: ...

class SubmitBatchResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[BatchItem]
    def __init__(self, items: _Optional[_Iterable[_Union[BatchItem, _Mapping[str, object]]]] = ...) -> None: ...

class BatchItem(_message.Message):
    __slots__ = ("status", "job", "problem")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    status: int
    job: Job
    problem: Problem
    def __init__(self, status: _Optional[int] = ..., job: _Optional[_Union[Job, _Mapping[str, object]]] = ..., problem: _Optional[_Union[Problem, _Mapping[str, object]]] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("id", "wait")
    ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    id: str
    wait: str
    def __init__(self, id: _Optional[str] = ..., wait: _Optional[str] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class InvokeRequest(_message.Message):
    __slots__ = ("task", "queue", "payload", "timeout", "tags", "meta", "keep", "requires", "prefer", "wait", "on_loss", "count")
    TASK_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    REQUIRES_FIELD_NUMBER: _ClassVar[int]
    PREFER_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    ON_LOSS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    task: str
    queue: str
    payload: str
    timeout: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    meta: str
    keep: str
    requires: str
    prefer: str
    wait: str
    on_loss: str
    count: int
    def __init__(self, task: _Optional[str] = ..., queue: _Optional[str] = ..., payload: _Optional[str] = ..., timeout: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., meta: _Optional[str] = ..., keep: _Optional[str] = ..., requires: _Optional[str] = ..., prefer: _Optional[str] = ..., wait: _Optional[str] = ..., on_loss: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class InvokeResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Job]
    def __init__(self, items: _Optional[_Iterable[_Union[Job, _Mapping[str, object]]]] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("id", "state", "task", "queue", "priority", "payload", "attempt", "max_attempts", "failures", "losses", "created_at", "scheduled_at", "picked_at", "started_at", "completed_at", "failed_at", "cancelled_at", "expired_at", "expires_at", "schedule", "scheduled_for", "trigger", "missed_count", "unique_key", "traceparent", "tracestate", "cancel_requested_at", "worker", "result", "error", "conflict", "warnings", "delivery", "timeout", "tags", "meta", "requires", "prefer", "on_failure", "keep")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    LOSSES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_AT_FIELD_NUMBER: _ClassVar[int]
    PICKED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_AT_FIELD_NUMBER: _ClassVar[int]
    FAILED_AT_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FOR_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_FIELD_NUMBER: _ClassVar[int]
    MISSED_COUNT_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    TRACESTATE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REQUESTED_AT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CONFLICT_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    REQUIRES_FIELD_NUMBER: _ClassVar[int]
    PREFER_FIELD_NUMBER: _ClassVar[int]
    ON_FAILURE_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: str
    task: str
    queue: str
    priority: int
    payload: str
    attempt: int
    max_attempts: int
    failures: int
    losses: int
    created_at: str
    scheduled_at: str
    picked_at: str
    started_at: str
    completed_at: str
    failed_at: str
    cancelled_at: str
    expired_at: str
    expires_at: str
    schedule: str
    scheduled_for: str
    trigger: str
    missed_count: int
    unique_key: str
    traceparent: str
    tracestate: str
    cancel_requested_at: str
    worker: str
    result: str
    error: Failure
    conflict: bool
    warnings: _containers.RepeatedScalarFieldContainer[str]
    delivery: str
    timeout: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    meta: str
    requires: str
    prefer: str
    on_failure: str
    keep: str
    def __init__(self, id: _Optional[str] = ..., state: _Optional[str] = ..., task: _Optional[str] = ..., queue: _Optional[str] = ..., priority: _Optional[int] = ..., payload: _Optional[str] = ..., attempt: _Optional[int] = ..., max_attempts: _Optional[int] = ..., failures: _Optional[int] = ..., losses: _Optional[int] = ..., created_at: _Optional[str] = ..., scheduled_at: _Optional[str] = ..., picked_at: _Optional[str] = ..., started_at: _Optional[str] = ..., completed_at: _Optional[str] = ..., failed_at: _Optional[str] = ..., cancelled_at: _Optional[str] = ..., expired_at: _Optional[str] = ..., expires_at: _Optional[str] = ..., schedule: _Optional[str] = ..., scheduled_for: _Optional[str] = ..., trigger: _Optional[str] = ..., missed_count: _Optional[int] = ..., unique_key: _Optional[str] = ..., traceparent: _Optional[str] = ..., tracestate: _Optional[str] = ..., cancel_requested_at: _Optional[str] = ..., worker: _Optional[str] = ..., result: _Optional[str] = ..., error: _Optional[_Union[Failure, _Mapping[str, object]]] = ..., conflict: _Optional[bool] = ..., warnings: _Optional[_Iterable[str]] = ..., delivery: _Optional[str] = ..., timeout: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., meta: _Optional[str] = ..., requires: _Optional[str] = ..., prefer: _Optional[str] = ..., on_failure: _Optional[str] = ..., keep: _Optional[str] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("type", "message", "exit_code", "signal", "http_status", "traceback")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    HTTP_STATUS_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    type: str
    message: str
    exit_code: int
    signal: str
    http_status: int
    traceback: str
    def __init__(self, type: _Optional[str] = ..., message: _Optional[str] = ..., exit_code: _Optional[int] = ..., signal: _Optional[str] = ..., http_status: _Optional[int] = ..., traceback: _Optional[str] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("status", "code", "detail", "errors")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    status: int
    code: str
    detail: str
    errors: _containers.RepeatedCompositeFieldContainer[FieldProblem]
    def __init__(self, status: _Optional[int] = ..., code: _Optional[str] = ..., detail: _Optional[str] = ..., errors: _Optional[_Iterable[_Union[FieldProblem, _Mapping[str, object]]]] = ...) -> None: ...

class FieldProblem(_message.Message):
    __slots__ = ("pointer", "detail")
    POINTER_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    pointer: str
    detail: str
    def __init__(self, pointer: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class WorkRequest(_message.Message):
    __slots__ = ("seq", "worker", "protocol", "session", "tasks", "queues", "slots", "labels", "resources", "version", "task_defaults", "isolated_tasks", "offers", "session_timeout", "running", "results", "progress", "accept", "reject", "draining")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TASK_DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    ISOLATED_TASKS_FIELD_NUMBER: _ClassVar[int]
    OFFERS_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_FIELD_NUMBER: _ClassVar[int]
    REJECT_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    seq: int
    worker: str
    protocol: int
    session: str
    tasks: _containers.RepeatedScalarFieldContainer[str]
    queues: _containers.RepeatedScalarFieldContainer[str]
    slots: int
    labels: str
    resources: str
    version: str
    task_defaults: str
    isolated_tasks: _containers.RepeatedScalarFieldContainer[str]
    offers: bool
    session_timeout: float
    running: _containers.RepeatedScalarFieldContainer[str]
    results: _containers.RepeatedCompositeFieldContainer[Result]
    progress: _containers.RepeatedCompositeFieldContainer[Progress]
    accept: _containers.RepeatedScalarFieldContainer[str]
    reject: _containers.RepeatedCompositeFieldContainer[Rejection]
    draining: bool
    def __init__(self, seq: _Optional[int] = ..., worker: _Optional[str] = ..., protocol: _Optional[int] = ..., session: _Optional[str] = ..., tasks: _Optional[_Iterable[str]] = ..., queues: _Optional[_Iterable[str]] = ..., slots: _Optional[int] = ..., labels: _Optional[str] = ..., resources: _Optional[str] = ..., version: _Optional[str] = ..., task_defaults: _Optional[str] = ..., isolated_tasks: _Optional[_Iterable[str]] = ..., offers: _Optional[bool] = ..., session_timeout: _Optional[float] = ..., running: _Optional[_Iterable[str]] = ..., results: _Optional[_Iterable[_Union[Result, _Mapping[str, object]]]] = ..., progress: _Optional[_Iterable[_Union[Progress, _Mapping[str, object]]]] = ..., accept: _Optional[_Iterable[str]] = ..., reject: _Optional[_Iterable[_Union[Rejection, _Mapping[str, object]]]] = ..., draining: _Optional[bool] = ...) -> None: ...

class WorkResponse(_message.Message):
    __slots__ = ("seq", "protocol", "epoch", "leases", "stop", "revoked", "refused", "heartbeat", "session_timeout", "drain", "problem")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    seq: int
    protocol: int
    epoch: int
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    stop: _containers.RepeatedCompositeFieldContainer[StopRequest]
    revoked: _containers.RepeatedScalarFieldContainer[str]
    refused: _containers.RepeatedCompositeFieldContainer[RefusedResult]
    heartbeat: float
    session_timeout: float
    drain: bool
    problem: Problem
    def __init__(self, seq: _Optional[int] = ..., protocol: _Optional[int] = ..., epoch: _Optional[int] = ..., leases: _Optional[_Iterable[_Union[Lease, _Mapping[str, object]]]] = ..., stop: _Optional[_Iterable[_Union[StopRequest, _Mapping[str, object]]]] = ..., revoked: _Optional[_Iterable[str]] = ..., refused: _Optional[_Iterable[_Union[RefusedResult, _Mapping[str, object]]]] = ..., heartbeat: _Optional[float] = ..., session_timeout: _Optional[float] = ..., drain: _Optional[bool] = ..., problem: _Optional[_Union[Problem, _Mapping[str, object]]] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("lease", "job", "attempt", "task", "queue", "payload", "timeout", "scheduled_for", "trigger", "schedule", "missed_count", "failures", "max_attempts", "traceparent", "tracestate", "at_most_once", "suspect", "offer", "tags", "meta")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FOR_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    MISSED_COUNT_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    TRACESTATE_FIELD_NUMBER: _ClassVar[int]
    AT_MOST_ONCE_FIELD_NUMBER: _ClassVar[int]
    SUSPECT_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    lease: str
    job: str
    attempt: int
    task: str
    queue: str
    payload: str
    timeout: float
    scheduled_for: str
    trigger: str
    schedule: str
    missed_count: int
    failures: int
    max_attempts: int
    traceparent: str
    tracestate: str
    at_most_once: bool
    suspect: bool
    offer: bool
    tags: _containers.RepeatedScalarFieldContainer[str]
    meta: str
    def __init__(self, lease: _Optional[str] = ..., job: _Optional[str] = ..., attempt: _Optional[int] = ..., task: _Optional[str] = ..., queue: _Optional[str] = ..., payload: _Optional[str] = ..., timeout: _Optional[float] = ..., scheduled_for: _Optional[str] = ..., trigger: _Optional[str] = ..., schedule: _Optional[str] = ..., missed_count: _Optional[int] = ..., failures: _Optional[int] = ..., max_attempts: _Optional[int] = ..., traceparent: _Optional[str] = ..., tracestate: _Optional[str] = ..., at_most_once: _Optional[bool] = ..., suspect: _Optional[bool] = ..., offer: _Optional[bool] = ..., tags: _Optional[_Iterable[str]] = ..., meta: _Optional[str] = ...) -> None: ...

class StopRequest(_message.Message):
    __slots__ = ("lease", "reason")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    lease: str
    reason: str
    def __init__(self, lease: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RefusedResult(_message.Message):
    __slots__ = ("lease", "status", "code", "detail")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    lease: str
    status: int
    code: str
    detail: str
    def __init__(self, lease: _Optional[str] = ..., status: _Optional[int] = ..., code: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("lease", "outcome", "result", "error", "blame", "retryable", "retry_in", "delay", "output", "ran")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    BLAME_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    RETRY_IN_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    RAN_FIELD_NUMBER: _ClassVar[int]
    lease: str
    outcome: str
    result: str
    error: Failure
    blame: str
    retryable: bool
    retry_in: float
    delay: float
    output: _containers.RepeatedCompositeFieldContainer[Output]
    ran: float
    def __init__(self, lease: _Optional[str] = ..., outcome: _Optional[str] = ..., result: _Optional[str] = ..., error: _Optional[_Union[Failure, _Mapping[str, object]]] = ..., blame: _Optional[str] = ..., retryable: _Optional[bool] = ..., retry_in: _Optional[float] = ..., delay: _Optional[float] = ..., output: _Optional[_Iterable[_Union[Output, _Mapping[str, object]]]] = ..., ran: _Optional[float] = ...) -> None: ...

class Output(_message.Message):
    __slots__ = ("stream", "text", "base64", "total_bytes")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BASE64_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    stream: str
    text: str
    base64: str
    total_bytes: int
    def __init__(self, stream: _Optional[str] = ..., text: _Optional[str] = ..., base64: _Optional[str] = ..., total_bytes: _Optional[int] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("lease", "percent", "message", "log", "stdout", "stderr", "stdout_bytes", "stderr_bytes")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    STDOUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    STDERR_BYTES_FIELD_NUMBER: _ClassVar[int]
    lease: str
    percent: float
    message: str
    log: str
    stdout: str
    stderr: str
    stdout_bytes: int
    stderr_bytes: int
    def __init__(self, lease: _Optional[str] = ..., percent: _Optional[float] = ..., message: _Optional[str] = ..., log: _Optional[str] = ..., stdout: _Optional[str] = ..., stderr: _Optional[str] = ..., stdout_bytes: _Optional[int] = ..., stderr_bytes: _Optional[int] = ...) -> None: ...

class Rejection(_message.Message):
    __slots__ = ("lease", "reason")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    lease: str
    reason: str
    def __init__(self, lease: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

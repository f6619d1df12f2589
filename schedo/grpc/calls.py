"""The calls with one request and one response, each made of requests of the HTTP API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple
from urllib.parse import quote, urlencode

from google.protobuf.message import DecodeError, Message

from schedo.engine.sharing import jobs_in_steps
from schedo.errors import BadJson
from schedo.grpc import schedo_pb2 as pb
from schedo.grpc.messages import (
    M,
    read_message,
    read_message_in_steps,
    render,
    to_fields,
    to_fields_in_steps,
)
from schedo.grpc.requests import Answer, Caller, Headers
from schedo.grpc.status import CallFailed, Code, fail, read_problem, status_of
from schedo.protocol.problems import render_problem
from schedo.web.bytes_in_flight import Claim

_SMALL_BYTES = 65_536
_MINIMAL: Headers = [(b"prefer", b"return=minimal")]


class Call(NamedTuple):
    """A call in progress: who calls, and the claim of its request's bytes."""

    caller: Caller
    claim: Claim


async def submit(call: Call, request: pb.SubmitRequest) -> pb.Job:
    fields = to_fields(request)
    wait = fields.pop("wait", None)
    answer = await call.caller.ask(
        _add_query("POST /v1/jobs", wait=wait),
        render(fields),
        headers=call.caller.key,
        claim=call.claim,
    )
    return await read_answer(pb.Job, answer)


async def submit_batch(call: Call, request: pb.SubmitBatchRequest) -> pb.SubmitBatchResponse:
    fields = await jobs_in_steps(to_fields_in_steps(request))
    for at, job in enumerate(fields.get("jobs", ())):
        if "wait" in job:
            raise fail(Code.INVALID_ARGUMENT, f"/jobs/{at}/wait: a batch waits for no job")
    answer = await call.caller.ask(
        "POST /v1/jobs:batch",
        render(fields.get("jobs", [])),
        headers=[*call.caller.key, *(_MINIMAL if request.minimal else ())],
        claim=call.claim,
    )
    return await read_answer(pb.SubmitBatchResponse, answer)


async def get(call: Call, request: pb.GetRequest) -> pb.Job:
    path = _job_path(request.id)
    if request.wait:
        answer = await call.caller.ask(_add_query(f"GET {path}/wait", timeout=request.wait))
    else:
        answer = await call.caller.ask(f"GET {path}")
    return await read_answer(pb.Job, answer)


async def cancel(call: Call, request: pb.CancelRequest) -> pb.Job:
    answer = await call.caller.ask(f"POST {_job_path(request.id)}:cancel", b"{}")
    return await read_answer(pb.Job, answer)


async def invoke(call: Call, request: pb.InvokeRequest) -> pb.InvokeResponse:
    answer = await call.caller.ask(
        "POST /v1/invoke", render(to_fields(request)), headers=call.caller.key, claim=call.claim
    )
    if request.count > 1:
        return await read_answer(pb.InvokeResponse, answer)
    return pb.InvokeResponse(items=[await read_answer(pb.Job, answer)])


def _job_path(id_: str) -> str:
    if not id_:
        raise fail(Code.INVALID_ARGUMENT, "/id: this field is required")
    return f"/v1/jobs/{quote(id_, safe='')}"


def _add_query(route: str, **parameters: str | None) -> str:
    given = {name: value for name, value in parameters.items() if value is not None}
    return f"{route}?{urlencode(given)}" if given else route


async def read_answer(kind: type[M], answer: Answer) -> M:
    """Return the message of a response; raise CallFailed if the request was refused."""
    failure = answer.failure
    if failure is not None:
        raise CallFailed(failure)
    if len(answer.body) <= _SMALL_BYTES:
        return read_message(kind, answer.body)
    return await jobs_in_steps(read_message_in_steps(kind, answer.body))


class Method(NamedTuple):
    """The message that a call takes, and the function that answers it."""

    request: type[Message]
    answer: Callable[[Call, Message], Awaitable[Message]]


METHODS: dict[str, Method] = {
    f"/schedo.v1.Schedo/{name}": Method(kind, answer)  # type: ignore[arg-type]
    for name, kind, answer in (
        ("Submit", pb.SubmitRequest, submit),
        ("SubmitBatch", pb.SubmitBatchRequest, submit_batch),
        ("Get", pb.GetRequest, get),
        ("Cancel", pb.CancelRequest, cancel),
        ("Invoke", pb.InvokeRequest, invoke),
    )
}


def parse(kind: type[M], data: bytes) -> M:
    """Return the message; raise CallFailed if the bytes are none of this kind."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise fail(Code.INVALID_ARGUMENT, f"this is no {kind.DESCRIPTOR.name}: {error}") from None


async def perform(method: Method, call: Call, data: bytes) -> bytes:
    """Return the response to the request; raise CallFailed if it is refused."""
    request = parse(method.request, data)
    try:
        return (await method.answer(call, request)).SerializeToString()
    except BadJson as error:
        raise CallFailed(status_of(read_problem(render_problem(error)))) from None

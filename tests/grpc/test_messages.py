"""schedo.proto has the fields of the HTTP API and of the worker protocol, and no others."""

from __future__ import annotations

import json

import msgspec
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from schedo.core import limits
from schedo.errors import BadJson
from schedo.grpc import schedo_pb2 as pb
from schedo.grpc.messages import JSON_FIELDS, read_message, render, to_fields
from schedo.protocol.invocations import InvokeRequest
from schedo.protocol.jobs import FailureResponse, JobRequest, JobResponse
from schedo.protocol.leases import LeaseResponse, StopResponse
from schedo.protocol.results import ErrorRequest, OutputRequest, ResultRequest
from schedo.protocol.work import (
    ProgressRequest,
    RefusedResponse,
    RejectRequest,
    WorkRequest,
    WorkResponse,
)
from tests.grpc import generate

# By message: the Struct with the same fields, what only the message has, what only the Struct has.
PAIRS = (
    # The response to a broadcast has another form.
    (pb.SubmitRequest, JobRequest, "wait", "broadcast"),
    (pb.InvokeRequest, InvokeRequest, "", "dry_run"),
    (pb.Job, JobResponse, "", ""),
    (pb.Failure, FailureResponse, "", ""),
    (pb.Failure, ErrorRequest, "", ""),
    # The server itself polls for a worker on a stream.
    (pb.WorkRequest, WorkRequest, "seq", "wait max_leases"),
    (pb.WorkResponse, WorkResponse, "seq problem", ""),
    (pb.Lease, LeaseResponse, "", ""),
    (pb.StopRequest, StopResponse, "", ""),
    (pb.RefusedResult, RefusedResponse, "", ""),
    (pb.Result, ResultRequest, "", ""),
    (pb.Output, OutputRequest, "", ""),
    (pb.Progress, ProgressRequest, "", ""),
    (pb.Rejection, RejectRequest, "", ""),
)


def name_of(value: object) -> str:
    return getattr(value, "__name__", "-")


@pytest.mark.parametrize(("message", "struct", "added", "left_out"), PAIRS, ids=name_of)
def test_a_message_has_the_fields_of_its_struct(
    message: type[pb.Job], struct: type[msgspec.Struct], added: str, left_out: str
) -> None:
    own = {field.name for field in message.DESCRIPTOR.fields}

    assert own - set(added.split()) == set(struct.__struct_fields__) - set(left_out.split())
    assert set(added.split()) < own
    assert set(left_out.split()) < set(struct.__struct_fields__)


def descriptors() -> list[Descriptor]:
    return list(pb.DESCRIPTOR.message_types_by_name.values())


def test_every_field_with_json_is_a_text_and_says_so() -> None:
    text = generate.SOURCE.read_text()
    said = {line.split("=")[0].split()[-1] for line in text.splitlines() if "// JSON" in line}

    found = {
        field.name
        for descriptor in descriptors()
        for field in descriptor.fields
        if field.name in JSON_FIELDS
    }
    kinds = {
        field.type
        for descriptor in descriptors()
        for field in descriptor.fields
        if field.name in JSON_FIELDS
    }
    assert found == said == set(JSON_FIELDS)
    assert kinds == {FieldDescriptor.TYPE_STRING}


def test_the_json_of_a_message_has_what_is_set() -> None:
    message = pb.WorkRequest(
        worker="w1",
        slots=0,
        labels='{"gpu": true}',
        results=[pb.Result(lease="a", outcome="failed", error=pb.Failure(message="m"))],
    )

    assert json.loads(render(to_fields(message))) == {
        "worker": "w1",
        "slots": 0,
        "labels": {"gpu": True},
        "results": [{"lease": "a", "outcome": "failed", "error": {"message": "m"}}],
    }


@pytest.mark.parametrize("text", ["", "{", "1 2", '1, "queue": "b"', "NaN"])
def test_a_text_that_is_not_one_json_value_is_refused(text: str) -> None:
    message = pb.WorkRequest(results=[pb.Result(), pb.Result(result=text)])

    if not text:  # counts as absent
        assert "result" not in to_fields(message)["results"][1]
        return
    with pytest.raises(BadJson) as caught:
        to_fields(message)
    assert [each.pointer for each in caught.value.problems] == ["/results/1/result"]


def test_unknown_fields_of_a_response_are_left_out() -> None:
    text = b'{"id":"a","new":[1],"payload":9007199254740993,"error":{"type":"X","message":"m"}}'

    job = read_message(pb.Job, text)

    assert (job.id, job.payload, job.error.type) == ("a", "9007199254740993", "X")


def test_a_message_has_room_for_every_number_of_an_error() -> None:
    failure = {"exit_code": 3_221_225_477, "http_status": limits.COUNT_MAX}  # a crash on Windows
    text = json.dumps({"error": {"type": "exit-code", "message": "", **failure}}).encode()

    error = read_message(pb.Job, text).error

    assert (error.exit_code, error.http_status) == tuple(failure.values())
    assert to_fields(error)["exit_code"] == 3_221_225_477

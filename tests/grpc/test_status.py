"""Each error of the HTTP API has a status of gRPC."""

from __future__ import annotations

import pytest

from schedo.errors import StoreError, all_errors
from schedo.grpc.status import CODES, Code, Status, read_problem, status_of
from schedo.protocol.problems import KINDS, render_problem


def test_every_code_has_a_status() -> None:
    assert CODES.keys() == KINDS.keys()


def test_clients_repeat_no_call_whose_outcome_is_unknown() -> None:
    unknown = {
        kind.code
        for kind in all_errors().values()
        if issubclass(kind, StoreError) and kind.code != "store-locked"
    }

    assert Code.UNAVAILABLE not in {CODES[code] for code in unknown & CODES.keys()}


@pytest.mark.parametrize("text", ["a\nb", "100 % sure", "größer", "x" * 5_000])
def test_a_message_is_a_header_whatever_it_contains(text: str) -> None:
    headers = dict(Status(Code.INTERNAL, text).trailers())

    assert all(0x20 <= byte < 0x7F for byte in headers[b"grpc-message"])
    assert len(headers[b"grpc-message"]) < 7_000


def test_a_problem_becomes_a_status_with_details() -> None:
    status = status_of(read_problem(render_problem(StoreError("the disk is slow"))), 2)

    assert (status.code, status.message) == (Code.UNKNOWN, "the disk is slow")
    assert [type(each).__name__ for each in status.details] == ["ErrorInfo", "RetryInfo"]

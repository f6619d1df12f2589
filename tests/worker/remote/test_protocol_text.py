"""docs/protocol.md says what the server takes and answers: it cannot drift."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from schedo.protocol.decode import decode_request
from schedo.protocol.results import ErrorRequest, OutputRequest, ResultRequest
from schedo.protocol.work import ProgressRequest, RejectRequest, WorkRequest
from schedo.protocol.worker_shapes import LeaseAnswer, RefusedAnswer, StopAnswer, WorkAnswer
from schedo.worker.remote.messages import parse_answer
from tests.sources import ROOT

TEXT = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
WORDS = frozenset(re.findall(r"[a-z_0-9]+", TEXT))


def exchanges(arrow: str) -> Iterator[bytes]:
    """Yield the JSON behind each arrow of the worked example."""
    _, _, example = TEXT.partition("## An exchange")
    for part in re.split(r"(?=[→←])", example):
        if part.startswith(arrow):
            value, _ = json.JSONDecoder().raw_decode(part[1:].replace("\n", "").strip())
            yield json.dumps(value).encode()


@pytest.mark.parametrize(
    "kind",
    [
        *(WorkRequest, ResultRequest, ErrorRequest, OutputRequest, ProgressRequest, RejectRequest),
        *(WorkAnswer, LeaseAnswer, StopAnswer, RefusedAnswer),
    ],
)
def test_every_field_is_written_down(kind: Any) -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(kind)}

    assert fields - WORDS == set()


def test_the_requests_of_the_example_are_taken() -> None:
    requests = [decode_request(body, WorkRequest) for body in exchanges("→")]

    assert len(requests) == 4
    assert [request.read_offer().slots for request in requests] == [2, 2, 2, 2]
    assert [len(request.read_running() or ()) for request in requests] == [0, 1, 0, 0]


def test_the_answers_of_the_example_are_answers() -> None:
    bodies = list(exchanges("←"))

    assert [len(parse_answer(body).leases) for body in bodies] == [1, 0, 0]
    for body in bodies:
        msgspec.json.decode(body, type=WorkAnswer)

"""docs/protocol.md names every field, and its examples are valid."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from schedo.protocol.decode import decode_request
from schedo.protocol.leases import LeaseAnswer, StopAnswer
from schedo.protocol.reading import at_once
from schedo.protocol.results import ErrorRequest, OutputRequest, ResultRequest
from schedo.protocol.work import (
    ProgressRequest,
    RefusedAnswer,
    RejectRequest,
    WorkAnswer,
    WorkRequest,
    parse_answer,
)
from tests.sources import ROOT

TEXT = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
WORDS = frozenset(re.findall(r"[a-z_0-9]+", TEXT))


def examples(arrow: str) -> Iterator[bytes]:
    """Yield the JSON behind each arrow of the examples."""
    _, _, text = TEXT.partition("## Examples\n")
    for part in re.split(r"^    (?=[→←])", text, flags=re.MULTILINE)[1:]:
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
def test_every_field_is_documented(kind: Any) -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(kind)}

    assert fields - WORDS == set()


def test_the_server_takes_the_requests_of_the_examples() -> None:
    requests = [decode_request(body, WorkRequest) for body in examples("→")]

    assert len(requests) == 14
    assert {at_once(request.to_poll()).spec.slots for request in requests} == {2}


def test_the_worker_takes_the_responses_of_the_examples() -> None:
    bodies = list(examples("←"))

    assert len(bodies) == 10
    for body in bodies:
        for lease in parse_answer(body).leases:
            lease.read("w1")

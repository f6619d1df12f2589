"""docs/protocol.md names every field, and its examples are valid."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import msgspec
import pytest

from schedo.core.model import Trigger
from schedo.protocol.decode import decode_request
from schedo.protocol.leases import LeaseResponse, StopResponse
from schedo.protocol.reading import at_once
from schedo.protocol.results import ErrorRequest, OutputRequest, ResultRequest
from schedo.protocol.work import (
    ProgressRequest,
    RefusedResponse,
    RejectRequest,
    WorkRequest,
    WorkResponse,
    parse_response,
)
from tests.sources import ROOT

TEXT = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")


def examples(arrow: str) -> Iterator[bytes]:
    """Yield the JSON behind each arrow of the examples."""
    _, _, text = TEXT.partition("## Examples\n")
    for part in re.split(r"^    (?=[→←])", text, flags=re.MULTILINE)[1:]:
        if part.startswith(arrow):
            value, _ = json.JSONDecoder().raw_decode(part[1:].replace("\n", "").strip())
            yield json.dumps(value).encode()


SECTIONS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "The request": (WorkRequest, RejectRequest),
    "The response: 200": (WorkResponse, LeaseResponse, StopResponse, RefusedResponse),
    "Results": (ResultRequest, ErrorRequest, OutputRequest),
    "Progress": (ProgressRequest,),
}


@pytest.mark.parametrize(
    ("title", "kind"), [(title, kind) for title, kinds in SECTIONS.items() for kind in kinds]
)
def test_every_field_is_documented_in_its_section(title: str, kind: type[msgspec.Struct]) -> None:
    text = TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    fields = {field.encode_name for field in msgspec.structs.fields(kind)}

    assert fields - set(re.findall(r"[a-z_0-9]+", text)) == set()


def test_every_trigger_of_a_lease_is_documented() -> None:
    (line,) = re.findall(r"^\| `trigger` \|.*$", TEXT, re.MULTILINE)

    assert {each.value for each in Trigger} <= set(re.findall(r"`([a-z_]+)`", line))


def test_the_server_takes_the_requests_of_the_examples() -> None:
    requests = [decode_request(body, WorkRequest) for body in examples("→")]

    assert len(requests) == 14
    assert {at_once(request.to_poll()).spec.slots for request in requests} == {2}


def test_the_worker_takes_the_responses_of_the_examples() -> None:
    bodies = list(examples("←"))

    assert len(bodies) == 10
    for body in bodies:
        for lease in parse_response(body).leases:
            lease.read("w1", 0)

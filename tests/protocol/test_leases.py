"""A lease as text, and a task's defaults as a worker announces them."""

from __future__ import annotations

import msgspec
import pytest

from schedo.core.model import LeaseKey, Options, Retry
from schedo.core.retry import PRESETS
from schedo.errors import Invalid
from schedo.protocol.decode import decode_request
from schedo.protocol.leases import parse_lease, render_lease
from schedo.protocol.reading import at_once
from schedo.protocol.work import TaskDefaultsRequest, WorkRequest


def test_the_text_of_a_lease_is_its_job_attempt_and_epoch() -> None:
    assert render_lease(LeaseKey(33, 2, 7)) == "0000000000011.2.7"
    assert parse_lease("0000000000011.2.7") == LeaseKey(33, 2, 7)


@pytest.mark.parametrize("key", [(0, 0, 0), (2**63 - 1, 999_999_999, 999_999_999_999_999)], ids=str)
def test_every_lease_can_be_written_and_read_back(key: tuple[int, int, int]) -> None:
    assert parse_lease(render_lease(LeaseKey(*key))) == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "0000000000011",
        "0000000000011.2",
        "0000000000011.2.7.1",
        "000000000011.2.7",
        "00000000000011.2.7",
        "zzzzzzzzzzzzz.2.7",
        "000000000001U.2.7",
        "0000000000011.2.7\n",
        " 0000000000011.2.7",
        "0000000000011.+2.7",
        "0000000000011.-2.7",
        "0000000000011.2.\u0667",
        "0000000000011.1234567890.7",
        "0000000000011.2." + "7" * 100_000,
    ],
    ids=lambda text: ascii(text)[:30],
)
def test_an_invalid_lease_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_lease(text, "/results/0/lease")

    assert caught.value.problems[0].pointer == "/results/0/lease"
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "options",
    [
        Options(),
        Options(retry=Retry()),
        Options(retry=PRESETS["none"], at_most_once=True),
        Options(retry=PRESETS["webhook"], timeout_us=1_500_000),
        Options(retry=Retry(7, "fixed", 5_000_000, 2.5, 90_000_000, 0.5, until_at=1_000_000)),
    ],
    ids=lambda options: str(options)[:60],
)
def test_the_defaults_of_a_registered_task_are_read(options: Options) -> None:
    defaults = {"t": TaskDefaultsRequest.of(options)}
    body = msgspec.json.encode(WorkRequest(worker="w", task_defaults=defaults))

    offer = at_once(decode_request(body, WorkRequest).to_poll()).spec

    assert offer.task_defaults == {"t": options}

"""Rows of the inbox become specs, or say why not; a refused row holds no other one up."""

from __future__ import annotations

import pytest

from schedo.core.inbox import Enqueued
from schedo.protocol.enqueued import read_rows
from schedo.store.inbox import InboxRow
from tests.protocol.steps import take

GOOD = '{"task": "mail.send", "queue": "mail", "payload": 1}'


def read(*bodies: str) -> list[Enqueued]:
    rows = [InboxRow(number, body) for number, body in enumerate(bodies)]
    return take(read_rows(rows, lambda spec: None))


@pytest.mark.parametrize("levels", [65, 900, 3000, 40_000])
def test_a_payload_with_too_many_levels_refuses_its_row_by_name_and_no_other(levels: int) -> None:
    deep = "[" * levels + "]" * levels

    refused, good = read(f'{{"task": "deep", "queue": "mail", "payload": {deep}}}', GOOD)

    assert refused.refusal == "the body is nested deeper than 64 levels"
    assert (refused.spec.task, refused.spec.queue) == ("deep", "mail")
    assert (good.spec.task, good.refusal) == ("mail.send", None)


@pytest.mark.parametrize("padding", ["", "x" * 1_400_000])
def test_too_many_levels_before_the_task_refuse_their_row_and_no_other(padding: str) -> None:
    deep = '{"a":' * 3000 + "1" + "}" * 3000

    refused, good = read(f'{{"meta": {deep}, "task": "deep", "payload": "{padding}"}}', GOOD)

    assert refused.refusal is not None
    assert refused.spec.task == "unreadable"
    assert good.refusal is None

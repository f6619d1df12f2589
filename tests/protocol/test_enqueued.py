"""Rows of the inbox become specs, or say why not; a refused row holds no other one up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedo.core.inbox import Enqueued
from schedo.core.model import JobSpec
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
@pytest.mark.parametrize("name", ["keep", "meta", "tags"])
def test_a_field_with_too_many_levels_refuses_its_row_by_name_and_no_other(
    name: str, padding: str
) -> None:
    deep = '{"task":' * 3000 + '"other"' + "}" * 3000
    body = f'{{"{name}": {deep}, "task": "deep", "queue": "mail", "payload": "{padding}"}}'

    refused, good = read(body, GOOD)

    assert refused.refusal is not None
    assert (refused.spec.task, refused.spec.queue) == ("deep", "mail")
    assert good.refusal is None


@pytest.mark.parametrize(
    ("body", "task"),
    [
        ('{"meta": {"a": "b", "payload": 1}, "task": "t"', "t"),  # it is cut
        (r'{"meta": ["\"task\": \"no\"", "\\"], "task": "t", "queue": 7}', "t"),
        ('{"meta": "task", "tags": ["task", "no"], "task":"t", "no": 1}', "t"),
        ('{"no": {"payload": {}}, "task": "t", "payload": {"task": "no"}}', "t"),
        ('{"meta": {"task": "no"}, "tags": "task"}', "unreadable"),
        ('{"task": {"task": "no"}, "queue": "task"}', "unreadable"),
        ('{"task": ["no"], "queue": "no"}', "unreadable"),
        ('{"task": null, "no": "no"}', "unreadable"),
        ('{"task": "not a name"}', "unreadable"),
        ('{"task": "\\ud800"}', "unreadable"),
        ('{"task": "not clos', "unreadable"),
        ('["task", "no"]', "unreadable"),
        ('"task"', "unreadable"),
        ("", "unreadable"),
        ("}]" * 9 + '{"task": "no"}', "unreadable"),
    ],
)
def test_a_refused_row_has_the_task_that_its_outermost_object_names(body: str, task: str) -> None:
    refused, good = read(body, GOOD)

    assert refused.refusal is not None
    assert refused.spec.task == task
    assert good.refusal is None


WORDS = st.sampled_from(["task", "queue", "payload", "meta", "tags", '"', "\\", '\\"', ":", "é"])
TEXTS = st.lists(WORDS, max_size=3).map("".join) | st.text(max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def as_jsonb(value: Mapping[str, Any]) -> str:
    """Return the text of jsonb: shorter keys come first."""
    ordered = {key: value[key] for key in sorted(value, key=lambda key: (len(key.encode()), key))}
    return json.dumps(ordered, ensure_ascii=False)


@given(st.dictionaries(TEXTS, VALUES, max_size=4), VALUES)
def test_each_row_that_is_refused_keeps_its_names(others: dict[str, Any], payload: object) -> None:
    own = {"task": "t", "queue": "q", "payload": payload, "priority": "no number"}

    refused, good = read(as_jsonb(others | own), GOOD)

    assert refused.refusal is not None
    assert (refused.spec.task, refused.spec.queue) == ("t", "q")
    assert good.refusal is None


@given(TEXTS, st.text(max_size=30))
def test_no_text_of_a_row_holds_the_others_up(before: str, rest: str) -> None:
    _, good = read('{"' + before + rest, GOOD)

    assert good.refusal is None


def test_a_row_whose_reading_fails_unexpectedly_is_refused_and_logged_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def check(spec: JobSpec) -> None:
        if spec.task == "odd":
            raise KeyError("a bug")

    rows = [InboxRow(64, '{"task": "odd", "queue": "mail"}'), InboxRow(128, GOOD)]
    refused, good = take(read_rows(rows, check))

    assert refused.refusal == "an internal error (KeyError); the log of the server says more"
    assert (refused.spec.task, refused.spec.queue) == ("odd", "mail")
    assert good.refusal is None
    assert [(each.getMessage(), each.exc_info is not None) for each in caplog.records] == [
        ("job 0000000000020, which SQL has submitted, cannot be read", True)
    ]

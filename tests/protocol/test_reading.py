"""Bodies of any size are read with the same result as small ones, in short steps."""

from __future__ import annotations

import msgspec
import pytest

from schedo.errors import BadJson, Invalid, TooLarge
from schedo.protocol.jobs import JobRequest
from schedo.protocol.operations import OPERATIONS
from schedo.protocol.reading import (
    FIELD_BYTES_MAX,
    read_item,
    read_request,
    split_array,
    split_lines,
)
from schedo.protocol.work import WorkRequest
from tests.protocol.steps import take

DENSE = b"[" + b",".join([b"[]"] * 100_000) + b"]"


def read_job(body: bytes) -> JobRequest:
    return take(read_request(body, JobRequest))


def test_a_large_payload_is_kept_as_it_was_written() -> None:
    asked = read_job(b'{"task":"a","payload":' + DENSE + b',"tags":["b"]}')

    assert (asked.task, asked.tags) == ("a", ["b"])
    assert isinstance(asked.payload, msgspec.Raw)
    assert bytes(asked.payload) == DENSE


@pytest.mark.parametrize(
    ("field", "pointer"),
    [
        (b'"tags":[' + b",".join([b'"a"'] * 100_000) + b"]", "/tags: "),
        (b'"meta":{"a":' + DENSE + b"}", "/meta: "),
        (b'"prefer":[' + b",".join([b"{}"] * 100_000) + b"]", "/prefer: "),
        (b'"requires":{"labels":{"a":' + DENSE + b"}}", "/requires/labels: "),
    ],
    ids=["tags", "meta", "prefer", "labels"],
)
def test_a_field_other_than_the_payload_has_its_own_size_limit(field: bytes, pointer: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_job(b'{"task":"a",' + field + b"}")

    assert str(caught.value).startswith(pointer)
    assert str(FIELD_BYTES_MAX) in str(caught.value)


def test_an_unknown_field_is_refused_however_large() -> None:
    with pytest.raises(Invalid, match="/x: there is no such field"):
        read_job(b'{"task":"a","x":' + DENSE + b"}")


def test_the_results_in_a_large_request_are_decoded_one_by_one() -> None:
    result = b'{"lease":"0000000000001.1.1","outcome":"completed","result":%b}' % DENSE

    asked = take(read_request(b'{"worker":"w","results":[%b,%b]}' % (result, result), WorkRequest))

    assert asked.worker == "w"
    assert asked.results is not None
    assert [each.outcome for each in asked.results] == ["completed", "completed"]
    assert [each.result for each in asked.results] == [msgspec.Raw(DENSE)] * 2


def test_the_error_for_a_bad_result_in_a_large_request_names_its_position() -> None:
    good = b'{"lease":"0000000000001.1.1","outcome":"completed","result":%b}' % DENSE
    bad = b'{"lease":"0000000000001.1.1","outcome":"odd"}'

    with pytest.raises(Invalid, match="/results/1/outcome: 'odd' is none of"):
        take(read_request(b'{"worker":"w","results":[%b,%b]}' % (good, bad), WorkRequest))


@pytest.mark.parametrize("name", [b"results", b"progress", b"reject"])
def test_an_array_is_decoded_no_further_than_its_limit_of_entries(name: bytes) -> None:
    body = b'{"worker":"w","%b":[%b]}' % (name, b",".join([b"{}"] * 200_000))

    with pytest.raises(Invalid, match=f"/{name.decode()}: Expected array of length <= 1000"):
        take(read_request(body, WorkRequest))


def test_a_field_that_is_decoded_separately_may_be_missing() -> None:
    for operation in OPERATIONS:
        if operation.request is not None:
            for field in msgspec.structs.fields(operation.request):
                assert not field.required or field.type in (str,) or "Meta" in str(field.type)


def test_lines_and_arrays_are_split_into_their_texts() -> None:
    assert [bytes(item) for item in take(split_array(b'[{"a": 1}, 2]'))] == [b'{"a": 1}', b"2"]
    assert [bytes(item) for item in split_lines(b'{"a": 1}\r\n\n2\n')] == [b'{"a": 1}\r', b"2"]


def test_a_batch_of_more_than_a_thousand_is_too_large() -> None:
    with pytest.raises(TooLarge, match="more than 1000 jobs"):
        take(split_array(b"[" + b"1," * 1_000 + b"1]"))
    with pytest.raises(TooLarge, match="more than 1000 jobs"):
        split_lines(b"1\n" * 1_001)
    assert len(take(split_array(b"[" + b"1," * 999 + b"1]"))) == 1_000


@pytest.mark.parametrize("length", [10, 100_000])
def test_a_body_that_is_not_an_array_gets_the_same_error_at_any_length(length: int) -> None:
    with pytest.raises(Invalid, match="the body must be a JSON array"):
        take(split_array(b'{"jobs": ["' + b"x" * length + b'"]}'))


def test_too_many_values_are_refused() -> None:
    with pytest.raises(BadJson, match="more than 800000 values"):
        take(split_array(b"[[" + b"[]," * 700_000 + b"1]]"))


def test_values_in_strings_are_not_counted() -> None:
    (item,) = take(split_array(b'["' + b"1,2,[{" * 300_000 + b'"]'))

    assert len(item) == 1_800_002


def test_two_values_on_one_line_are_refused() -> None:
    (line,) = split_lines(b"1,2\n")

    with pytest.raises(BadJson, match="value 1"):
        take(read_item(line, 1, JobRequest, lambda _: None))

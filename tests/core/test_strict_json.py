"""Strict JSON: hostile texts are refused, and all others are decoded."""

from __future__ import annotations

import contextlib
from typing import Any

import orjson
import pytest

from schedo.core.strict_json import check_exactly, decode_strictly, is_same_json, to_canonical
from schedo.errors import BadJson


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a":1}', {"a": 1}),
        (b' {"a" : [1.5, null, true]} ', {"a": [1.5, None, True]}),
        (b'"caf\\u00e9: \\u003a"', "caf\u00e9: :"),
        (b'{"url":"http://a:80/\\u003ab:c"}', {"url": "http://a:80/:b:c"}),
        (b'{"card":"4111111111111111111111"}', {"card": "4111111111111111111111"}),
        (b"9223372036854775807", 2**63 - 1),
        (b"-9223372036854775808", -(2**63)),
        (b"0.12345678901234567890123", 0.12345678901234568),
        (b'"\\\\u0000"', "\\u0000"),
        ('"\u2028\ufffe"'.encode(), "\u2028\ufffe"),
        (b'"[[[' + b"[" * 100 + b'"', "[[[" + "[" * 100),
        (b"[" * 64 + b"]" * 64, None),
        (b"[" + b"{}," * 500 + b"{}]", [{}] * 501),
    ],
)
def test_ordinary_json_is_read(body: bytes, value: Any) -> None:
    found = decode_strictly(body)

    assert value is None or found == value


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty"),
        (b"{", "not JSON"),
        (b"nul", "not JSON"),
        (b"{} {}", "not JSON"),
        (b'{"a":1}garbage', "not JSON"),
        (b"NaN", "not JSON"),
        (b"[Infinity]", "not JSON"),
        (b"-Infinity", "not JSON"),
        (b"1e400", "not JSON"),
        (b"01", "not JSON"),
        (b"'a'", "not JSON"),
        (b'{"a":1,}', "not JSON"),
        (b'{"a":1}//c', "not JSON"),
        (b'"\x01"', "not JSON"),
        (b'"\\ud800"', "not JSON"),
        (b'"\\udc00\\ud800"', "not JSON"),
        (b'\xef\xbb\xbf{"a":1}', "byte order mark"),
        (b'{"a":"\xff"}', "byte 6"),
        (b'"\xc0\xaf"', "not UTF-8"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        ('{"a":1}'.encode("utf-16"), "UTF-8"),
        (b'"a\\u0000b"', "U\\+0000"),
        (b'{"a\\u0000":1}', "U\\+0000"),
        (b'[{"x":["\\u0000"]}]', "U\\+0000"),
        (b'{"a":1,"a":2}', "'a' occurs twice"),
        (b'{"a":1,"b":{"c":1,"c":1}}', "'c' occurs twice"),
        (b'{"a":1,"\\u0061":2}', "'a' occurs twice"),
        (b'{"a":1,"a":"x","b":"\\u003a"}', "'a' occurs twice"),
        (b'{"a":1,"a":"x","b":"\\u003A"}', "'a' occurs twice"),
        (b'[[{"a":{},"a" :1}]]', "'a' occurs twice"),
        (b'{"":1,"":2}', "'' occurs twice"),
        (b"9223372036854775808", "64 bits"),
        (b"-9223372036854775809", "64 bits"),
        (b'{"a":18446744073709551615}', "64 bits"),
        (b"1" * 30, "64 bits"),
        (b"1" * 5_000, "not JSON"),
        (b"0." + b"1" * 5_000, "longer than 64"),
        (b"[" * 65 + b"]" * 65, "64 levels"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "64 levels"),
        (b'["]",' * 65 + b'"["' + b"]" * 65, "64 levels"),
        (b'["\\"]",' * 65 + b"1" + b"]" * 65, "64 levels"),
        (b"[" * 100_000, "64 levels"),
        (b"[" * 100_000 + b"]" * 100_000, "64 levels"),
    ],
    ids=lambda value: repr(value[:40]),
)
def test_hostile_json_is_refused_with_the_reason(body: bytes, words: str) -> None:
    with pytest.raises(BadJson, match=words):
        decode_strictly(body)


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"[]," * 700_000 + b"1]",
        b"[" + b"1," * 2_000_000 + b"1]",
        b"[" + b'"",' * 2_000_000 + b"1]",
    ],
    ids=["arrays", "numbers", "strings"],
)
def test_too_many_values_are_refused(body: bytes) -> None:
    with pytest.raises(BadJson, match="more than 600000 values"):
        decode_strictly(body)


def test_commas_and_brackets_in_strings_are_not_counted() -> None:
    text = "1,2,[{" * 300_000 + '\\"'

    assert decode_strictly(b'["' + text.encode() + b'"]') == [text.replace("\\", "")]


_LARGE = {
    "deep": b"[" * 500_000,
    "pairs of brackets": b"[" + b"[]," * 340_000 + b"[]]",
    "many keys": b"{" + b",".join(b'"%d":1' % i for i in range(90_000)) + b"}",
    "many keys, the last one twice": b"{"
    + b",".join(b'"%d":1' % i for i in range(90_000))
    + b',"7":1}',
    "one long string": b'"' + b"\\u003a" * 170_000 + b'"',
    "open quotes": b'"\\' * 500_000,
    "long number": b"1" * 1_000_000,
}


@pytest.mark.timeout(30)  # it takes some milliseconds; what grew with the square would take hours
@pytest.mark.parametrize("body", _LARGE.values(), ids=_LARGE.keys())
def test_a_mebibyte_of_hostile_json_is_read_without_quadratic_work(body: bytes) -> None:
    with contextlib.suppress(BadJson):
        decode_strictly(body)


def test_strict_decoding_gives_the_same_value_as_orjson() -> None:
    body = b'{"task":"shell","payload":{"command":"echo hi"},"delay":"5s","tags":["a","b"]}'

    assert decode_strictly(body) == orjson.loads(body)


def test_the_exact_check_refuses_numbers_that_json_does_not_have() -> None:
    with pytest.raises(BadJson, match="NaN is not JSON"):
        check_exactly(b"[NaN]")


@pytest.mark.parametrize(
    ("body", "canonical"),
    [
        (b' {"b" : 1.50, "a": ["\\u00e9", {}]} ', '{"a":["\u00e9",{}],"b":1.5}'.encode()),
        (b'[1, "a\\nb"]', b'[1,"a\\nb"]'),
    ],
)
def test_an_ordinary_text_has_a_canonical_form(body: bytes, canonical: bytes) -> None:
    assert to_canonical(body) == canonical


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[NaN]",
        b'{"a":1,"a":2}',
        b'{"a\\u003a":1,"a:":2}',
        b"[9223372036854775808]",
        b'"\\u0000"',
        b'"\\ud800"',
        b"[" * 300 + b"]" * 300,
    ],
)
def test_a_text_that_needs_a_closer_look_has_no_canonical_form(body: bytes) -> None:
    assert to_canonical(body) is None


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (b'{"a": 1}', b'{"a": 1}', True),
        (b'{"a": 1, "b": {"c": 2, "d": 3}}', b'{"b": {"d": 3, "c": 2}, "a": 1}', True),
        (b"[1, 2]", b"[2, 1]", False),
        (b"1", b"1.0", False),
        (b"1", b"true", False),
    ],
)
def test_two_texts_have_one_value_whatever_the_order_of_keys(
    one: bytes, other: bytes, is_same: bool
) -> None:
    assert is_same_json(one, other) is is_same

"""A large text is checked piece by piece, exactly as strictly as a small one."""

from __future__ import annotations

import random

import orjson
import pytest

from schedo.core.strict_json import decode_strictly
from schedo.errors import BadJson
from schedo.protocol import pieces
from schedo.protocol.pieces import check_pieces, count_values
from tests.protocol.steps import take

_SCALARS = [
    *("1", "-2.5", "1e5", "null", "true", '""', '"x"', '"a,b"', '"[{"', '" : "', '"é,"'),
    *('"\\\\"', '"\\""', '"\\\\\\""', '"\\u003a"', '"\\ud83d\\ude00"', '"\\u0000"'),
    *("9223372036854775807", "9223372036854775808"),
]
_KEYS = ['"a"', '"\\u0061"', '""', '"a,b"', '"\\""', '"\\\\"', '":"', '"\\u003a"']
_SIGNS = b'[]{},:"\\ 1a\n\xff'


def check(text: bytes) -> None:
    take(check_pieces(text))


def make_text(draw: random.Random, level: int = 0) -> str:
    """Return JSON, in which keys may be duplicated."""
    choice = draw.random()
    if level > 5 or choice < 0.3:
        return draw.choice(_SCALARS)
    members = [make_text(draw, level + 1) for _ in range(draw.randrange(6))]
    comma = draw.choice((",", " ,", ",\n"))
    if choice < 0.65:
        return f"[{comma.join(members)}]"
    keys = [draw.choice([f'"k{draw.randrange(12)}"', draw.choice(_KEYS)]) for _ in members]
    return (
        "{"
        + comma.join(f"{key}: {member}" for key, member in zip(keys, members, strict=True))
        + "}"
    )


def spoil(draw: random.Random, text: bytes) -> bytes:
    """Change, add or remove a byte."""
    at = draw.randrange(len(text))
    sign = bytes([draw.choice(_SIGNS)])
    return draw.choice(
        (
            text[:at] + sign + text[at + 1 :],
            text[:at] + sign + text[at:],
            text[:at] + text[at + 1 :],
        )
    )


def is_taken(read: object, text: bytes) -> bool:
    assert callable(read)
    try:
        read(text)
    except BadJson:
        return False
    return True


@pytest.mark.parametrize("seed", range(40))
def test_a_text_read_in_pieces_is_accepted_or_refused_like_the_whole_text(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    for _ in range(100):
        monkeypatch.setattr(pieces, "PIECE_BYTES", draw.choice((1, 2, 3, 5, 8, 13, 40)))
        text = make_text(draw).encode()
        if draw.random() < 0.5:
            text = spoil(draw, text)

        assert is_taken(check, text) == is_taken(decode_strictly, text), text


_FILL = b",".join([b"[1,2]"] * 20_000)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"a":1,"b":[' + _FILL + b'],"a":2}', "'a' occurs twice"),
        (b'{"a":{"b":1,"c":[' + _FILL + b'],"b":2}}', "'b' occurs twice"),
        (b'[{"a":[' + _FILL + b'],"a":[' + _FILL + b"]}]", "'a' occurs twice"),
        (b"[" + _FILL + b",]", "comma"),
        (b"[" + _FILL + b"],1", "not JSON"),
        (b"[" + _FILL + b"}", "not JSON"),
        (b"[" + _FILL, "not JSON"),
        (b"[" + _FILL + b"]]", "not JSON"),
        (b"[" + _FILL + b',"\\u0000"]', "U\\+0000"),
        (b"[" + _FILL + b',"\xff"]', "not UTF-8"),
        (b"[" + _FILL + b",9223372036854775808]", "64 bits"),
        (b"[" + _FILL + b"," + b"[" * 64 + b"]" * 64 + b"]", "64 levels"),
        (b"[" * 65 + _FILL + b"]" * 65, "64 levels"),
        (b'"' + b"x" * 2_200_000 + b'"', "longer than 2097152 bytes"),
        (b"[" + b" " * 2_200_000 + b"1]", "longer than 2097152 bytes"),
        (b"[" + b"1," * 800_001 + b"1]", "more than 800000 values"),
        (
            b"{" + b",".join(b'"%d":1' % number for number in range(120_000)) + b"}",
            "more than 100000 keys",
        ),
    ],
    ids=lambda value: repr(value[-30:]),
)
def test_the_error_of_a_large_text_is_reported(text: bytes, words: str) -> None:
    with pytest.raises(BadJson, match=words):
        check(text)


def test_the_position_of_an_error_counts_from_the_start_of_the_whole_text() -> None:
    text = b'{"first":1,\n"list":[' + _FILL + b",nul]}"

    with pytest.raises(BadJson) as caught:
        check(text)

    # "list":[ takes 8 characters, and the bad word stands behind the comma.
    column = 8 + len(_FILL) + 2
    assert f"line 2, column {column}" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        b"[" + b"[]," * 340_000 + b"[]]",
        b"[" + b"1," * 520_000 + b"1]",
        b"[" + b",".join([b"[" * 60 + b"]" * 60] * 8_000) + b"]",
        b'["\\\\u0000"' + b",1" * 500_000 + b"]",
        b"{" + b",".join(b'"\\u003a%d":1' % number for number in range(60_000)) + b"}",
    ],
    ids=["lists", "numbers", "levels", "a suspicion", "keys"],
)
def test_no_step_reads_more_than_a_piece(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    loads = orjson.loads

    def watch(part: bytes) -> object:
        read.append(len(part))
        return loads(part)

    monkeypatch.setattr(orjson, "loads", watch)
    steps = sum(1 for _ in check_pieces(text))

    assert max(read) < pieces.PIECE_BYTES + 1_024  # and the brackets that are open around it
    assert steps >= len(text) // pieces.PIECE_BYTES


def test_values_are_counted_outside_of_strings() -> None:
    assert take(count_values(b'["' + b"1,2,[" * 10_000 + b'",2]')) == 3

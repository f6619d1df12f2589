"""Encoding of Python arguments as a payload, decoding, types, and refusals."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import pytest

from schedo.tasks.arguments import Arguments, BadPayload

if TYPE_CHECKING:
    from decimal import Decimal


class Colour(Enum):
    RED = "red"


@dataclasses.dataclass
class Order:
    number: int
    colour: Colour


class Model:
    """Behaves like a model of pydantic."""

    def __init__(self, value: int) -> None:
        self.value = value

    def model_dump(self, mode: str) -> dict[str, int]:
        return {"value": self.value}

    @classmethod
    def model_validate(cls, data: dict[str, int]) -> Model:
        return cls(data["value"])


class Opaque:
    pass


def send(to: str, subject: str = "hi", *, copies: int = 1) -> None: ...
def typed(when: datetime, key: UUID, order: Order, pair: tuple[int, float]) -> None: ...
def untyped(value, other=None): ...  # type: ignore[no-untyped-def]
def open_ended(first: int, **rest: int) -> None: ...
def modelled(model: Model) -> None: ...
def opaque(thing: Opaque) -> None: ...
def checker_only(amount: Decimal) -> None: ...


def test_positional_arguments_get_their_names() -> None:
    payload = Arguments("send", send).write(("ada", "hello"), {"copies": 2})

    assert payload == b'{"to":"ada","subject":"hello","copies":2}'


def test_defaults_of_a_function_are_not_stored_in_the_payload() -> None:
    assert Arguments("send", send).write(("ada",), {}) == b'{"to":"ada"}'


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        (("a", "b", "c"), {}),
        (("a", "b", "c"), {"copies": 1}),
        (("a",), {"to": "b"}),
        (("a",), {"cc": "b"}),
        ((), {"subject": "b", "copies": 1}),
        ((), {1: "b"}),
    ],
    ids=["missing", "too many", "too many by one", "twice", "unknown", "without to", "number"],
)
def test_a_call_with_wrong_arguments_raises_the_error_of_its_signature(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(TypeError) as expected:
        inspect.signature(send).bind(*args, **kwargs)

    with pytest.raises(TypeError) as raised:
        Arguments("send", send).write(args, kwargs)

    assert str(raised.value) == f"task 'send': {expected.value}"


def test_an_unknown_argument_of_a_call_names_a_similar_one() -> None:
    with pytest.raises(
        TypeError, match=r"unexpected keyword argument 'copis'; did you mean copies"
    ):
        Arguments("send", send).write(("ada",), {"copis": 2})


def test_arguments_are_written_in_the_order_of_the_parameters() -> None:
    assert Arguments("send", send).write((), {"copies": 2, "to": "a"}) == b'{"to":"a","copies":2}'


def test_an_extra_argument_may_have_the_name_of_the_rest() -> None:
    assert Arguments("o", open_ended).write((1,), {"rest": 2}) == b'{"first":1,"rest":2}'


@pytest.mark.parametrize(
    "value", [Opaque(), "\ud800", {Opaque(): 1}], ids=["class", "surrogate", "key"]
)
def test_a_value_without_a_json_form_raises_a_type_error(value: object) -> None:
    with pytest.raises(TypeError, match="'untyped' cannot be written as JSON"):
        Arguments("untyped", untyped).write((value,), {})


def test_a_payload_leaves_out_what_the_call_leaves_out() -> None:
    arguments = Arguments("send", send)

    payload = arguments.write(("ada",), {"copies": 3})

    assert payload == b'{"to":"ada","copies":3}'
    assert arguments.read(payload) == {"to": "ada", "copies": 3}


def test_an_error_in_one_argument_names_it_whatever_the_others_are() -> None:
    payload = b'{"when": "soon", "key": 1, "order": {}, "pair": []}'

    with pytest.raises(BadPayload, match="payload /when: "):
        Arguments("typed", typed).read(payload)


def test_arguments_larger_than_a_payload_are_refused() -> None:
    with pytest.raises(TypeError, match="are 1048587 bytes of JSON; the limit is 1048576"):
        Arguments("untyped", untyped).write(("x" * 1_048_575,), {})


def test_arguments_are_decoded_to_their_annotated_types() -> None:
    arguments = Arguments("typed", typed)
    values = {
        "when": datetime(2026, 11, 20, 11, 4, 5, tzinfo=UTC),
        "key": UUID("12345678-1234-5678-1234-567812345678"),
        "order": Order(3, Colour.RED),
        "pair": (1, 2.5),
    }

    assert arguments.read(arguments.write((), values)) == values


def test_arguments_without_annotation_are_decoded_as_plain_json() -> None:
    read = Arguments("untyped", untyped).read(b'{"value": {"a": [1, null]}, "other": "x"}')

    assert read == {"value": {"a": [1, None]}, "other": "x"}


def test_an_annotation_that_only_a_type_checker_knows_means_plain_json() -> None:
    assert Arguments("c", checker_only).read(b'{"amount": "1.5"}') == {"amount": "1.5"}


def test_extra_keyword_arguments_have_their_annotated_type() -> None:
    arguments = Arguments("open_ended", open_ended)

    assert arguments.write((1,), {"x": 2}) == b'{"first":1,"x":2}'
    assert arguments.read(b'{"first": 1, "x": 2, "y": 3}') == {"first": 1, "x": 2, "y": 3}
    with pytest.raises(BadPayload, match="payload /x: Expected `int`"):
        arguments.read(b'{"first": 1, "x": "two"}')


def test_models_are_encoded_and_decoded_by_their_own_methods() -> None:
    arguments = Arguments("modelled", modelled)
    payload = arguments.write((Model(7),), {})

    assert payload == b'{"model":{"value":7}}'
    assert arguments.read(payload)["model"].value == 7


def test_a_null_payload_means_no_arguments() -> None:
    assert Arguments("untyped", lambda: None).read(b"null") == {}


@pytest.mark.parametrize(
    ("function", "payload", "message"),
    [
        (send, b"[1]", "must be a JSON object with the arguments of task 'task'"),
        (send, b'"text"', "must be a JSON object"),
        (send, b"null", "'to' is missing; the task is task(to: 'str'"),
        (send, b'{"to": "a", "cc": "b"}', "'cc' is unknown"),
        (send, b'{"to": 1}', "payload /to: Expected `str`, got `int`"),
        (send, b'{"to": "a", "copies": "2"}', "payload /copies: Expected `int`, got `str`"),
        (typed, b'{"when": "soon", "key": 1, "order": 1, "pair": 1}', "payload /when: Invalid"),
        (opaque, b'{"thing": {}}', "payload /thing: Opaque cannot be decoded from JSON"),
        (modelled, b'{"model": {}}', "payload /model: 'value'"),
    ],
    ids=["list", "text", "missing", "unknown", "type", "strict", "format", "opaque", "model"],
)
def test_a_payload_that_does_not_match_is_reported(
    function: Callable[..., Any], payload: bytes, message: str
) -> None:
    with pytest.raises(BadPayload) as caught:
        Arguments("task", function).read(payload)

    assert message in str(caught.value)


@pytest.mark.parametrize(
    "function",
    [lambda *args: None, lambda a, /: None],
    ids=["*args", "positional-only"],
)
def test_arguments_that_have_no_name_are_refused_when_declared(
    function: Callable[..., Any],
) -> None:
    with pytest.raises(TypeError, match="jobs pass arguments by name"):
        Arguments("task", function)


@pytest.mark.parametrize("value", [float("nan"), float("inf")], ids=str)
def test_a_float_that_json_has_not_is_refused(value: float) -> None:
    def task(means: object, of: object = None) -> None: ...

    with pytest.raises(TypeError, match="JSON has no NaN and no infinity"):
        Arguments("task", task).write(([1.5, value],), {})
    assert Arguments("task", task).write(([1.5, None],), {}) == b'{"means":[1.5,null]}'
    raw = Arguments("task", task).write((msgspec.Raw(b"null"),), {})
    assert raw == b'{"means":null}'


def test_a_none_among_the_arguments_costs_no_look_at_each_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def task(means: object, of: object = None) -> None: ...

    looks: list[object] = []
    monkeypatch.setattr("schedo.tasks.arguments._holds_no_number", looks.append)
    Arguments("task", task).write(([1.5, None, 1 << 63, "\u02ff\u07ff", b"bytes"], {"a": None}), {})
    assert not looks

    Arguments("task", task).write(([None, 1 << 64],), {})  # only JSON has such an integer
    assert len(looks) == 1

"""The OpenAPI document is valid, current, and true of the real answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from openapi_spec_validator import validate

from schedo.protocol.decode import decode_checked
from schedo.protocol.examples import EXAMPLES
from schedo.protocol.field_texts import FIELD_TEXTS
from schedo.protocol.fields import NAME_PATTERN
from schedo.protocol.form_examples import FIELD_EXAMPLES
from schedo.protocol.openapi import DOCUMENT, FORMS, build_document, render_document
from schedo.protocol.operation import Operation
from schedo.protocol.operations import OPERATIONS


def test_the_document_in_the_repository_is_current() -> None:
    assert DOCUMENT.read_bytes() == render_document(), "run python -m schedo.protocol.openapi"


def test_the_document_is_valid_openapi() -> None:
    validate(json.loads(render_document()))


def test_every_reference_of_the_document_has_a_target() -> None:
    document = build_document()
    text = json.dumps(document)

    names = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}

    assert names == set(document["components"]["schemas"]) & names
    assert "JobRequest" in names


def test_each_field_has_a_sentence_of_meaning() -> None:
    missing = [
        each
        for each, described in list_fields().items()
        if described.get("description") in {None, "", *FORMS}
    ]

    assert missing == []


def test_each_sentence_is_that_of_a_field() -> None:
    named = {each.removeprefix("Light") for each in list_fields()}
    named |= {each.partition(".")[2] for each in named}

    assert [each for each in FIELD_TEXTS if each not in named] == []


def test_each_sentence_is_one_and_not_only_its_name() -> None:
    wrong = [each for each, text in FIELD_TEXTS.items() if not text.endswith(".") or "\n" in text]

    assert wrong == []


def list_fields() -> dict[str, Any]:
    """Return the descriptions of all fields by "Type.field"."""
    return {
        f"{name}.{field}": described
        for name, schema in build_document()["components"]["schemas"].items()
        for field, described in schema.get("properties", {}).items()
    }


def test_each_parameter_has_a_sentence_of_meaning() -> None:
    document = build_document()
    missing = [
        f"{operation['operationId']} {parameter['name']}"
        for item in document["paths"].values()
        for operation in item.values()
        for parameter in operation.get("parameters", [])
        if not parameter.get("description", "").endswith(".")
    ]

    assert missing == []


def test_each_text_of_a_form_that_is_not_obvious_has_an_example_of_it() -> None:
    obvious = {NAME_PATTERN, "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"}
    texts = [each for each in list_schemas(build_document()) if "pattern" in each]

    assert len(texts) > 100
    for each in texts:
        if each["pattern"] in obvious:
            continue
        matching = [text for text in each["examples"] if re.search(each["pattern"], str(text))]
        assert matching == each["examples"], each


def test_each_example_of_a_field_is_shown_in_the_document() -> None:
    shown = json.dumps(build_document())

    for name, example in FIELD_EXAMPLES.items():
        assert json.dumps([example]) in shown, name


def list_schemas(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of the document."""
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    if isinstance(node, list):
        for inner in node:
            yield from list_schemas(inner)


def test_a_body_is_required_where_one_of_its_fields_is() -> None:
    paths = build_document()["paths"]

    assert paths["/v1/jobs"]["post"]["requestBody"]["required"] is True
    assert paths["/v1/jobs/{id}:cancel"]["post"]["requestBody"]["required"] is False


def test_every_operation_is_in_a_listed_chapter() -> None:
    document = build_document()
    chapters = {tag["name"] for tag in document["tags"]}

    used = {
        tag for item in document["paths"].values() for each in item.values() for tag in each["tags"]
    }

    assert used == chapters


def test_no_optional_field_has_a_default_that_makes_it_required_in_typed_clients() -> None:
    document = build_document()

    assert '"default":' not in json.dumps(document["components"])
    assert document["components"]["schemas"]["JobRequest"]["properties"]["queue"]["x-default"]


@pytest.mark.parametrize(
    "operation", [each for each in OPERATIONS if each.request], ids=lambda each: each.name
)
def test_every_body_that_is_required_has_an_example_of_its_type(operation: Operation) -> None:
    assert operation.request is not None
    example = EXAMPLES.get(operation.name)
    if example is None:
        assert operation.body_is_optional
        return
    for body in example if operation.is_batch else [example]:
        decode_checked(msgspec.json.encode(body), operation.request)

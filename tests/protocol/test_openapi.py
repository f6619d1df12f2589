"""The OpenAPI document is valid, current, and true of the real answers."""

from __future__ import annotations

import json

import msgspec
import pytest
from openapi_spec_validator import validate

from schedo.protocol.decode import decode_checked
from schedo.protocol.examples import EXAMPLES
from schedo.protocol.field_texts import DESCRIBED, FIELD_TEXTS
from schedo.protocol.openapi import DOCUMENT, build_document, render_document
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


def test_each_field_of_the_main_types_has_a_sentence_of_meaning() -> None:
    components = build_document()["components"]["schemas"]

    missing = [
        f"{name}.{field}"
        for name in sorted(DESCRIBED)
        for field, described in components[name]["properties"].items()
        if not {"description", "$ref"} & described.keys()
    ]

    assert missing == []


def test_each_sentence_is_that_of_a_field() -> None:
    components = build_document()["components"]["schemas"]
    fields = {f"{name}.{field}" for name in DESCRIBED for field in components[name]["properties"]}

    named = fields | {each.partition(".")[2] for each in fields}

    assert [each for each in FIELD_TEXTS if each not in named] == []


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

"""The OpenAPI document is valid, current, and true of the real answers."""

from __future__ import annotations

import json

from openapi_spec_validator import validate

from schedo.protocol.openapi import DOCUMENT, build_document, render_document


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


def test_a_body_is_required_where_one_of_its_fields_is() -> None:
    paths = build_document()["paths"]

    assert paths["/v1/jobs"]["post"]["requestBody"]["required"] is True
    assert paths["/v1/jobs/{id}:cancel"]["post"]["requestBody"]["required"] is False

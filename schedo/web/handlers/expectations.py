"""Named expectations of work outside of schedo, and their beats."""

from __future__ import annotations

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from schedo.core.commands import PutEffect
from schedo.core.expectations import Expectation
from schedo.protocol import fields
from schedo.protocol.expectations import ExpectationRequest, ExpectationResponse
from schedo.protocol.masking import has_mask, reuse_expect
from schedo.protocol.roles import Role
from schedo.web.context import AppContext
from schedo.web.http import Request, Response
from schedo.web.pages import page_response


async def put_expectation(context: AppContext, request: Request) -> Response:
    spec = (await request.read(ExpectationRequest)).to_spec(_name(request))
    table = context.engine.expectations
    stored = next((each for each in table.named() if each.name == spec.name), None)
    if stored is not None and has_mask(request.body):
        spec = replace(spec, expect=reuse_expect(spec.expect, stored.expect))
    context.check_expect(request, "", spec.expect)
    expectation, effect = await table.put(spec)
    response = ExpectationResponse.of(expectation)
    response.effect = effect
    response.warnings = context.warn_of_expect(spec.expect) or UNSET
    location = request.location(f"/v1/expectations/{spec.name}")
    status = 201 if effect is PutEffect.CREATED else 200
    return Response(status, msgspec.json.encode(response)).with_headers(location)


async def list_expectations(context: AppContext, request: Request) -> Response:
    return await page_response(ExpectationResponse.of, context.engine.expectations.named())


async def get_expectation(context: AppContext, request: Request) -> Response:
    return _respond(context.engine.expectations.get(_name(request)))


async def delete_expectation(context: AppContext, request: Request) -> Response:
    await context.engine.expectations.delete(_name(request))
    return Response(204, b"")


async def beat_expectation(context: AppContext, request: Request) -> Response:
    response = ExpectationResponse.of(await context.engine.expectations.beat(_name(request)))
    permission = request.permission
    if permission is not None and not permission.includes(Role.VIEWER):
        # Their payloads can have the addresses and credentials of webhooks.
        response.on_miss = response.on_back = UNSET
    return Response(200, msgspec.json.encode(response))


def _respond(expectation: Expectation) -> Response:
    return Response(200, msgspec.json.encode(ExpectationResponse.of(expectation)))


def _name(request: Request) -> str:
    return fields.read_name("/name", request.params["name"])

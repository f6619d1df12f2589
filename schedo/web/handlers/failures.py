"""GET /v1/failures: what fails, in groups."""

from __future__ import annotations

import msgspec

from schedo.protocol.failures import FailureGroupResponse, FailuresResponse
from schedo.protocol.times import render_instant
from schedo.web.context import AppContext
from schedo.web.http import Request, Response


async def list_failures(context: AppContext, request: Request) -> Response:
    now = context.engine.clock.now()
    items = [FailureGroupResponse.of(group, now) for group in context.engine.failures.latest()]
    since = render_instant(context.engine.metrics.began_at)
    return Response(200, msgspec.json.encode(FailuresResponse(since, items)))

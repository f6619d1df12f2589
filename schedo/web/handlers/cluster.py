"""GET /v1/cluster: the servers that share the store."""

from __future__ import annotations

import msgspec

from schedo.protocol.cluster import ClusterResponse
from schedo.web.context import AppContext
from schedo.web.http import Request, Response


async def get_cluster(context: AppContext, request: Request) -> Response:
    cluster = context.cluster
    found = ClusterResponse(None, [], []) if cluster is None else cluster.describe()
    return Response(200, msgspec.json.encode(found))

"""GET /v1/cluster, and its metrics: the servers that share the store."""

from __future__ import annotations

import msgspec

from schedo.core.limits import SECOND
from schedo.protocol.cluster import ClusterResponse
from schedo.protocol.prometheus import Family, Sample, render_labels
from schedo.protocol.times import render_instant
from schedo.web.context import AppContext
from schedo.web.http import Request, Response


async def get_cluster(context: AppContext, request: Request) -> Response:
    cluster = context.cluster
    if cluster is None:
        found = ClusterResponse(None, [], [], render_instant(context.engine.clock.now()))
    else:
        found = cluster.describe()
    return Response(200, msgspec.json.encode(found))


def render_cluster(found: ClusterResponse | None) -> list[Family]:
    """Return the families about the servers of a cluster; none for a server that is alone."""
    if found is None:
        return []
    living = [each for each in found.members if each.silent_us is not None]
    own = sum(len(each.shards) for each in living if each.number == found.me)
    clocks = [each for each in living if isinstance(each.clock_ahead_us, int)]
    return [
        _gauge("schedo_cluster_servers", "Servers that share the store.", Sample(len(living))),
        _gauge(
            "schedo_cluster_unreachable_servers",
            "Of these, how many this server cannot send requests to.",
            Sample(sum(not each.reachable for each in living)),
        ),
        _gauge("schedo_cluster_shards", "Shards that this server owns.", Sample(own)),
        _gauge(
            "schedo_cluster_unowned_shards",
            "Shards that no server owns: they move, or their owner has just died.",
            Sample(len(found.unowned)),
        ),
        _gauge(
            "schedo_cluster_clock_ahead_seconds",
            "By how much the clock of a server's machine is ahead of the database's.",
            *(
                Sample((each.clock_ahead_us or 0) / SECOND, render_labels(server=each.name))
                for each in clocks
            ),
        ),
    ]


def _gauge(name: str, text: str, *samples: Sample) -> Family:
    return Family(name, "gauge", text, list(samples))

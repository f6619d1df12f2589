"""The servers that share a store: the response of GET /v1/cluster."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from schedo.protocol.fields import Instant
from schedo.protocol.operation import Operation


class MemberResponse(Struct, forbid_unknown_fields=True, kw_only=True):
    """A server of a cluster, as the server that was asked sees it.

    `silent_us` is how long ago its last heartbeat was; null: its session with PostgreSQL is gone.
    `clock_ahead_us` is by how much the clock of its machine is ahead of that of the database.
    """

    number: int
    name: str
    url: str | None
    epoch: int
    version: str
    state: Literal["open", "leaving", "closed"]
    shards: list[int]
    silent_us: int | None
    reachable: bool
    clock_ahead_us: int | UnsetType = UNSET
    problem: str | UnsetType = UNSET


class ClusterResponse(Struct, forbid_unknown_fields=True):
    """The servers that share a store, and the shards that each of them owns.

    A server with a store in a file is alone: it has no members, and `me` is null. `unowned` are
    shards that move, or whose owner has just died.
    """

    me: int | None
    members: list[MemberResponse]
    unowned: list[int]
    now: Instant


OPERATIONS = (
    Operation(
        "get_cluster",
        "GET /v1/cluster",
        "List the servers that share the store, with the shards that they own.",
        {200: ClusterResponse},
    ),
)

"""Where each operation is carried out: the table that says which servers a request involves.

A row of the table names operations of the HTTP API. A test demands that each of them has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from schedo.core.shards import SHARDS
from schedo.errors import PeerUnreachable, SchedoError, Unavailable
from schedo.store.cluster import Cluster, MemberState

# Its owner decides the order of the changes that concern no name, such as a pause of all servers.
NAMELESS_SHARD = 0
MOVES = "the jobs that this is about move to another server; try again soon"


class Home(StrEnum):
    """Which server of a cluster can answer a request."""

    WORK = "work"  # the one that was asked, for its own jobs; the others, each for its jobs
    HERE = "here"  # the one that was asked: it answers for itself
    ANY = "any"  # the one that was asked, because all read the same database
    JOB = "job"  # the owner of the job's shard
    OPERATION = "operation"  # the owner of the shard of an operation on many jobs
    TEXT = "text"  # the owner of the shard of a name or a key
    SPLIT = "split"  # the owners of the shards of a batch, each for its part
    FIND = "find"  # the one that was asked, or else the first of the others that can
    WORKER = "worker"  # all that know the worker, and their answers become one
    SEEN = "seen"  # all that know the worker, and their answers become one
    INVOKE = "invoke"  # as FIND, but it makes jobs
    GATHER = "gather"  # all, and their answers become one
    STREAM = "stream"  # all, each with what happens there
    LINK = "link"  # the one that was asked, or the one that has made the link
    STEP = "step"  # the one that was asked, if it has a shard; the owners of the jobs take part
    PARTS = "parts"  # all, each for the names whose shards it owns
    EVERYONE = "everyone"  # one that decides the order of changes, and then all others


_OPERATIONS: Mapping[Home, str] = {
    Home.WORK: "work",
    Home.HERE: """
        check_health check_ready get_metrics get_info get_openapi get_problem
        get_me delete_session create_session_link
        advance_clock create_backup get_cluster
        """,
    Home.ANY: """
        list_jobs
        list_schedules list_decisions list_schedule_fires list_fires explain_cron
        get_stats get_store list_log
        """,
    Home.JOB: """
        update_job cancel_job retry_job run_job delete_job wait_for_job explain_job get_progress
        get_history
        """,
    Home.TEXT: """
        create_job short_schedule
        put_schedule get_schedule delete_schedule reset_schedule
        pause_schedule resume_schedule trigger_schedule
        put_expectation get_expectation delete_expectation beat_expectation
        """,
    Home.SPLIT: "create_jobs",
    Home.FIND: """
        get_job list_attempts get_output short_status
        reserve commit_reservation release_reservation
        """,
    Home.OPERATION: "get_operation cancel_operation undo_operation",
    Home.SEEN: "get_worker",
    Home.WORKER: "cordon_worker uncordon_worker drain_worker",
    Home.INVOKE: "invoke",
    Home.GATHER: """
        list_workers list_queues list_expectations list_failures list_operations list_names
        get_summary get_timeseries
        """,
    Home.STREAM: "get_events",
    Home.STEP: "create_operation",
    Home.LINK: "create_session",
    Home.PARTS: "declare",
    Home.EVERYONE: "update_queue pause_queue resume_queue pause_server resume_server",
}
HOMES: Mapping[str, Home] = {
    name: home for home, names in _OPERATIONS.items() for name in names.split()
}


def find_maker(cluster: Cluster) -> int | None:
    """Return a shard whose owner makes new jobs and operations; None: this server does.

    One that has just joined owns no shard yet, and one that leaves starts no job any more.
    """
    owns_any = any(map(cluster.is_mine, range(SHARDS)))
    if owns_any and cluster.me.state is MemberState.OPEN:
        return None
    staying = {member.no for member in cluster.members() if member.state is MemberState.OPEN}
    owners = ((shard, cluster.owner(shard)) for shard in range(SHARDS))
    found = (shard for shard, owner in owners if owner is not None and owner.no in staying)
    return next(found, None if owns_any else NAMELESS_SHARD)


def list_owners(cluster: Cluster) -> list[int | None]:
    """Return the number of the owner of each shard; None: it has none."""
    owners = map(cluster.owner, range(SHARDS))
    return [None if owner is None else owner.no for owner in owners]


def explain_owner(cluster: Cluster, shard: int) -> SchedoError:
    """Return why no request about the shard can be sent to its owner now."""
    owner = cluster.owner(shard)
    if owner is None or owner.url or owner.no == cluster.me.no:
        return Unavailable(MOVES)
    return PeerUnreachable(
        f"the server {owner.name} has what this is about and accepts no requests: it starts, or it"
        " is an application that embeds the scheduler"
    )


def owns_all(cluster: Cluster) -> bool:
    """Whether this server has every shard; not yet, if the last other one has just died."""
    return all(map(cluster.is_mine, range(SHARDS)))

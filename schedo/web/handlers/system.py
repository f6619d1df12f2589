"""Health, readiness, versions, and the documents about the API."""

from __future__ import annotations

import platform
import sqlite3
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec import UNSET

from schedo.core import limits
from schedo.core.built_in import may_run
from schedo.core.limits import BATCH_BYTES_MAX
from schedo.engine.call_results import Health, describe_pauses
from schedo.protocol.operation import BODY_BYTES_MAX
from schedo.protocol.problems import get_kind
from schedo.protocol.roles import Role
from schedo.protocol.system import (
    HealthResponse,
    InfoResponse,
    ObjectiveResponse,
    ReadyCode,
    ReadyResponse,
    ServerPause,
)
from schedo.protocol.times import render_instant
from schedo.virtual_clock import VirtualClock
from schedo.web.context import AppContext
from schedo.web.handlers.summary import describe_caller, list_features
from schedo.web.http import Request, Response

_ALIVE = msgspec.json.encode(HealthResponse("ok"))
_OPENAPI = Path(__file__).parents[1] / "static" / "openapi.json"


async def check_health(context: AppContext, request: Request) -> Response:
    return Response(200, _ALIVE)


async def check_ready(context: AppContext, request: Request) -> Response:
    health = context.engine.health()
    reasons = list(health.reasons)
    if context.draining.is_set():
        reasons.append("the server is stopping")
    is_ready = health.ready and not context.draining.is_set()
    status, code = 200 if is_ready else 503, _find_code(context, health)
    if request.permission is None or not request.permission.includes(Role.VIEWER):
        return Response(status, msgspec.json.encode(ReadyResponse(is_ready, code)))
    notes = read_notes(context, health)
    body = ReadyResponse(is_ready, code, "active", health.epoch, reasons, notes or UNSET)
    return Response(status, msgspec.json.encode(body))


def read_notes(context: AppContext, health: Health) -> list[str]:
    """Return what an operator should know of a server, whether it is ready or not."""
    notes = [_describe_clock(health.clock_behind_us)] if health.clock_behind_us else []
    pauses = context.engine.pauses()
    if pauses:
        notes.append(f"the server is paused: {describe_pauses(pauses)}; schedo resume ends that")
    if context.cluster is not None:
        notes += context.cluster.notes()
    return notes


async def get_info(context: AppContext, request: Request) -> Response:
    clock = context.engine.clock
    info = InfoResponse(
        version=context.settings.version,
        role="active",
        epoch=context.engine.health().epoch,
        python=platform.python_version(),
        sqlite=sqlite3.sqlite_version,
        tzdata=_tzdata_version(),
        shell=may_run("shell", context.settings.permissions),
        limits={
            "body_bytes": BODY_BYTES_MAX,
            "batch_bytes": BATCH_BYTES_MAX,
            "batch_jobs": limits.BATCH_JOBS_MAX,
            "payload_bytes": limits.PAYLOAD_BYTES_MAX,
            "result_bytes": limits.RESULT_BYTES_MAX,
            "output_bytes": limits.OUTPUT_BYTES_MAX,
            "attempts": limits.ATTEMPTS_MAX,
        },
        pauses=[*map(ServerPause.of, context.engine.pauses())],
        now=render_instant(clock.now()),
        objective=ObjectiveResponse(context.settings.lateness_objective_us),
        caller=describe_caller(request),
        features=list_features(context),
        test_clock=render_instant(clock.now()) if isinstance(clock, VirtualClock) else UNSET,
    )
    return Response(200, msgspec.json.encode(info))


async def get_openapi(context: AppContext, request: Request) -> Response:
    return Response(200, _OPENAPI.read_bytes())


async def get_problem(context: AppContext, request: Request) -> Response:
    return Response(200, msgspec.json.encode(get_kind(request.params["code"])))


def _find_code(context: AppContext, health: Health) -> ReadyCode:
    if context.draining.is_set():
        return "stopping"
    if health.ready:
        return "ready"
    return "late" if health.epoch else "store-failed"  # a failed store has no epoch


def _describe_clock(behind_us: int) -> str:
    return (
        f"the clock is {behind_us // limits.SECOND} s behind the newest instant in the store:"
        " what follows the wall clock, such as cron, has nothing to do until it has caught up"
    )


@lru_cache(maxsize=1)
def _tzdata_version() -> str:
    # Imported on the first use: it brings a megabyte of parsers with it.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tzdata")
    except PackageNotFoundError:
        return "system"

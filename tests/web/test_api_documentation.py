"""docs/api.md speaks of every operation, parameter, field and error code."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from schedo.core import limits
from schedo.core.changes import Changes
from schedo.core.leases import AttemptResult, Completed
from schedo.core.run_history import EndedRun
from schedo.core.states import State
from schedo.core.worker_pool import WorkerSpec
from schedo.protocol.cluster import ClusterResponse
from schedo.protocol.expectations import ExpectationRequest, ExpectationResponse
from schedo.protocol.invocations import InvokeRequest, ReserveRequest, ShortRequest
from schedo.protocol.jobs import JobRequest, JobResponse
from schedo.protocol.operation import Operation
from schedo.protocol.operations import OPERATIONS
from schedo.protocol.problems import KINDS
from schedo.protocol.queues import QueuePatch
from schedo.protocol.requirements import RequiresRequest
from schedo.protocol.retries import RetryRequest
from schedo.protocol.schedules import ScheduleRequest
from schedo.protocol.unique import UniqueRequest
from schedo.protocol.workers import ProgressResponse, WorkerResponse
from schedo.store.database_health import DatabaseHealth, TableHealth
from schedo.web.handlers.cluster import render_cluster
from schedo.web.head import HEADERS_MAX
from schedo.web.server import CONNECTIONS_MAX
from tests.web.world import T0, World

TEXT = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_operation_is_documented(operation: Operation) -> None:
    row = f"| `{operation.method}` | `{operation.path}` |"

    assert row in TEXT or f"`{operation.path}`" in TEXT
    for name in operation.query:
        assert re.search(rf"\b{name}\b", TEXT), name


def test_every_row_of_the_api_document_is_an_operation() -> None:
    rows = set(re.findall(r"\| `([A-Z]+)` \| `([^`]+)` \|", TEXT))

    assert rows <= {(operation.method, operation.path) for operation in OPERATIONS}


def test_every_error_code_is_documented_with_its_status() -> None:
    rows = set(re.findall(r"\| `([a-z-]+)` \| (\d+) \|", TEXT))

    assert rows == {(kind.code, str(kind.status)) for kind in KINDS.values()}


SECTIONS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "Jobs": (JobRequest, RetryRequest, UniqueRequest, JobResponse, ProgressResponse),
    "Where a job runs": (RequiresRequest,),
    "Right now": (InvokeRequest, ReserveRequest),
    "Workers": (WorkerResponse,),
    "Schedules": (ScheduleRequest,),
    "Expectations": (ExpectationRequest, ExpectationResponse),
    "Queues": (QueuePatch,),
    "Short forms": (ShortRequest,),
}


def section(title: str) -> str:
    """Return the text below a heading, down to the next one of its level."""
    _, _, text = TEXT.partition(f"\n## {title}\n")
    return text.partition("\n## ")[0]


@pytest.mark.parametrize(
    ("title", "kind"), [(title, kind) for title, kinds in SECTIONS.items() for kind in kinds]
)
def test_every_field_is_documented_in_its_section(title: str, kind: type[msgspec.Struct]) -> None:
    text = section("Jobs") + section(title)  # a schedule and an invocation have fields of jobs

    for field in msgspec.structs.fields(kind):
        assert re.search(rf"\b{field.encode_name}\b", text), field.encode_name


def test_the_documented_limits_are_those_of_the_code() -> None:
    assert (limits.BATCH_JOBS_MAX, CONNECTIONS_MAX) == (1_000, 4_096)
    assert (limits.PAYLOAD_BYTES_MAX, limits.RESULT_BYTES_MAX) == (2**20, 2**20)
    assert (limits.OUTPUT_BYTES_MAX, limits.OUTPUTS_BYTES_MAX) == (2**20, 2**23)
    assert (HEADERS_MAX, limits.ATTEMPTS_MAX, limits.CRON_CHARACTERS_MAX) == (100, 100, 256)


async def test_every_metric_is_documented(world: World) -> None:
    await world.get("/metrics")  # run times are measured from the first request on
    await world.submit(task="known")
    world.engine.attach(WorkerSpec("hands", 1, tasks=frozenset({"known"})), world.worker)
    world.engine.report(AttemptResult((await world.worker.first()).key, Completed()))
    await world.submit(task="unknown")
    await world.put("/v1/schedules/s", {"cron": "@daily", "task": "t"})
    ended = EndedRun((await world.engine.get_schedule("s")).id, 1, State.COMPLETED, T0, 1, None)
    await world.engine.store.commit(Changes(ended_runs=[ended]))
    await world.put("/v1/expectations/e", {"every": "1h", "within": "1m"})
    world.engine.series.database.last = DatabaseHealth(
        [TableHealth("job", 1, 0, 0, T0)], None, None
    )
    page = (await world.get("/metrics")).body.decode()

    found = set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE))
    found |= {each.name for each in render_cluster(ClusterResponse(1, [], [], ""))}

    assert found == set(re.findall(r"`((?:schedo|process)_[a-z_]+)`", TEXT))

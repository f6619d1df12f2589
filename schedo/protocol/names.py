"""The response of GET /v1/names."""

from __future__ import annotations

from msgspec import Struct

from schedo.protocol.operation import Operation

# All together are at most 10,000.
QUEUES_MAX = 2_000
TASKS_MAX = 1_000
SCHEDULES_MAX = 5_000
WORKERS_MAX = 1_000
TAGS_MAX = 1_000
NAMES_MAX = {
    "queues": QUEUES_MAX,
    "tasks": TASKS_MAX,
    "schedules": SCHEDULES_MAX,
    "workers": WORKERS_MAX,
    "tags": TAGS_MAX,
}


class NamesResponse(Struct, forbid_unknown_fields=True):
    """The names that the server knows, each list in order."""

    queues: list[str]
    tasks: list[str]
    schedules: list[str]
    workers: list[str]
    tags: list[str]


OPERATIONS = (
    Operation(
        "list_names",
        "GET /v1/names",
        "List the names of queues, tasks, schedules, workers and tags, to search and complete.",
        {200: NamesResponse, 304: ""},
    ),
)

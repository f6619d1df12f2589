"""Arguments that name something of the server: shells complete them, and errors suggest one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
from click.types import StringParamType

from schedo.cli.make_client import make_client
from schedo.errors import SchedoError
from schedo.suggestions import suggest

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from schedo.client.sync import Client

_NAMES_MAX = 1_000  # that are read for a completion or a suggestion
_PATIENCE_S = 2.0  # a shell waits for the completion


class ServerName(StringParamType):
    """A name that the server knows."""

    def __init__(self, list_names: Callable[[Client], Iterable[str]]) -> None:
        self._list_names = list_names

    def list_names(self, client: Client) -> list[str]:
        """Return the first names that the server knows."""
        return [*islice(self._list_names(client), _NAMES_MAX)]

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin so; none if the server cannot be reached."""
        from click.shell_completion import CompletionItem

        from schedo.client.sync import Client

        connect = partial(Client, timeout=_PATIENCE_S)
        path = ctx.params.get("token_file") or os.environ.get("SCHEDO_TOKEN_FILE")
        try:
            with make_client(connect, ctx.params["url"], path) as client:
                names = self.list_names(client)
        except (SchedoError, click.UsageError):
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def suggest_name(ctx: click.Context, client: Client) -> str:
    """Return the hint at a known name that is similar to the command's argument, or nothing."""
    for param in ctx.command.params:
        value: Any = ctx.params.get(str(param.name))
        if isinstance(param.type, ServerName) and isinstance(value, str):
            try:
                return suggest(value, param.type.list_names(client))
            except SchedoError:
                return ""
    return ""


def _list_tasks(client: Client) -> Iterable[str]:
    workers = client.list_workers()
    return sorted({task for worker in workers for task in worker.get("tasks") or ()})


def _list_expectations(client: Client) -> Iterable[str]:
    from schedo.client.expectation_operations import list_expectations

    return [each["name"] for each in client.send(list_expectations())]


SCHEDULE = ServerName(lambda client: (each["name"] for each in client.list_schedules()))
QUEUE = ServerName(lambda client: (each["name"] for each in client.list_queues()))
WORKER = ServerName(lambda client: (each["name"] for each in client.list_workers()))
EXPECTATION = ServerName(_list_expectations)
TASK = ServerName(_list_tasks)
JOB = ServerName(lambda client: (job.id for job in client.list_jobs(limit=50)))

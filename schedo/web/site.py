"""What the handlers share: the engine, the settings and a few small memories."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from schedo.core.model import Job, JobSpec
from schedo.engine.engine import Engine
from schedo.errors import ShellDisabled
from schedo.web.messages import Answer, Request
from schedo.web.settings import WebSettings

T = TypeVar("T")

_NAMES_REMEMBERED_MAX = 10_000


@dataclass(slots=True)
class Site:
    """One server's HTTP side."""

    engine: Engine
    settings: WebSettings
    keys_in_progress: set[str] = field(default_factory=set)
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    schedule_names: dict[int, str] = field(default_factory=dict)

    def check_work(self, spec: JobSpec) -> None:
        """Refuse work that this server does not do, or whose payload its task cannot take."""
        if spec.task == "shell" and not self.settings.allow_shell:
            raise ShellDisabled("this server runs no commands; start it with --allow-shell")
        check = self.settings.payload_checks.get(spec.task)
        if check is not None:
            check(spec.payload)

    async def learn_names(self, jobs: list[Job]) -> dict[int, str]:
        """Return the names of the jobs' schedules; a name never changes, so it is remembered."""
        names = self.schedule_names
        for schedule_id in {job.schedule_id for job in jobs} - names.keys() - {None}:
            assert schedule_id is not None
            schedule = await self.engine.store.load_schedule(schedule_id)
            if schedule is not None:
                if len(names) >= _NAMES_REMEMBERED_MAX:
                    names.clear()
                names[schedule_id] = schedule.name
        return names

    async def or_drain(self, work: Coroutine[Any, Any, T], gone: Awaitable[None]) -> T | None:
        """Return the work's result, or None as soon as the server drains or the client is gone."""
        tasks = [
            asyncio.ensure_future(work),
            asyncio.ensure_future(self.draining.wait()),
            asyncio.ensure_future(gone),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return tasks[0].result() if tasks[0].done() else None
        finally:
            for task in tasks:
                task.cancel()


Handler = Callable[[Site, Request], Awaitable[Answer]]

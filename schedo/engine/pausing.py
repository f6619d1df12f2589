"""The pauses of the whole server, as calls that programs make."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from schedo.core.model import Pause, PauseScope
from schedo.core.pause_commands import PauseServer, ResumeServer
from schedo.engine.action_log import change
from schedo.engine.call_results import describe_pauses
from schedo.engine.loop import EngineLoop

log = logging.getLogger("schedo.engine")


class Pausing:
    """Pauses and resumes one engine."""

    def __init__(self, loop: EngineLoop) -> None:
        self._loop = loop

    async def pause(
        self, scopes: Sequence[PauseScope], note: str | None = None, until: int | None = None
    ) -> list[Pause]:
        """Start no more jobs, or fire no schedules, until a resume; return all pauses."""
        pauses: list[Pause] = await change(self._loop, PauseServer(scopes, note, until))
        log.warning("the server is paused: %s", describe_pauses(pauses))
        return pauses

    async def resume(self, scopes: Sequence[PauseScope] = tuple(PauseScope)) -> list[Pause]:
        """End the pauses of these scopes; return those that are left."""
        pauses: list[Pause] = await change(self._loop, ResumeServer(scopes))
        log.info("resumed: %s", ", ".join(scopes))
        return pauses

    def list(self) -> list[Pause]:
        """Return the pauses of the whole server."""
        return self._loop.scheduler.pauses() if self._loop.failure is None else []

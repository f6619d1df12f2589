"""Puts the schedules of a remote worker's application on its server, once the worker is connected.

The server treats them like those of its own application: a change by hand stays while the code
declares the same, and what the code no longer declares is named.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable

from schedo.client.aio import AsyncClient
from schedo.client.messages import Record
from schedo.client.schedule_operations import declare
from schedo.core.model import ScheduleSpec
from schedo.errors import SchedoError
from schedo.protocol.declarations import render_entry

RETRY_S = 5.0
_BUSY = frozenset({429, 503})
_WORDS = {"unchanged": "up to date", "kept": "changed by hand"}

log = logging.getLogger("schedo.worker")


async def declare_schedules(
    client: AsyncClient, owner: str, specs: Iterable[ScheduleSpec], *, is_pruning: bool
) -> None:
    """Put the schedules and log what that did; try again while the server cannot respond."""
    schedules = [render_entry(spec) for spec in specs]
    request = {"owner": owner, "schedules": schedules, "keep_edits": True, "prune": is_pruning}
    logged = ""
    while True:
        try:
            _log(owner, await client.send(declare(request)))
            return
        except SchedoError as error:
            if error.status < 500 and error.status not in _BUSY:
                log.error(
                    "the server did not accept the schedules of %s: %s; the jobs of this worker"
                    " run, but no schedule was changed",
                    owner,
                    error,
                )
                return
            if error.status not in _BUSY and logged != str(error):
                logged = str(error)
                log.warning("the schedules of %s are not put yet: %s; retrying", owner, error)
        await asyncio.sleep(RETRY_S)


def _log(owner: str, response: Record) -> None:
    counts = Counter(each["effect"] for each in response["schedules"])
    text = ", ".join(f"{count} {_WORDS.get(effect, effect)}" for effect, count in counts.items())
    log.info("schedules of %s: %s", owner, text or "none")
    for each in response["schedules"]:
        for warning in each["warnings"]:
            log.warning("schedule %s: %s", each["name"], warning)
    if response["undeclared"]:
        log.warning(
            "%s no longer declares %s, which will fire until deleted: schedo schedules rm NAME"
            " deletes one, a start with --prune deletes all that are no longer declared",
            owner,
            ", ".join(response["undeclared"]),
        )

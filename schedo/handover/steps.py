"""The steps by which a store passes to another process, as the log of each process names them.

    old process                              new process
    STARTED   it has started the new one
                                             READY     warm: only the store is missing
    SENT      the locks and the listeners
    HELD      requests wait
    FROZEN    the last commit; store closed
                                             OPENED    the store, under a new epoch
                                             ACTIVE    it accepts requests
    REPLACED  it forwards, and drains

Until it is ACTIVE, the death of the new process changes nothing: the old one opens its store again.
When a server stops beside a standby, the standby is the new process. It was READY before; instead
of SENT, the old one releases the locks after FROZEN.
"""

from __future__ import annotations

import logging
from enum import StrEnum

log = logging.getLogger("schedo.handover")


class Step(StrEnum):
    """What one of the two processes has just done."""

    STARTED = "started"
    READY = "ready"
    SENT = "sent"
    HELD = "held"
    FROZEN = "frozen"
    OPENED = "opened"
    ACTIVE = "active"
    REPLACED = "replaced"


def log_step(step: Step) -> None:
    """Log that this process has done the step."""
    log.info("handover: %s", step.value)

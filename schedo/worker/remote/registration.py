"""The description of a worker that every request carries.

The worker checks it by the rules of the server, so that a mistake shows at the start and not with
the first request.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from schedo.core.built_in import find_isolated
from schedo.core.limits import SECOND
from schedo.core.model import Options
from schedo.errors import Invalid
from schedo.protocol.fields import read_name
from schedo.protocol.requirements import amount_fields, read_amounts, read_labels
from schedo.protocol.work import (
    PROTOCOL,
    SESSION_TIMEOUT_US,
    SLOTS_MAX,
    TaskDefaultsRequest,
    WorkRequest,
    read_worker_name,
)
from schedo.version import __version__

SLOTS = 16
SESSION_TIMEOUT_S = 30.0
_NO_DEFAULTS = TaskDefaultsRequest()


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's name, slots, labels and resources; queues None means any."""

    name: str
    slots: int = SLOTS
    queues: Sequence[str] | None = None
    labels: Mapping[str, Any] = {}
    resources: Mapping[str, Any] = {}
    session_timeout_s: float = SESSION_TIMEOUT_S

    def render(self, tasks: Sequence[str], defaults: Mapping[str, Options]) -> WorkRequest:
        """Return the fields that every request of this session has; raise Invalid."""
        if not 1 <= self.slots <= SLOTS_MAX:
            raise Invalid(f"slots = {self.slots}: a worker has 1 to {SLOTS_MAX}")
        least, most = SESSION_TIMEOUT_US
        if not least <= self.session_timeout_s * SECOND <= most:
            raise Invalid(f"session_timeout = {self.session_timeout_s:g} s: it must be 5 s to 1 h")
        announced = {task: TaskDefaultsRequest.of(options) for task, options in defaults.items()}
        resources = amount_fields(dict(read_amounts("resource", self.resources)))
        return WorkRequest(
            protocol=PROTOCOL,
            worker=read_worker_name("name", self.name),
            session=secrets.token_hex(8),
            version=__version__,
            tasks=list(tasks),
            slots=self.slots,
            session_timeout=self.session_timeout_s,
            isolated_tasks=sorted(find_isolated(tasks)) or None,
            queues=self._read_queues(),
            labels=read_labels("label", self.labels) or None,
            resources=dict(resources) or None,
            task_defaults={task: each for task, each in announced.items() if each != _NO_DEFAULTS}
            or None,
        )

    def _read_queues(self) -> list[str] | None:
        if self.queues is None:
            return None
        return [read_name(f"queue {queue!r}", queue) for queue in self.queues]


def make_name() -> str:
    """Return the default name of a worker: the machine's name and the process id."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname().partition(".")[0]).lstrip("._-")
    return f"{host[:100] or 'worker'}-{os.getpid()}"

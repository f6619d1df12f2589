"""Worker tokens: permission to be a worker for some queues and tasks, and nothing else.

The tokens are in a file, one per line: TOKEN queues=a,b tasks=x,y. Without queues= or tasks= the
token covers all of them. Empty lines and lines that begin with # are ignored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from schedo.core.worker_pool import WorkerSpec
from schedo.errors import Forbidden, Invalid
from schedo.protocol import fields

WORKER_TOKENS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class WorkerPermission:
    """The queues and tasks of one token; None means any."""

    queues: frozenset[str] | None = None
    tasks: frozenset[str] | None = None

    def allows(self, queue: str, task: str) -> bool:
        """Return whether a worker with this token may run the task's jobs of the queue."""
        return (self.queues is None or queue in self.queues) and (
            self.tasks is None or task in self.tasks
        )

    def narrow(self, spec: WorkerSpec) -> WorkerSpec:
        """Return the spec with "any" replaced by the permitted names; raise Forbidden beyond them.

        Task defaults beyond the permission are refused too: they would change the jobs of others.
        """
        narrowed = replace(
            spec,
            queues=_narrow("queue", spec.queues, self.queues),
            tasks=_narrow("task", spec.tasks, self.tasks),
        )
        _narrow("task", frozenset(spec.task_defaults), self.tasks)
        return narrowed


def _narrow(
    kind: str, asked: frozenset[str] | None, granted: frozenset[str] | None
) -> frozenset[str] | None:
    if granted is None:
        return asked
    if asked is None:
        return granted
    outside = sorted(asked - granted)
    if outside:
        raise Forbidden(f"this token is not for the {kind} {outside[0]!r}")
    return asked


def parse_grants(
    text: str, source: str, check_token: Callable[[str, str], str]
) -> dict[bytes, WorkerPermission]:
    """Return the permissions by the SHA-256 of their tokens; raise Invalid with the line."""
    grants: dict[bytes, WorkerPermission] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"{source} line {number}"
        digest = hashlib.sha256(check_token(words[0], where).encode()).digest()
        if digest in grants:
            raise Invalid(f"{where}: this token occurs twice")
        grants[digest] = _parse_grant(words[1:], where)
    if not grants:
        raise Invalid(f"{source}: there is no token in it")
    if len(grants) > WORKER_TOKENS_MAX:
        raise Invalid(f"{source}: {len(grants)} tokens; at most {WORKER_TOKENS_MAX} are possible")
    return grants


def _parse_grant(words: list[str], where: str) -> WorkerPermission:
    parts: dict[str, frozenset[str]] = {}
    for word in words:
        key, equals, names = word.partition("=")
        if key not in ("queues", "tasks") or not equals or key in parts:
            raise Invalid(f"{where}: write queues=a,b and tasks=x,y behind the token, each once")
        try:
            parts[key] = frozenset(fields.read_name("", name) for name in names.split(","))
        except Invalid as error:
            raise Invalid(f"{where}: {key}: {error.problems[0].detail}") from None
    return WorkerPermission(parts.get("queues"), parts.get("tasks"))

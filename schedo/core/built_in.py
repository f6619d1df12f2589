"""The table of the built-in tasks, with all properties that other modules need.

The code of a task is the module schedo/tasks/<name>/task.py; schedo/tasks/built_in.py loads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Literal

import msgspec

from schedo.core.model import ONCE, Retry


class BuiltInTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that workers can run without an application."""

    description: str  # for the API's document and the command line
    # Only the user can know whether a command or a request may run twice.
    retry: Retry = ONCE  # of a job that is submitted without a policy
    permission: str | None = None  # the setting without which a machine does not run it
    isolates: bool = False  # its attempts cannot kill the worker or other attempts
    secret: str | None = None  # the member of its payload that responses mask
    facts_as: Literal["body", "variables"]  # how an event job has the facts; see event_jobs.py


BUILT_IN: Mapping[str, BuiltInTask] = {
    "http": BuiltInTask(
        description="sends a request to a URL", isolates=True, secret="secret", facts_as="body"
    ),
    "shell": BuiltInTask(
        description="runs a command", permission="allow_shell", isolates=True, facts_as="variables"
    ),
}


# By task, the member of its payload that responses mask and searches do not find.
SECRETS = {name: task.secret for name, task in BUILT_IN.items() if task.secret is not None}
MASK = b'"***"'
_MASKED, _NULL = msgspec.Raw(MASK), msgspec.Raw(b"null")
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])  # whose values stay undecoded


def show_payload(task: str, payload: bytes) -> bytes:
    """Return a payload as it was sent, with the secret of a built-in task masked."""
    secret = SECRETS.get(task)
    # A key may also be written with escapes, so a backslash calls for an exact look.
    if secret is None or (f'"{secret}"'.encode() not in payload and b"\\" not in payload):
        return payload
    try:
        members = _MEMBERS.decode(payload)
    except msgspec.ValidationError:  # no object
        return payload
    if members.get(secret, _NULL) == _NULL:
        return payload
    return msgspec.json.encode(members | {secret: _MASKED})


def may_run(task: str, permissions: AbstractSet[str]) -> bool:
    """Return whether a machine with these permissions may run the task."""
    built_in = BUILT_IN.get(task)
    return built_in is None or built_in.permission is None or built_in.permission in permissions


def find_isolated(tasks: Iterable[str]) -> frozenset[str]:
    """Return the tasks whose poison suspects may run beside other jobs."""
    return frozenset(name for name in tasks if name in BUILT_IN and BUILT_IN[name].isolates)


def find_permissions(settings: object) -> frozenset[str]:
    """Return the permissions that the settings give, by the names of their attributes."""
    names = {task.permission for task in BUILT_IN.values() if task.permission is not None}
    return frozenset(name for name in names if getattr(settings, name))

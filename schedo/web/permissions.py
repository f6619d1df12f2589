"""The permission of each token: a role, and the queues and tasks that it is restricted to.

The tokens are in a file, one per line: TOKEN role=operator name=ann queues=a,b tasks=x,y. A worker
with schedules=yes may put the schedules of its application. Without
queues= or tasks= the token covers all of them. Empty lines and lines that begin with # are ignored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from schedo.core.built_in import BUILT_IN
from schedo.core.model import Expect, JobSpec, Schedule, ScheduleSpec
from schedo.core.worker_pool import WorkerSpec
from schedo.errors import Forbidden, Invalid
from schedo.protocol import fields
from schedo.protocol.operation import Operation
from schedo.protocol.roles import RESTRICTABLE, Role

TOKENS_MAX = 1_000
# What a line of --worker-tokens does not say.
WORKER_LINE = MappingProxyType({"role": "worker", "name": "worker"})

_INCLUDED = {
    Role.VIEWER: frozenset({Role.VIEWER}),
    Role.OPERATOR: frozenset({Role.VIEWER, Role.OPERATOR, Role.BEAT}),
    Role.BEAT: frozenset({Role.BEAT}),
    Role.ADMIN: frozenset(Role),
    Role.WORKER: frozenset({Role.WORKER}),
}
_RESTRICTED = ("queues", "tasks")
_FORM = "role=ROLE name=NAME queues=a,b tasks=x,y schedules=yes"


@dataclass(frozen=True, slots=True)
class TokenPermission:
    """What one token permits; queues and tasks: None means any."""

    role: Role
    name: str
    queues: frozenset[str] | None = None
    tasks: frozenset[str] | None = None
    setting: str = "tokens"  # the setting that its file belongs to
    may_declare: bool = False  # a worker may put the schedules of its application
    hides_payloads: bool = False  # responses have no payloads

    @property
    def is_restricted(self) -> bool:
        return self.queues is not None or self.tasks is not None

    def includes(self, role: Role) -> bool:
        """Return whether the token has this role, or one with more rights."""
        return role in _INCLUDED[self.role]

    def check_operation(self, operation: Operation) -> None:
        """Raise Forbidden if the operation needs another role, or affects more than permitted."""
        if self.role is Role.ADMIN:  # the common case
            return
        needed = operation.role
        if self.may_declare and operation.name == "declare":
            return
        if needed is None or (needed is Role.VIEWER and self.includes(needed)):
            return
        if not self.includes(needed):
            remedy = ", or schedules=yes in its line" if operation.name == "declare" else ""
            raise Forbidden(
                f"the token {self.name!r} has the role {self.role}; {operation.route} needs the"
                f" role {needed}{remedy}"
            )
        if self.is_restricted and operation.name not in RESTRICTABLE:
            raise Forbidden(
                f"the token {self.name!r} is only for some queues or tasks, and {operation.route}"
                " affects others as well"
            )

    def allows(self, queue: str, task: str) -> bool:
        """Return whether the token covers the task's jobs of the queue."""
        return (self.queues is None or queue in self.queues) and (
            self.tasks is None or task in self.tasks
        )

    def check_job(self, queue: str, task: str) -> None:
        """Raise Forbidden unless the token covers the task's jobs of the queue.

        A reservation may have no task yet: "" stands for any.
        """
        if not self.allows(queue, task):
            which = f"the task {task!r}" if task else "any task"
            lacks_task = not task and (self.queues is None or queue in self.queues)
            remedy = "name the task" if lacks_task else f"it is only for {self._describe_limits()}"
            raise Forbidden(
                f"the token {self.name!r} is not for jobs of {which} in the queue {queue!r};"
                f" {remedy}"
            )

    def _describe_limits(self) -> str:
        limits = (("queues", self.queues), ("tasks", self.tasks))
        return " and ".join(
            f"the {kind} {', '.join(sorted(names))}" for kind, names in limits if names is not None
        )

    def check_event_job(self, task: str, event_task: str) -> None:
        """Raise Forbidden if a worker's task may not name a job of this task for its failures.

        A worker cannot submit jobs, so it must not run commands or send requests elsewhere.
        """
        if self.role is Role.WORKER and event_task in BUILT_IN:
            raise Forbidden(
                f"the task {task!r} names a job of the task {event_task!r} for its failures; the"
                f" token {self.name!r} has the role worker and may only name tasks of applications"
            )

    def check_declaration(self, owner: str, specs: Iterable[ScheduleSpec]) -> None:
        """Raise Forbidden unless a worker's token may declare these schedules.

        They are of code, and run tasks of applications.
        """
        if self.role is not Role.WORKER:
            return
        who = f"the token {self.name!r} has the role worker and"
        if not owner.startswith("code:"):
            raise Forbidden(f"{who} declares schedules of code only, not of {owner!r}")
        for spec in specs:
            if spec.job.task in BUILT_IN:
                raise Forbidden(f"{who} may not schedule the task {spec.job.task!r}")
            for event in _event_jobs(spec):
                self.check_event_job(spec.job.task, event.task)

    def check_declared(self, owner: str, verb: str, schedule: Schedule) -> None:
        """Raise Forbidden unless a worker's token could have declared the schedule itself.

        It takes no schedule from another owner.
        """
        job = (schedule.declared or schedule.spec).job
        if self.role is not Role.WORKER:
            return
        if schedule.owner != owner:
            raise Forbidden(
                f"the token {self.name!r} has the role worker and may not take over the schedule"
                f" {schedule.name!r}, which belongs to {schedule.owner!r}; delete it, or declare it"
                " with another token"
            )
        if job.task in BUILT_IN or not self.allows(job.queue, job.task):
            raise Forbidden(
                f"the token {self.name!r} may not {verb} the schedule {schedule.name!r}: its jobs"
                f" of the task {job.task!r} in the queue {job.queue!r} are not for this token"
            )

    def check_settings(self) -> None:
        """Raise Forbidden if the token may declare neither queues nor named expectations."""
        if self.role is not Role.ADMIN:
            raise Forbidden(
                f"the token {self.name!r} has the role {self.role}; it sets no queues and no"
                " expectations"
            )

    def narrow(self, spec: WorkerSpec) -> WorkerSpec:
        """Return the spec with "any" replaced by the permitted names; raise Forbidden beyond them.

        Task defaults beyond the permission are refused too: they would change the jobs of others.
        """
        if not self.is_restricted:
            return spec
        narrowed = replace(
            spec,
            queues=_narrow("queue", spec.queues, self.queues),
            tasks=_narrow("task", spec.tasks, self.tasks),
        )
        _narrow("task", frozenset(spec.task_defaults), self.tasks)
        return narrowed


ANYONE = TokenPermission(Role.ADMIN, "anyone")  # may do all on a server without tokens
ANONYMOUS = TokenPermission(Role.VIEWER, "anonymous")  # has no token, with --anonymous viewer


def _event_jobs(spec: ScheduleSpec) -> Iterator[JobSpec]:
    expect = spec.expect or Expect()
    yield from filter(None, (spec.job.options.on_failure, expect.on_miss, expect.on_back))


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


def digest(token: str) -> bytes:
    """Return the SHA-256 of a token; the server keeps no token itself."""
    return hashlib.sha256(token.encode()).digest()


def parse_tokens(
    text: str,
    setting: str,
    source: str,
    check_token: Callable[[str, str], str],
    given: Mapping[str, str] = MappingProxyType({}),
) -> dict[bytes, TokenPermission]:
    """Return the permissions by the SHA-256 of their tokens; raise Invalid with the line.

    given: the role and name of all lines, which must not give another one then. No error shows any
    part of a line, because it may be a token.
    """
    tokens: dict[bytes, TokenPermission] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"{source} line {number}"
        key = digest(check_token(words[0], where))
        if key in tokens:
            raise Invalid(f"{where}: this token occurs twice")
        tokens[key] = _parse_line(words[1:], setting, where, given)
    if not tokens:
        raise Invalid(f"{source}: there is no token in it")
    if len(tokens) > TOKENS_MAX:
        raise Invalid(f"{source}: {len(tokens)} tokens; at most {TOKENS_MAX} are possible")
    return tokens


def _parse_line(
    words: list[str], setting: str, where: str, given: Mapping[str, str]
) -> TokenPermission:
    form = _FORM if not given else _FORM.partition("name=NAME ")[2]
    parts = dict(given)
    for word in words:
        key, equals, value = word.partition("=")
        if f" {key}=" not in f" {form}" or not equals or key in parts:
            raise Invalid(f"{where}: write {form} behind the token, each once")
        parts[key] = value
    if parts.get("role") not in list(Role):
        raise Invalid(f"{where}: write role={', role='.join(Role)} behind the token")
    role = Role(parts["role"])
    (name,) = _read_names("name", [parts.get("name", "")], where)
    restricted = {
        key: frozenset(_read_names(key, parts[key].split(","), where))
        for key in _RESTRICTED
        if key in parts
    }
    if restricted and role not in (Role.OPERATOR, Role.WORKER):
        raise Invalid(f"{where}: queues= and tasks= restrict an operator or a worker only")
    if "schedules" in parts and (parts["schedules"], role) != ("yes", Role.WORKER):
        raise Invalid(f"{where}: schedules=yes is for the role worker only")
    return TokenPermission(
        role,
        name,
        restricted.get("queues"),
        restricted.get("tasks"),
        setting,
        may_declare="schedules" in parts,
    )


def _read_names(key: str, names: list[str], where: str) -> list[str]:
    if not all(fields.is_name(name) for name in names):
        raise Invalid(f"{where}: {key}: a name has 1 to 128 letters, digits, '.', '_' or '-'")
    return names

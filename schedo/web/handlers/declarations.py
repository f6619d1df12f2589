"""Declarations: all schedules of an owner in one commit, its expectations, and queues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from schedo.core.commands import Declared, DeclareSchedules, PutEffect
from schedo.core.expectation_table import DeclaredExpectation, DeclareExpectations
from schedo.core.expectations import Expectation, ExpectationSpec
from schedo.core.model import Queue, Schedule, ScheduleSpec
from schedo.errors import Invalid, Problem, SchedoError
from schedo.protocol.declarations import (
    OWNER_RULE,
    DeclarationRequest,
    DeclarationResponse,
    DeclaredResponse,
    ExpectationEntry,
    FieldChange,
    QueueEntry,
    ScheduleEntry,
    describe_edit,
    describe_takeover,
    find_differences,
    is_owner,
    show_queue,
)
from schedo.protocol.expectations import show_expectation
from schedo.protocol.masking import reuse_expect, reuse_schedule
from schedo.web.context import AppContext
from schedo.web.elsewhere import Elsewhere
from schedo.web.holding import before_changes
from schedo.web.http import Request, Response

_BYTES = 8_388_608  # claimed for the records that the declared ones are compared with

Known = Mapping[str, Schedule | None]
_Takeover = Callable[[Schedule | Expectation | None], str | None]  # describes it


async def declare(context: AppContext, request: Request) -> Response:
    declaration = await request.read(DeclarationRequest)
    if not is_owner(declaration.owner):
        raise Invalid.field("/owner", OWNER_RULE)
    await request.claim.take(len(request.body) + _BYTES)
    problems: list[Problem] = []
    with before_changes(request.body):
        known = await _load(context, declaration.schedules)
        undeclared = await context.engine.declarations.find_undeclared(
            declaration.owner, {entry.name for entry in declaration.schedules}
        )
    specs = _read_schedules(context, request, declaration.schedules, known, problems)
    queues = _read_queues(declaration.queues, problems)
    expectations = _read_expectations(context, request, declaration.expectations, problems)
    if problems:
        text = "; ".join(f"{each.pointer}: {each.detail}" for each in problems)
        raise Invalid(f"nothing was changed: {text}", *problems)
    owner, check = declaration.owner, None
    if request.permission is not None:
        request.permission.check_declaration(owner, specs)
        if queues or expectations:
            request.permission.check_settings()
        check = partial(request.permission.check_declared, owner)
    others = _find_undeclared_expectations(context, owner, expectations)
    if (cluster := context.cluster) is not None:  # the other servers do the same for theirs
        specs = [spec for spec in specs if cluster.owns(spec.name)]
        expectations = [spec for spec in expectations if cluster.owns(spec.name)]
        undeclared = [name for name in undeclared if cluster.owns(name)]
    is_pruning = declaration.prune
    commands = _Commands(
        DeclareSchedules(
            owner, specs, undeclared if is_pruning else [], declaration.keep_edits, check
        ),
        queues,
        DeclareExpectations(owner, expectations, others if is_pruning else []),
    )
    done = await _carry_out(context, commands, known if declaration.dry_run else None)
    if not is_pruning:
        done.undeclared, done.undeclared_expectations = undeclared, others
    return Response(200, msgspec.json.encode(done))


class _Commands(NamedTuple):
    """What a declaration does; queues: the settings by name."""

    schedules: DeclareSchedules
    queues: Mapping[str, dict[str, Any]]
    expectations: DeclareExpectations


async def _load(context: AppContext, entries: Sequence[ScheduleEntry]) -> Known:
    """Return the current record of each schedule that is declared."""
    return {entry.name: await context.engine.declarations.find(entry.name) for entry in entries}


def _read_schedules(
    context: AppContext,
    request: Request,
    entries: Sequence[ScheduleEntry],
    known: Known,
    problems: list[Problem],
) -> list[ScheduleSpec]:
    """Return the specs; add what is wrong with any of them to the problems."""
    specs: dict[str, ScheduleSpec] = {}
    for at, entry in enumerate(entries):
        try:
            if entry.name in specs:
                raise Invalid.field("/name", f"there are two schedules {entry.name!r}")
            spec, stored = entry.to_spec(entry.name), known[entry.name]
            if stored is not None:
                spec = reuse_schedule(spec, stored)
            context.check_schedule(request, spec)
            specs[entry.name] = spec
        except SchedoError as error:
            problems += _place(f"/schedules/{at}", error)
    return [*specs.values()]


def _read_queues(
    entries: Sequence[QueueEntry], problems: list[Problem]
) -> dict[str, dict[str, Any]]:
    settings: dict[str, dict[str, Any]] = {}
    for at, entry in enumerate(entries):
        try:
            if entry.name in settings:
                raise Invalid.field("/name", f"there are two queues {entry.name!r}")
            settings[entry.name] = entry.read()
        except Invalid as error:
            problems += _place(f"/queues/{at}", error)
    return settings


def _place(pointer: str, error: SchedoError) -> tuple[Problem, ...]:
    """Return the problems of the error below the entry at the pointer."""
    placed = (error if isinstance(error, Invalid) else Invalid(str(error))).under(pointer)
    return placed.problems


def _read_expectations(
    context: AppContext,
    request: Request,
    entries: Sequence[ExpectationEntry],
    problems: list[Problem],
) -> list[ExpectationSpec]:
    """Return the specs; add what is wrong with any of them to the problems."""
    known = {each.name: each for each in context.engine.expectations.named()}
    specs: dict[str, ExpectationSpec] = {}
    for at, entry in enumerate(entries):
        try:
            if entry.name in specs:
                raise Invalid.field("/name", f"there are two expectations {entry.name!r}")
            spec = entry.to_spec(entry.name)
            if entry.name in known:
                spec = replace(spec, expect=reuse_expect(spec.expect, known[entry.name].expect))
            context.check_expect(request, "", spec.expect)
            specs[entry.name] = spec
        except SchedoError as error:
            problems += _place(f"/expectations/{at}", error)
    return [*specs.values()]


def _find_undeclared_expectations(
    context: AppContext, owner: str, declared: Sequence[ExpectationSpec]
) -> list[str]:
    """Return the names of the owner's expectations besides the declared ones."""
    names = {spec.name for spec in declared}
    named = context.engine.expectations.named()
    return [each.name for each in named if each.owner == owner and each.name not in names]


async def _carry_out(
    context: AppContext, commands: _Commands, known: Known | None
) -> DeclarationResponse:
    """Carry out the commands; known: of a dry run, which changes nothing."""
    engine, queues = context.engine, commands.queues
    before = {name: engine.get_queue(name) for name in queues}
    after = {name: queue.changed(**queues[name]) for name, queue in before.items()}
    if known is not None:
        expected = engine.expectations.preview(commands.expectations)
        done = await engine.declarations.preview(commands.schedules, known)
    else:
        expected = await engine.expectations.declare(commands.expectations)
        changed = [name for name in queues if before[name] != after[name]]
        keep_own = None if context.cluster is None else partial(_keep_own, context.cluster)
        put = asyncio.ensure_future(engine.declarations.put(commands.schedules, keep_own))
        # All of them are applied in one turn.
        await asyncio.gather(put, *(engine.change_queue(name, **queues[name]) for name in changed))
        done = put.result()
    owner, wanted = commands.schedules.owner, {s.name: s for s in commands.schedules.specs}
    takeover = partial(describe_takeover, owner=owner, is_dry_run=known is not None)
    return DeclarationResponse(
        owner,
        [_describe(context, takeover, each, wanted.get(each.schedule.name)) for each in done],
        [_describe_queue(before[name], after[name]) for name in queues],
        [_describe_expectation(context, takeover, each) for each in expected],
        [],
        [],
    )


async def _keep_own(cluster: Elsewhere, command: DeclareSchedules) -> DeclareSchedules:
    """Return the part of this server; the others get the request with the rights of its client."""
    return replace(
        command,
        specs=[spec for spec in command.specs if cluster.owns(spec.name)],
        removed=[name for name in command.removed if cluster.owns(name)],
    )


def _describe(
    context: AppContext, takeover: _Takeover, declared: Declared, wanted: ScheduleSpec | None
) -> DeclaredResponse:
    effect, schedule, before = declared
    changes: list[FieldChange] = []
    warnings: list[str] = []
    if effect is PutEffect.KEPT:
        warnings.append(describe_edit(schedule))
    if wanted is not None:
        warnings += context.warn_of_schedule(wanted)
    if wanted is not None and before is not None:
        if effect is PutEffect.CHANGED:
            is_known = before.paused == wanted.paused  # perhaps it was paused by hand
            old = replace(before.spec, paused=wanted.paused) if is_known else before.spec
            changes = find_differences(old, wanted)
        if schedule.paused and not wanted.paused:
            warnings.append("it was paused by hand and stays paused until it is resumed")
        taken = takeover(before)
        warnings += [] if taken is None else [taken]
    return DeclaredResponse(schedule.name, effect, changes, warnings)


def _describe_queue(before: Queue, after: Queue) -> DeclaredResponse:
    changes = FieldChange.between(show_queue(before), show_queue(after))
    effect = PutEffect.CHANGED if changes else PutEffect.UNCHANGED
    return DeclaredResponse(before.name, effect, changes, [])


def _describe_expectation(
    context: AppContext, takeover: _Takeover, declared: DeclaredExpectation
) -> DeclaredResponse:
    effect, after, before = declared
    if effect is PutEffect.REMOVED:
        return DeclaredResponse(after.name, effect, [], [])
    changes: list[FieldChange] = []
    if before is not None:
        changes = FieldChange.between(show_expectation(before), show_expectation(after))
    taken = takeover(before)
    warnings = context.warn_of_expect(after.expect)
    warnings += [] if taken is None else [taken]
    return DeclaredResponse(after.name, effect, changes, warnings)

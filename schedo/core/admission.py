"""Admission of submitted specs: the range of their values, and unique keys.

The rows of an inbox (core/inbox.py) are admitted like the specs of a submit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from schedo.core.commands import Accepted, Submit
from schedo.core.ids import render_id
from schedo.core.inbox import Enqueued, RowsFailed, TakeIn
from schedo.core.job_maker import JobMaker
from schedo.core.job_table import JobTable
from schedo.core.limits import DURATION_MAX, INSTANT_MAX, PRIORITY_MAX, PRIORITY_MIN
from schedo.core.loads import Appliers, Loaded, LoadUniqueHolders, Needs
from schedo.core.model import Failure, Job, JobSpec, Unique
from schedo.core.states import State
from schedo.core.transitions import JobTransitions
from schedo.errors import DuplicateKey, Forbidden, Invalid, SchedoError, Unavailable

_MayReplace = Callable[[str, str], bool] | None  # see Submit


class Admission:
    """Accepts or refuses specs, and makes the jobs of those that it accepts."""

    def __init__(
        self,
        jobs: JobTable,
        maker: JobMaker,
        cancel: Callable[[Job, int], Job],
        transitions: JobTransitions,
    ) -> None:
        self._jobs = jobs
        self._maker = maker
        self._cancel = cancel
        self._transitions = transitions
        self.appliers: Appliers = {Submit: self._submit, TakeIn: self._admit_rows}

    def _submit(
        self, command: Submit, now: int, loaded: Loaded
    ) -> list[Accepted | SchedoError] | Needs:
        """Accept the specs; return one reply for each, in their order."""
        holders = self._find_holders(command.specs, loaded)
        if isinstance(holders, Needs):
            return holders
        may_replace, make = command.may_replace, self._maker.make
        return [
            Accepted(make(spec, now), False)
            if spec.options.unique is None and _is_in_range(spec)
            else self._accept(spec, holders, may_replace, now, make)
            for spec in command.specs
        ]

    def _admit_rows(self, command: TakeIn, now: int, loaded: Loaded) -> Needs | None:
        """Make a job of each row, as it is accepted or refused."""
        if not command.is_current():
            raise Unavailable("the rows of the inbox are read again")
        try:
            holders = self._find_holders([row.spec for row in command.rows], loaded)
        except Exception:
            _for_each(command.rows, lambda row: self._find_holders([row.spec], loaded))
            raise
        if isinstance(holders, Needs):
            return holders
        _for_each(command.rows, lambda row: self._admit_row(row, holders, now))
        return None

    def _admit_row(self, row: Enqueued, holders: Mapping[str, Job], now: int) -> None:
        refusal: SchedoError | str | None = row.refusal
        if refusal is None:
            make = partial(self._maker.make_numbered, row.id)
            reply = self._accept(row.spec, holders, None, now, make)
            refusal = reply if isinstance(reply, SchedoError) else _find_conflict(reply)
        if refusal is not None:
            self._make_refused(row, refusal, now)
        self._jobs.changes.taken_in.append(row.id)

    def _make_refused(self, row: Enqueued, refusal: SchedoError | str, now: int) -> None:
        """Make the job of a row; it has ended, with the reason."""
        options = msgspec.structs.replace(row.spec.options, unique=None)
        spec = msgspec.structs.replace(row.spec, run_at=None, delay_us=0, options=options)
        job = self._maker.make_numbered(row.id, spec, now)
        is_duplicate = isinstance(refusal, DuplicateKey)
        job.failure = Failure("duplicate" if is_duplicate else "refused", str(refusal))
        if is_duplicate:
            self._transitions.finish(job, State.CANCELLED, now)
        else:
            self._transitions.refuse(job, now)

    def _find_holders(self, specs: Sequence[JobSpec], loaded: Loaded) -> Mapping[str, Job] | Needs:
        """Return the stored jobs that hold the unique keys of the specs, as far as needed."""
        keys = {unique.key for spec in specs if (unique := spec.options.unique) is not None}
        if keys:
            load = LoadUniqueHolders(tuple(sorted(keys)))
            if load in loaded:
                holders: Mapping[str, Job] = loaded[load]
                return holders
            if any(self._jobs.find_key(key) is None for key in keys):
                return Needs((load,))
        return {}

    def _accept(
        self,
        spec: JobSpec,
        holders: Mapping[str, Job],
        may_replace: _MayReplace,
        now: int,
        make: Callable[[JobSpec, int], Job],
    ) -> Accepted | SchedoError:
        """Make the job unless a number is out of range or another job holds its unique key.

        holders: the stored jobs that hold keys.
        """
        if not _is_in_range(spec):
            return _refuse_range(spec)
        unique = spec.options.unique
        if unique is None:
            return Accepted(make(spec, now), False)
        holder = self._jobs.find_unique_holder(unique.key, holders.get(unique.key))
        if holder is None:
            return Accepted(make(spec, now), False)
        is_held = _holds_key(holder, unique, now - self._jobs.offset_us)
        if is_held and unique.on_conflict == "reject":
            return _duplicate(holder, unique.key)
        if is_held and (unique.on_conflict == "return" or holder.state is State.RUNNING):
            return Accepted(holder, True)
        is_in_use = is_held or not holder.is_final  # `while` of the new job may not name its state
        if is_in_use and may_replace is not None and not may_replace(holder.queue, holder.task):
            return Forbidden(
                f"the key {unique.key!r} belongs to a job of the task {holder.task!r} in the queue"
                f" {holder.queue!r}, which the client may not replace"
            )
        holder = self._jobs.track(holder)
        self._jobs.release_key(holder)
        if is_held and not holder.is_final:
            self._cancel(holder, now)
        return Accepted(make(spec, now), False)


def _for_each(rows: Sequence[Enqueued], call: Callable[[Enqueued], object]) -> None:
    """Call the function for each row; raise RowsFailed with all rows on which it has failed."""
    faults: dict[int, Exception] = {}
    for row in rows:
        try:
            call(row)
        except Exception as error:  # one recovery is to find all of them
            faults[row.id] = error
    if faults:
        raise RowsFailed(faults) from next(iter(faults.values()))


def _duplicate(holder: Job, key: str | None) -> DuplicateKey:
    return DuplicateKey(f"job {render_id(holder.id)} is {holder.state} and holds the key {key!r}")


def _find_conflict(reply: Accepted) -> DuplicateKey | None:
    return _duplicate(reply.job, reply.job.unique_key) if reply.is_conflict else None


def _is_in_range(spec: JobSpec) -> bool:
    """Whether the instants, durations and priority of the spec are in range.

    The HTTP API checks its requests itself, with more precise errors. This check is for programs
    that submit from the server's own process.
    """
    return (
        spec.delay_us <= DURATION_MAX
        and PRIORITY_MIN <= spec.priority <= PRIORITY_MAX
        and (spec.run_at is None or -INSTANT_MAX <= spec.run_at <= INSTANT_MAX)
        and (spec.expires_at is None or -INSTANT_MAX <= spec.expires_at <= INSTANT_MAX)
        and (spec.expires_in_us is None or spec.expires_in_us <= DURATION_MAX)
    )


def _refuse_range(spec: JobSpec) -> Invalid:
    return Invalid(
        f"a job of {spec.task} has a priority outside {PRIORITY_MIN} to {PRIORITY_MAX}, an instant"
        " after the year 9999, or a duration of more than a hundred years"
    )


def _holds_key(holder: Job, unique: Unique, elapsed: int) -> bool:
    """Whether the holder still has the key: because of its state, or because the period lasts.

    elapsed: the current instant on the elapsed timeline.
    """
    age_us = elapsed - (holder.created_at - holder.offset_us)
    in_period = unique.for_us is not None and age_us < unique.for_us
    return in_period or holder.state in unique.states

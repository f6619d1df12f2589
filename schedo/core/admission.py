"""Admission of submitted specs: the range of their values, and unique keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from schedo.core.commands import Accepted, Submit
from schedo.core.ids import render_id
from schedo.core.job_maker import JobMaker
from schedo.core.job_table import JobTable
from schedo.core.limits import DURATION_MAX, INSTANT_MAX, PRIORITY_MAX, PRIORITY_MIN
from schedo.core.loads import Loaded, LoadUniqueHolders, Needs
from schedo.core.model import Job, JobSpec, Unique
from schedo.core.states import State
from schedo.errors import DuplicateKey, Forbidden, Invalid, SchedoError

_MayReplace = Callable[[str, str], bool] | None  # see Submit


class Admission:
    """Accepts or refuses specs, and makes the jobs of those that it accepts."""

    def __init__(self, jobs: JobTable, maker: JobMaker, cancel: Callable[[Job, int], Job]) -> None:
        self._jobs = jobs
        self._maker = maker
        self._cancel = cancel

    def submit(
        self, command: Submit, now: int, loaded: Loaded
    ) -> list[Accepted | SchedoError] | Needs:
        """Accept the specs; return one reply for each, in their order."""
        specs = command.specs
        keys = {unique.key for spec in specs if (unique := spec.options.unique) is not None}
        holders: Mapping[str, Job] = {}
        if keys:
            load = LoadUniqueHolders(tuple(sorted(keys)))
            if load in loaded:
                holders = loaded[load]
            elif any(self._jobs.find_key(key) is None for key in keys):
                return Needs((load,))
        return [self._accept(spec, holders, command.may_replace, now) for spec in specs]

    def _accept(
        self, spec: JobSpec, holders: Mapping[str, Job], may_replace: _MayReplace, now: int
    ) -> Accepted | SchedoError:
        """Make the job unless a number is out of range or another job holds its unique key.

        holders: the stored jobs that hold keys.
        """
        if not _is_in_range(spec):
            return _refuse_range(spec)
        unique = spec.options.unique
        if unique is None:
            return Accepted(self._maker.make(spec, now), False)
        holder = self._jobs.find_unique_holder(unique.key, holders.get(unique.key))
        if holder is None:
            return Accepted(self._maker.make(spec, now), False)
        is_held = _holds_key(holder, unique, now - self._jobs.offset_us)
        if is_held and unique.on_conflict == "reject":
            return DuplicateKey(
                f"job {render_id(holder.id)} is {holder.state} and holds the key {unique.key!r}"
            )
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
        return Accepted(self._maker.make(spec, now), False)


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

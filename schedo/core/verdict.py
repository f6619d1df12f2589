"""The verdict on a server: in one sentence, whether jobs start on time or what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from schedo.core.lateness import Budget
from schedo.core.limits import MILLISECOND, SECOND

Level = Literal["ok", "warning", "critical"]

_STARTS = {
    "timer": ("timed job", "timed jobs"),
    "submit": ("job that was due at once", "jobs that were due at once"),
}
# Of fewer starts, one that was late by chance makes a share that means nothing.
_FEW_STARTS = 20
_NAMED = 3  # of what is overdue


class Situation(NamedTuple):
    """What the verdict is about."""

    reasons: Sequence[str]  # why jobs would not start on time, as sentences
    pauses: str  # of the whole server; empty: there are none
    objective_us: int
    recent: Mapping[str, Budget]  # the starts of the last five minutes, by kind
    unserved: Mapping[str, int]  # due jobs that no worker can run, by task
    due: int  # jobs that are due and wait
    slots: int
    running: int
    overdue: Sequence[str]  # the schedules and other programs whose expectation is missed
    failed: int  # jobs that failed in the last 15 minutes


class Verdict(NamedTuple):
    """The sentence of the greatest weight, and the others in their order."""

    level: Level
    text: str
    others: list[str]


def judge(situation: Situation) -> Verdict:
    """Return the verdict."""
    late = _describe_late(situation)
    problems = [
        *_describe_readiness(situation),
        *late,
        *_describe_waiting(situation),
        *_describe_overdue(situation),
        *_describe_failures(situation),
    ]
    # Nobody who reads that jobs do not start shall read below that they start on time.
    is_well = not (late or situation.reasons or situation.pauses)
    text, *others = [*problems, _describe_starts(situation)] if is_well else problems
    level: Level = "warning" if problems else "ok"
    return Verdict("critical" if situation.reasons else level, text, others)


def _describe_readiness(situation: Situation) -> list[str]:
    found = []
    if situation.reasons:
        reasons = "; ".join(situation.reasons)
        stop = "" if reasons.endswith((".", "?")) else "."  # PostgreSQL's hints are sentences
        found.append(f"Jobs may not start on time: {reasons}{stop}")
    if situation.pauses:
        found.append(f"The server is paused: {situation.pauses}.")
    return found


def _describe_late(situation: Situation) -> list[str]:
    within = render_span(situation.objective_us)
    return [
        _describe_few(kind, budget, within)
        if budget.starts < _FEW_STARTS
        else f"{_how_many(budget)} start late. Only {_percent(budget)} of the {budget.starts:,}"
        f" {_STARTS[kind][1]} started within {within} in the last 5 minutes."
        for kind, budget in situation.recent.items()
        if not budget.is_met
    ]


def _how_many(budget: Budget) -> str:
    return "Some jobs" if budget.within * 20 >= budget.starts * 19 else "Jobs"


def _describe_few(kind: str, budget: Budget, within: str) -> str:
    one, many = _STARTS[kind]
    late = budget.starts - budget.within
    who = f"The only {one}" if budget.starts == 1 else f"{late} of the {budget.starts} {many}"
    return (
        f"{who} in the last 5 minutes started later than {within}."
        " So few starts say little about other jobs."
    )


def _describe_waiting(situation: Situation) -> list[str]:
    found = [
        f"{_jobs(count)} of the task {task} {_wait(count)} for a worker that can run it."
        for task, count in situation.unserved.items()
    ]
    waiting = situation.due - sum(situation.unserved.values())
    if waiting > 0 and 0 < situation.slots <= situation.running:
        wait = f"{_jobs(waiting)} {_wait(waiting)}"
        found.append(f"All {situation.slots:,} slots are busy, and {wait} for one.")
    return found


def _describe_overdue(situation: Situation) -> list[str]:
    names = situation.overdue
    if not names:
        return []
    shown, rest = [*names[:_NAMED]], len(names) - _NAMED
    if rest > 0:
        shown.append("1 other" if rest == 1 else f"{rest:,} others")
    *first, last = shown
    listed = f"{', '.join(first)} and {last}" if first else last
    return [f"What is expected of {listed} has not come in time."]


def _describe_failures(situation: Situation) -> list[str]:
    if not situation.failed:
        return []
    jobs = "job" if situation.failed == 1 else "jobs"
    return [f"{situation.failed:,} {jobs} failed in the last 15 minutes."]


def _describe_starts(situation: Situation) -> str:
    budgets = situation.recent.values()
    budget = Budget(sum(b.starts for b in budgets), sum(b.within for b in budgets))
    if not budget.starts:
        none = "No due job was free to start" if situation.due else "None was due"
        return f"Jobs start on time. {none} in the last 5 minutes."
    within = f"within {render_span(situation.objective_us)}"
    if budget.starts == 1:
        return f"Jobs start on time. The only start of the last 5 minutes was {within}."
    share = "All" if budget.within == budget.starts else f"{_percent(budget)} of the"
    return (
        f"Jobs start on time. {share} {budget.starts:,} starts of the last 5 minutes were {within}."
    )


def _percent(budget: Budget) -> str:
    """Return the share of the starts within the objective, rounded down."""
    return f"{10_000 * budget.within // budget.starts / 100:.2f} %"


def _jobs(count: int) -> str:
    return "1 due job" if count == 1 else f"{count:,} due jobs"


def _wait(count: int) -> str:
    return "waits" if count == 1 else "wait"


def render_span(us: int) -> str:
    """Return a bound of the histograms as a text such as "10 ms"."""
    if us < MILLISECOND:
        return f"{us} µs"
    return f"{us // MILLISECOND} ms" if us < SECOND else f"{us // SECOND} s"

"""The states of a job and the transitions between them.

Rule 1: a job changes its state only as TRANSITIONS allows. No other transition can happen.
Rule 2: this module does not depend on time, queues or workers, only on the order of states.
"""

from __future__ import annotations

from enum import StrEnum

from schedo.errors import IllegalTransition


class State(StrEnum):
    """The state of a job; docs/lifecycle.md describes each one."""

    SCHEDULED = "scheduled"
    BLOCKED = "blocked"
    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


S = State

# from: {to: event}. The diagram in docs/lifecycle.md is generated from this table.
TRANSITIONS: dict[State, dict[State, str]] = {
    S.SCHEDULED: {S.QUEUED: "due", S.CANCELLED: "cancel", S.EXPIRED: "expire"},
    S.BLOCKED: {
        S.QUEUED: "unblock",
        S.SCHEDULED: "unblock, not yet due",
        S.CANCELLED: "cancel",
        S.EXPIRED: "expire",
    },
    S.QUEUED: {
        S.RUNNING: "claim",
        S.SCHEDULED: "reschedule",
        S.CANCELLED: "cancel",
        S.EXPIRED: "expire",
        S.FAILED: "undo a manual retry",
    },
    S.RUNNING: {
        S.COMPLETED: "complete",
        S.RETRYING: "fail, attempts left",
        S.FAILED: "fail, give up",
        S.SCHEDULED: "snooze",
        S.QUEUED: "lost or released",
        S.CANCELLED: "cancel",
    },
    S.RETRYING: {
        S.QUEUED: "due",
        S.FAILED: "the next run comes first",
        S.CANCELLED: "cancel",
        S.EXPIRED: "expire",
    },
    S.COMPLETED: {},
    S.FAILED: {S.QUEUED: "manual retry"},
    S.CANCELLED: {S.QUEUED: "manual retry"},
    S.EXPIRED: {S.QUEUED: "manual retry"},
}

FINAL = frozenset({S.COMPLETED, S.FAILED, S.CANCELLED, S.EXPIRED})
TIMED = frozenset({S.SCHEDULED, S.RETRYING})  # these wait for an instant
WAITING = TIMED | {S.BLOCKED, S.QUEUED}

FOLLOWERS = {old: frozenset(follow) for old, follow in TRANSITIONS.items()}


def can_follow(old: State, new: State) -> bool:
    """Return whether a job may change from the old state to the new one."""
    return new in FOLLOWERS[old]


def check_transition(job_id: str, old: State, new: State) -> None:
    """Raise IllegalTransition unless the job may change from the old state to the new one."""
    if not can_follow(old, new):
        raise IllegalTransition(f"job {job_id} is {old}; it cannot become {new}")


def render_mermaid() -> str:
    """Return the transitions as a mermaid state diagram, in table order."""
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {state}" for state in (S.SCHEDULED, S.QUEUED, S.BLOCKED)]
    lines += [
        f"    {old} --> {new}: {verb}"
        for old, follow in TRANSITIONS.items()
        for new, verb in follow.items()
    ]
    lines += [f"    {state} --> [*]" for state in State if state in FINAL]
    return "\n".join(lines) + "\n"

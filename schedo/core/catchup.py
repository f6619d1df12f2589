"""The catch-up of due instants: which of them run, and which are coalesced or missed.

An instant that is less than LATE_FIRE_US old is late: it is not missed, and it runs. The catch-up
policy decides about older instants. An instant that is older than the catch-up window is missed,
whatever the policy is. Each instant gets exactly one decision.
"""

from __future__ import annotations

from typing import NamedTuple

from schedo.core.limits import LATE_FIRE_US
from schedo.core.model import Catchup, Decision, DecisionRecord, Rule, Schedule, Trigger
from schedo.core.triggers import latest_through, next_after


class Firing(NamedTuple):
    """The fire of one instant, which also replaces `missed_count` earlier instants."""

    scheduled_for: int
    trigger: Trigger
    missed_count: int = 0


class FirePlan(NamedTuple):
    """The plan for every instant up to now: fires, oldest first, and decisions on the others."""

    fires: list[Firing]
    decisions: list[DecisionRecord]
    next_fire_at: int | None


def plan_fires(schedule: Schedule, now: int) -> FirePlan:
    """Decide about every instant after the schedule's watermark up to now."""
    spec, rule = schedule.spec, schedule.rule
    following = next_after(rule, now)
    due = schedule.next_fire_at
    if due is not None and rule.end_at is not None and due > rule.end_at:
        due = None  # the clock was set to after the end
    if due is not None and due > _missed_through(now) and _is_single(rule, due, following):
        # The usual case: a single instant, in time.
        return FirePlan([Firing(due, Trigger.SCHEDULE)], [], following)

    through = schedule.evaluated_through
    late_from = max(through, _missed_through(now))
    late, late_count = latest_through(rule, late_from, now, spec.catchup_max)
    fires = [Firing(instant, Trigger.SCHEDULE) for instant in reversed(late)]
    caught_up: list[Firing] = []
    decisions: list[DecisionRecord] = []
    if late_count > len(late):
        latest = _instant_before(schedule, late[-1])
        decisions.append(
            _decision_for(schedule, latest, now, Decision.COALESCED, late_count - len(late))
        )
    if through < late_from:
        caught_up, others = _plan_missed(schedule, late_from, now, has_late=bool(fires))
        decisions += others
    if fires:  # the first late run stands for all that are coalesced
        coalesced = sum(d.count for d in decisions if d.decision is Decision.COALESCED)
        fires[0] = fires[0]._replace(missed_count=coalesced)
    return FirePlan(caught_up + fires, decisions, following)


def _plan_missed(
    schedule: Schedule, before: int, now: int, *, has_late: bool
) -> tuple[list[Firing], list[DecisionRecord]]:
    """Decide about the instants up to `before`, which are too old to count as late."""
    spec, rule = schedule.spec, schedule.rule
    through = schedule.evaluated_through
    window_start = min(max(through, now - spec.catchup_window_us - 1), before)
    decisions: list[DecisionRecord] = []

    beyond, beyond_count = latest_through(rule, through, window_start, 1)
    if beyond_count:
        decisions.append(_decision_for(schedule, beyond[0], now, Decision.MISSED, beyond_count))

    count_max = spec.catchup_max if spec.catchup is Catchup.ALL else 1
    within, count = latest_through(rule, window_start, before, count_max)
    if not count:
        return [], decisions
    if spec.catchup is Catchup.SKIP:
        decisions.append(_decision_for(schedule, within[0], now, Decision.MISSED, count))
        return [], decisions
    if spec.catchup is Catchup.ALL:
        if count > len(within):
            latest = _instant_before(schedule, within[-1])
            decisions.append(
                _decision_for(schedule, latest, now, Decision.MISSED, count - len(within))
            )
        return [Firing(instant, Trigger.CATCHUP) for instant in reversed(within)], decisions
    if has_late:  # the late run replaces all missed ones
        decisions.append(_decision_for(schedule, within[0], now, Decision.COALESCED, count))
        return [], decisions
    if count > 1:
        latest = _instant_before(schedule, within[0])
        decisions.append(_decision_for(schedule, latest, now, Decision.COALESCED, count - 1))
    return [Firing(within[0], Trigger.CATCHUP, count - 1)], decisions


def _is_single(rule: Rule, due: int, following: int | None) -> bool:
    """Return whether the stored instant is the only one of the rule before the following one.

    Newer time zone data may have moved it, so that it is no instant of the rule any more.
    """
    is_instant = rule.cron is None or next_after(rule, due - 1) == due
    return is_instant and next_after(rule, due) == following


def _missed_through(now: int) -> int:
    """Return the latest instant that is missed; the later ones are only late."""
    return now - LATE_FIRE_US


def _instant_before(schedule: Schedule, instant: int) -> int:
    """Return the latest instant before the given one. The caller knows that one exists."""
    rule = schedule.rule
    return latest_through(rule, schedule.evaluated_through, instant - 1, 1)[0][0]


def _decision_for(
    schedule: Schedule, latest: int, now: int, decision: Decision, count: int
) -> DecisionRecord:
    """Return one record for `count` instants of which `latest` is the last."""
    return DecisionRecord(schedule.id, latest, now, decision, None, count)

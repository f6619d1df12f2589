"""The checker: compares what the clients were promised with what happened.

It knows nothing of schedo but its promises. It finds violations, and counts what is allowed. A run
may repeat only in a later epoch, or as a later attempt of the same one:

- redone: the same attempt or an earlier one in a later epoch, so the start was not yet durable; or
  a later one, but the store has the first one as that of another server;
- repeated: a later attempt, so the start was durable and the attempt was lost with its worker.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from tests.e2e.takeover.evidence import (
    TRAFFIC,
    ClientLog,
    Kill,
    Line,
    Row,
    StreamEvent,
    Submission,
)

Recorded = Mapping[tuple[str, int], Set[int]]
ENDED = {"completed", "failed", "cancelled", "expired"}
SECOND_US = 1_000_000
SHELL_CLOCK_S = 0.01  # the resolution of the times in the lines of commands
SILENCE_S = 30.0  # of an event stream with a tick each second; a busy machine is slow


@dataclass
class Findings:
    """What the checker found."""

    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    lateness_s: list[float] = field(default_factory=list)  # of the timers

    def fault(self, kind: str, what: str) -> None:
        """Note a violation; of each kind, the first ones are described."""
        self.counts[f"violation: {kind}"] += 1
        if self.counts[f"violation: {kind}"] <= 5:
            self.violations.append(f"{kind}: {what}")


def check(  # noqa: PLR0913  # all evidence of a run
    log: ClientLog,
    lines: list[Line],
    rows: list[Row],
    until: float,
    *,
    may_repeat: bool = True,
    keeps_remote: bool = True,
    recorded: Recorded = MappingProxyType({}),
) -> Findings:
    """Return the findings.

    until: the Unix second up to which schedules must have fired. may_repeat: a process was killed.
    keeps_remote: a remote worker keeps its attempts whatever happens to servers. recorded: the
    epochs of the attempts that have ended unsuccessfully, by job and number, as the store has them.
    """
    findings = Findings()
    for text in log.wrong:
        findings.fault("response", text)
    by_job: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_job[line.job].append(line)
    stored = {row.id: row for row in rows}
    _check_submissions(findings, log.submissions, by_job, stored)
    known = {each.token: each for each in log.submissions}
    _check_repeats(findings, by_job, known, recorded)
    _check_tokens(findings, log, lines)
    lost = sum(findings.counts[f"repeated, {place}"] for place in ("remote", "remote-shell"))
    if keeps_remote and lost:
        findings.fault("remote attempt lost", f"{lost} ran again")
    for what, count in list(findings.counts.items()):
        if not may_repeat and what.startswith(("redone", "repeated", "at_most_once, lost")):
            findings.fault("run twice", f"{count} {what}, and no process was killed")
    for name, since in log.schedules.items():
        _check_instants(findings, name, since, until, rows)
        _check_runs(findings, name, since, until, lines)
    for seen in log.streams:
        _check_stream(findings, seen)
    return findings


def _check_submissions(
    findings: Findings,
    submissions: list[Submission],
    by_job: dict[str, list[Line]],
    stored: dict[str, Row],
) -> None:
    for each in submissions:
        if each.job is None:
            findings.counts["without an acknowledgement"] += 1
            continue
        findings.counts["acknowledged"] += 1
        row = stored.get(each.job)
        if row is None:
            findings.fault("lost", f"{each} is not in the store")
        elif row.state not in ENDED:
            findings.fault("unfinished", f"{each} is {row.state}")
        else:
            _check_end(findings, each, row.state, by_job.get(each.job, []))


def _check_end(findings: Findings, each: Submission, state: str, lines: list[Line]) -> None:
    if each.cancelled_at is not None:
        _check_cancelled(findings, each, state, lines)
    elif state == "completed":
        if not any(line.what == "end" for line in lines):
            findings.fault("lost", f"{each} is completed, but did not run")
    elif state == "cancelled" and each.may_be_cancelled:
        findings.counts["cancelled while it ran"] += 1
    elif each.delivery == "at_most_once":
        findings.counts["at_most_once, lost"] += 1
    else:
        findings.fault("lost", f"{each} is {state}")


def _check_cancelled(findings: Findings, each: Submission, state: str, lines: list[Line]) -> None:
    assert each.cancelled_at is not None
    findings.counts["cancelled"] += 1
    after = [line for line in lines if line.at > each.cancelled_at + SHELL_CLOCK_S]
    if state != "cancelled" or after:
        findings.fault("cancel", f"{each} is {state}; afterwards: {after}")


def _check_repeats(
    findings: Findings,
    by_job: dict[str, list[Line]],
    submissions: dict[str, Submission],
    recorded: Recorded,
) -> None:
    for lines in by_job.values():
        starts = [line for line in lines if line.what == "start"]
        ends = Counter(line[2:5] for line in lines if line.what == "end")
        findings.counts[f"runs, {starts[0].place}"] += len(starts)
        if any(count > 1 for count in ends.values()):
            findings.fault("same attempt twice", str(lines))
        known = submissions.get(starts[0].token)
        for before, after in itertools.pairwise(starts):
            epochs = recorded.get((before.job, before.attempt), {before.epoch})
            _check_repeat(findings, before, after, known, was_durable=before.epoch in epochs)


def _check_repeat(
    findings: Findings,
    before: Line,
    after: Line,
    submission: Submission | None,
    *,
    was_durable: bool,
) -> None:
    """was_durable: another server has not begun the attempt before again, perhaps for no worker."""
    if submission is not None and submission.delivery == "at_most_once":
        findings.fault("at_most_once ran twice", f"{before}, {after}")
    if (after.epoch, after.attempt) <= (before.epoch, before.attempt):
        findings.fault("stale run", f"{before}, {after}")
    elif after.attempt <= before.attempt or not was_durable:
        findings.counts[f"redone, {after.place}"] += 1
    else:
        findings.counts[f"repeated, {after.place}"] += 1


def _check_tokens(findings: Findings, log: ClientLog, lines: list[Line]) -> None:
    """Each submission makes at most one job, and no job comes from nowhere."""
    jobs: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        jobs[line.token].add(line.job)
    known = {each.token: each for each in log.submissions}
    for token, ids in jobs.items():
        if token in log.schedules or token == TRAFFIC:
            continue
        if token not in known:
            findings.fault("ghost", f"{token} was never submitted")
        elif len(ids) > 1 or known[token].job not in (None, *ids):
            findings.fault("second job", f"{token}: {sorted(ids)}, {known[token]}")
        elif known[token].is_rejected:
            findings.fault("ghost", f"{known[token]} was rejected, and ran")


def _check_instants(
    findings: Findings, name: str, since: float, until: float, rows: list[Row]
) -> None:
    """The store has one job for each second; see _check_runs for the view of the handlers."""
    found = Counter(
        row.scheduled_for for row in rows if row.schedule == name and row.scheduled_for is not None
    )
    for instant, count in found.items():
        if count > 1:
            findings.fault("second job for an instant", f"{name}: {count} jobs for {instant}")
        if instant % SECOND_US:
            findings.fault("ghost", f"{name} has no instant {instant}")
    expected = range(int(since) + 2, int(until))
    findings.counts["instants"] += len(expected)
    for second in expected:
        if not found[second * SECOND_US]:
            findings.fault("missed instant", f"{name}: no job for {second}")


def _check_runs(
    findings: Findings, name: str, since: float, until: float, lines: list[Line]
) -> None:
    """The handlers ran once for each second, by the identity of the instant that they got."""
    jobs: dict[str, set[str]] = defaultdict(set)
    complete: Counter[str] = Counter()
    for line in lines:
        if line.token == name:
            jobs[line.due].add(line.job)
            complete[line.due] += line.what == "end"
    for due, ids in jobs.items():
        if len(ids) > 1:
            findings.fault("second job for an instant", f"{name}: {due} ran as {sorted(ids)}")
    start = datetime.fromtimestamp(int(since) + 2, UTC)
    for second in range(int(until) - int(since) - 2):
        due = f"{start + timedelta(seconds=second):%Y-%m-%dT%H:%M:%S.%fZ}"
        if not complete[due]:
            findings.fault("missed instant", f"{name}: no complete run for {due}")


def _check_stream(findings: Findings, seen: list[StreamEvent]) -> None:
    """Each event follows the one before, or the client learns that it has missed some."""
    last = ""
    for before, each in itertools.pairwise(seen):
        if each.at - before.at > SILENCE_S:
            silence = f"silence for {each.at - before.at:.1f} s after {before}"
            findings.fault("events", f"{silence}, until {each.name}")
        if not each.ident:
            continue
        if each.name in ("reset", "gap"):
            findings.counts[f"events, {each.name}"] += 1
        elif last and each.ident != _next_ident(last):
            findings.fault("events", f"{each} came after {last}")
        findings.counts["events"] += 1
        last = each.ident


def _next_ident(ident: str) -> str:
    epoch, number = ident.split("-")
    return f"{epoch}-{int(number) + 1}"


def check_remote(findings: Findings, kills: int) -> None:
    """At rest, a remote worker runs a job again after at most one of ten kills of the active."""
    count = sum(findings.counts[f"redone, {place}"] for place in ("remote", "remote-shell"))
    if count > kills / 10:
        findings.fault("remote runs", f"{count} ran twice, after {kills} kills of the active")


def find_first_fires(kills: list[Kill], lines: list[Line]) -> list[float]:
    """Return the seconds from each kill of the active to the first start by its successor.

    A start of the successor has a greater epoch than all starts before the kill.
    """
    starts = sorted((line for line in lines if line.what == "start"), key=lambda line: line.at)
    found = []
    for kill in kills:
        if kill.what != "active":
            continue
        epoch = max((line.epoch for line in starts if line.at < kill.at), default=0)
        after = [line.at for line in starts if line.epoch > epoch]
        if after:
            found.append(min(after) - kill.at)
    return found


def find_lateness(lines: list[Line], offset_s: float) -> list[float]:
    """Return how late the first attempt of each timer started, in s.

    offset_s: of the wall clock to CLOCK_MONOTONIC.
    """
    return [
        line.at + offset_s - datetime.fromisoformat(line.due).timestamp()
        for line in lines
        if line.what == "start" and line.attempt == 1 and line.token.startswith("timer-")
    ]


def percentile(values: list[float], part: float) -> float:
    """Return the value that this part of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]

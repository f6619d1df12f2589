"""The scheduler has one door: the other packages use its methods, never its parts."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.sources import Source, sources

# fmt: off
CHANGES = {"apply", "apply_result", "tick", "tick_attempts", "deliver", "committed", "follow_clock"}
RECOVERY = {
    "restore", "take_over", "follow_server", "expect_worker", "recover_running", "recover_lost",
    "recovered", "epoch", "last_id", "idle_polls", "shift_sessions",
}
EFFECTS = {
    "take_changes", "take_leases", "take_stops", "take_ready", "take_loads", "take_notes",
    "take_replies", "has_changes", "awaits_commit", "awaits_load", "next_wake_at",
    "next_timeout_at", "awaits_slots", "may_go_on",
}
QUERIES = {
    "find_job", "find_schedule", "queue", "queue_names", "explain",
    "explain_workers", "explain_remote", "find_waiting", "dry_run",
    "worker_status",
    "worker_statuses", "held_by", "is_live", "runs", "stop_reason", "unsent", "uncommitted",
    "offset_us", "delays", "stats", "slots", "waiting", "pauses", "unserved", "bulk_operations",
    "expectations",
    "has_suspects_for", "limits", "list_unheard", "find_surplus",
}
# fmt: on
DOOR = CHANGES | RECOVERY | EFFECTS | QUERIES
# Classes that only the core makes and uses.
PARTS = {
    *("Admission", "BulkOperations", "Expectations", "Expiry", "JobCommands", "JobMaker"),
    *("JobTable", "JobTransitions", "Pauses", "Placement"),
    *("ReadyQueues", "RunningAttempts", "ScheduleCommands", "ScheduleTable", "Schedules"),
    *("Timers", "WorkerPool"),
}


def outside() -> Iterator[Source]:
    """Yield the sources outside of the core."""
    return (source for source in sources("schedo") if not source.name.startswith("schedo.core."))


def test_outside_of_the_core_only_the_public_methods_of_the_scheduler_are_used() -> None:
    findings = [
        f"{source.at(node.lineno)} uses {ast.unparse(node)}"
        for source in outside()
        for node in source.nodes
        if isinstance(node, ast.Attribute) and is_scheduler(node.value) and node.attr not in DOOR
    ]

    assert not findings, "\n".join(findings)


def is_scheduler(node: ast.expr) -> bool:
    """Whether the expression is a scheduler by its name: `scheduler`, or `….scheduler`."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name in ("scheduler", "_scheduler")


def test_outside_of_the_core_no_part_of_the_scheduler_is_imported() -> None:
    findings = [
        f"{source.at(imported.line)} imports {imported.name}"
        for source in outside()
        for imported in source.imports()
        if imported.module.startswith("schedo.core") and imported.name in PARTS
    ]

    assert not findings, "\n".join(findings)


def test_all_other_attributes_of_the_scheduler_are_private() -> None:
    (source,) = (source for source in sources("schedo") if source.name == "schedo.core.scheduler")
    (scheduler,) = (
        node
        for node in source.tree.body
        if isinstance(node, ast.ClassDef) and node.name == "Scheduler"
    )

    public = {name for name in members(scheduler) if not name.startswith("_")}
    assert public == DOOR


def members(definition: ast.ClassDef) -> Iterator[str]:
    """Yield the names of the methods, and of the attributes that a method uses."""
    for node in ast.walk(definition):
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == f"self.{node.attr}":
            yield node.attr

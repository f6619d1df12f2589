"""The roles of tokens, and the table of what each role may do."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """What a token permits. An operator may also view and beat; an admin may do everything."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    WORKER = "worker"
    BEAT = "beat"


# The operations by the role that a token needs for them; None: no token is needed.
_OPERATIONS: dict[Role | None, str] = {
    None: "check_health check_ready get_openapi get_problem get_me create_session delete_session",
    Role.VIEWER: """
        list_jobs get_job list_attempts get_history get_output wait_for_job explain_job get_progress
        list_schedules get_schedule list_decisions list_expectations get_expectation
        explain_cron list_queues
        list_workers get_worker list_operations get_operation
        get_metrics get_info short_status
        get_summary get_store get_timeseries get_stats get_events list_failures list_names
        list_schedule_fires list_fires
        create_session_link list_log get_cluster
        """,
    Role.OPERATOR: """
        create_job create_jobs short_schedule update_job cancel_job retry_job run_job
        create_operation cancel_operation undo_operation
        invoke reserve commit_reservation release_reservation
        pause_schedule resume_schedule trigger_schedule pause_queue resume_queue
        cordon_worker uncordon_worker drain_worker pause_server resume_server
        """,
    Role.ADMIN: """
        put_schedule declare reset_schedule delete_schedule put_expectation delete_expectation
        delete_job update_queue create_backup advance_clock
        """,
    Role.BEAT: "beat_expectation",
    Role.WORKER: "work",
}
ROLES = {name: role for role, names in _OPERATIONS.items() for name in names.split()}

# Operations whose handlers check the queues and tasks of a restricted token. Such a token is
# refused for every other operation that changes something.
_RESTRICTABLE = """
    create_job create_jobs short_schedule update_job cancel_job retry_job run_job
    create_operation cancel_operation undo_operation
    invoke reserve commit_reservation release_reservation
    pause_schedule resume_schedule trigger_schedule pause_queue resume_queue work
    """
RESTRICTABLE = frozenset(_RESTRICTABLE.split())

# What changes something by hand: all that needs these roles, but not what applications do all day.
_UNLOGGED = """
    create_job create_jobs short_schedule invoke reserve commit_reservation release_reservation
    """
LOGGED = frozenset(
    name for name, role in ROLES.items() if role in (Role.OPERATOR, Role.ADMIN)
) - frozenset(_UNLOGGED.split())

"""The handlers of the operations. Their modules are imported when a request needs them first.

Few servers need all of them, and their code would take half a megabyte.
"""

from __future__ import annotations

from importlib import import_module

from schedo.web.context import AppContext, Handler
from schedo.web.http import Request, Response

# The operations by the module that has their handlers.
_OPERATIONS: dict[str, str] = {
    "schedo.web.handlers.submit": "create_job short_schedule",
    "schedo.web.handlers.batches": "create_jobs",
    "schedo.web.handlers.jobs": """
        list_jobs get_job update_job list_attempts get_output wait_for_job
        explain_job cancel_job retry_job run_job delete_job short_status
        """,
    "schedo.web.handlers.job_history": "get_history",
    "schedo.web.handlers.bulk": """
        create_operation list_operations get_operation cancel_operation undo_operation
        """,
    "schedo.web.handlers.schedules": """
        list_schedules put_schedule get_schedule reset_schedule delete_schedule
        list_decisions pause_schedule resume_schedule trigger_schedule
        """,
    "schedo.web.handlers.declarations": "declare",
    "schedo.web.handlers.fires": "list_schedule_fires list_fires explain_cron",
    "schedo.web.handlers.work": "work",
    "schedo.web.handlers.workers": """
        list_workers get_worker cordon_worker uncordon_worker drain_worker get_progress
        """,
    "schedo.web.handlers.invocations": "invoke reserve commit_reservation release_reservation",
    "schedo.web.handlers.expectations": """
        put_expectation list_expectations get_expectation delete_expectation
        beat_expectation
        """,
    "schedo.web.handlers.queues": "list_queues update_queue pause_queue resume_queue",
    "schedo.web.handlers.action_log": "list_log",
    "schedo.web.handlers.sessions": "get_me create_session delete_session create_session_link",
    "schedo.web.handlers.system": "check_health check_ready get_info get_openapi get_problem",
    "schedo.web.handlers.metrics": "get_metrics",
    "schedo.web.handlers.events": "get_events",
    "schedo.web.handlers.failures": "list_failures",
    "schedo.web.handlers.names": "list_names",
    "schedo.web.handlers.summary": "get_summary",
    "schedo.web.handlers.store": "get_store",
    "schedo.web.handlers.timeseries": "get_timeseries",
    "schedo.web.handlers.stats": "get_stats",
    "schedo.web.handlers.pauses": "pause_server resume_server",
    "schedo.web.handlers.clock": "advance_clock",
    "schedo.web.handlers.backup": "create_backup",
    "schedo.web.handlers.cluster": "get_cluster",
}


def _imported_late(module: str, name: str) -> Handler:
    async def handle(context: AppContext, request: Request) -> Response:
        handler: Handler = getattr(import_module(module), name)
        return await handler(context, request)

    return handle


HANDLERS: dict[str, Handler] = {
    name: _imported_late(module, name)
    for module, names in _OPERATIONS.items()
    for name in names.split()
}


def import_all() -> None:
    """Import the modules of all handlers now."""
    for module in _OPERATIONS:
        import_module(module)

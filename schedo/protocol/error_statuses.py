"""The errors of each operation, for the OpenAPI document.

A line of the table says which operations have an error, by what the table of operations knows of
them: a token, a body, an id in the path. Only a conflict is a matter of the single operation.
"""

from __future__ import annotations

from collections.abc import Callable

from schedo.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    InvocationFailed,
    InvocationTimeout,
    NotFound,
    Overloaded,
    SchedoError,
    StoreFull,
    TooLarge,
    Unauthorized,
    Unavailable,
    UnsupportedMedia,
)
from schedo.protocol.operation import Operation

# What contradicts a state: of a job, a schedule, a worker's name, a session, the clock.
_CONTRADICTABLE = """
    create_job update_job cancel_job retry_job run_job delete_job undo_operation
    put_schedule declare put_expectation work advance_clock
    create_session create_session_link
    """
_WITH_CONFLICTS = frozenset(_CONTRADICTABLE.split())
_RUNS_NOW = frozenset({"invoke", "commit_reservation", "short_schedule"})
_FINDS_BY_QUERY = frozenset({"short_status", "get_events"})
_FROM_MEMORY = frozenset({"check_health", "get_openapi", "get_problem"})


def _changes(operation: Operation) -> bool:
    return operation.method != "GET"


def _takes_body(operation: Operation) -> bool:
    return operation.request is not None


def _needs_token(operation: Operation) -> bool:
    return operation.role is not None or operation.name == "create_session"


def _has_conflicts(operation: Operation) -> bool:
    return operation.name in _WITH_CONFLICTS or operation.takes_key or operation.takes_nonce


def _finds_one(operation: Operation) -> bool:
    """Return whether it is about one thing that must be there.

    A queue is there when it is named, a PUT makes what is not there, and a reservation that is gone
    is a conflict.
    """
    if (
        operation.method == "PUT"
        or operation.takes_nonce
        or operation.path.startswith("/v1/queues")
    ):
        return False
    return "{" in operation.path or operation.name in _FINDS_BY_QUERY


_ERRORS: tuple[tuple[type[SchedoError], Callable[[Operation], bool]], ...] = (
    (BadRequest, lambda operation: True),
    (Unauthorized, _needs_token),
    (Forbidden, lambda operation: _needs_token(operation) or _changes(operation)),
    (NotFound, _finds_one),
    (Conflict, _has_conflicts),
    (TooLarge, lambda operation: True),
    (UnsupportedMedia, _takes_body),
    (Invalid, lambda operation: _takes_body(operation) or "{name}" in operation.path),
    (Overloaded, lambda operation: _needs_token(operation) or operation.may_wait),
    (InvocationFailed, lambda operation: operation.name in _RUNS_NOW),
    (Unavailable, lambda operation: operation.name not in _FROM_MEMORY),
    (InvocationTimeout, lambda operation: operation.name in _RUNS_NOW),
    (StoreFull, lambda operation: _changes(operation) and _needs_token(operation)),
)
_WITH_RETRY_AFTER = (Overloaded, Unavailable)  # problem_headers gives it to each of their status


def list_errors(operation: Operation) -> list[type[SchedoError]]:
    """Return the errors of an operation, each for all codes of its status."""
    found = [error for error, applies in _ERRORS if applies(operation)]
    return [error for error in found if error.status not in operation.responses]


def list_all_errors() -> list[type[SchedoError]]:
    """Return the errors that operations can have, one for each status."""
    return [error for error, _ in _ERRORS]


def has_retry_after(error: type[SchedoError]) -> bool:
    """Return whether each response with the status says when to send the request again."""
    return error in _WITH_RETRY_AFTER

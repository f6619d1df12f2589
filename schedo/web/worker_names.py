"""Which client may use the name of a worker."""

from __future__ import annotations

from schedo.errors import Forbidden, NotFound
from schedo.protocol.roles import Role
from schedo.web.context import AppContext
from schedo.web.http import Request


def check_name(context: AppContext, request: Request, name: str) -> None:
    """Raise Forbidden if another token uses the name, or holds leases that this one cannot have.

    After a restart the server does not know the tokens of the workers, but it knows their leases.
    """
    known, permission = context.workers.get(name), request.permission
    if known is not None and known.client_id == request.client_id:
        return
    if permission is None or permission.role is not Role.WORKER:
        return
    held = context.engine.sessions.held_by(name)
    if known is not None and (held or _is_connected(context, name)):
        raise Forbidden(f"the worker {name!r} is connected already, with another token")
    for lease in held:
        if not permission.allows(lease.queue, lease.task):
            raise Forbidden(f"the worker {name!r} runs jobs that this token does not cover")


def _is_connected(context: AppContext, name: str) -> bool:
    try:
        return context.engine.sessions.get(name).state != "disconnected"
    except NotFound:
        return False

"""Who makes a change, from the request that asks for it."""

from __future__ import annotations

from schedo.core.ids import parse_id, render_id
from schedo.engine.action_log import Author, acting
from schedo.errors import NotFound
from schedo.web.context import AppContext, Handler
from schedo.web.credentials import ANYONE_ID, find_address
from schedo.web.http import Request, Response

_LOCAL = "local"  # a client of a server without tokens
_CLI = "schedo-cli"  # the User-Agent of the command line
# Browsers send one of them with each change.
_OF_BROWSERS = (b"sec-fetch-site", b"origin")


def logged(handle: Handler) -> Handler:
    """Return the handler of an operation whose changes the log shows."""

    async def handle_and_log(context: AppContext, request: Request) -> Response:
        if request.confirms:  # the other server has logged it
            return await handle(context, request)
        with acting(_find_author(request)):
            return await handle(context, request)

    return handle_and_log


def _find_author(request: Request) -> Author:
    permission = request.permission
    is_known = permission is not None and request.client_id != ANYONE_ID
    return Author(
        who=permission.name if permission is not None and is_known else _LOCAL,
        via=_find_via(request),
        address=find_address(request.transport),
        action=request.operation,
        target=_find_target(request),
    )


def _find_via(request: Request) -> str:
    if any(name in request.headers for name in _OF_BROWSERS):
        return "page"
    return "cli" if request.find_header(b"user-agent") == _CLI else "api"


def _find_target(request: Request) -> str:
    """Return the address below /v1/ without its verb; an id as the server writes it."""
    target = request.path.removeprefix("/v1/").partition(":")[0]
    number = request.params.get("id")
    if number is None:
        return target
    try:
        return target.replace(number, render_id(parse_id(number)))
    except NotFound:
        return target

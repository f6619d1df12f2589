"""Log in and out with a browser, and show what the client may do."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import UNSET

from schedo.errors import Forbidden
from schedo.protocol.operations import OPERATIONS
from schedo.protocol.sessions import Access, LinkResponse, MeResponse, SessionRequest
from schedo.protocol.times import render_instant
from schedo.web.context import AppContext
from schedo.web.credentials import ANYONE_ID, find_address, host_name
from schedo.web.http import Header, Request, Response
from schedo.web.permissions import TokenPermission
from schedo.web.sessions import SESSION_US, Session, render_cookie


async def get_me(context: AppContext, request: Request) -> Response:
    session = find_session(context, request)
    me = _describe(request.permission, _find_access(context, request, session), session)
    if request.permission is not None and context.settings.public_url is not None:
        me.public_url = str(context.settings.public_url)
    return _respond(me)


def find_session(context: AppContext, request: Request) -> Session | None:
    """Return the session that the request is made in; None: it has a token, or neither."""
    if _has_bearer(request):
        return None
    return context.credentials.find_session(request.headers, _host(request))


async def create_session(context: AppContext, request: Request) -> Response:
    asked = await request.read(SessionRequest)
    asked.check()
    credentials = context.credentials
    token = credentials.log_in(asked.token, asked.link, find_address(request.transport))
    await credentials.sessions.load()
    value, expires_at = credentials.sessions.begin(token, _host(request))
    me = _describe(credentials.tokens[token], "session", Session(token, expires_at))
    return _respond(me).with_headers(_cookie(context, value, SESSION_US))


async def delete_session(context: AppContext, request: Request) -> Response:
    if not request.find_header(b"cookie"):
        return Response(204, b"")
    await context.credentials.sessions.load()  # the cookie's name needs it
    return Response(204, b"").with_headers(_cookie(context, "", 0))


async def create_session_link(context: AppContext, request: Request) -> Response:
    if not _has_bearer(request) and request.client_id != ANYONE_ID:
        raise Forbidden("a session makes no links, or it could go on forever; send the token")
    code, expires_at = context.credentials.make_link(request.client_id)
    return Response(201, msgspec.json.encode(LinkResponse(code, render_instant(expires_at))))


def _find_access(context: AppContext, request: Request, session: Session | None) -> Access:
    if request.permission is None:
        return "none"
    if request.client_id != ANYONE_ID:
        return "token" if session is None else "session"
    return "anonymous" if context.credentials.has_login else "open"


def _describe(
    permission: TokenPermission | None, access: Access, session: Session | None
) -> MeResponse:
    me = MeResponse(
        access=access,
        operations=[*_list_operations(permission)],
        expires_at=render_instant(session.expires_at) if session is not None else UNSET,
    )
    if permission is not None:
        me.name, me.role = permission.name, permission.role
        me.hides_payloads = permission.hides_payloads or UNSET
        me.queues, me.tasks = _sort(permission.queues), _sort(permission.tasks)
    return me


def _sort(names: frozenset[str] | None) -> list[str] | msgspec.UnsetType:
    return UNSET if names is None else sorted(names)


def _list_operations(permission: TokenPermission | None) -> Iterator[str]:
    for operation in OPERATIONS:
        if permission is None:
            if operation.role is None:
                yield operation.name
            continue
        try:
            permission.check_operation(operation)
        except Forbidden:
            continue
        yield operation.name


def _respond(me: MeResponse) -> Response:
    return Response(200, msgspec.json.encode(me))


def _host(request: Request) -> str:
    return host_name(request.find_header(b"host") or "")


def _has_bearer(request: Request) -> bool:
    return b"authorization" in request.headers


def _cookie(context: AppContext, value: str, age_us: int) -> Header:
    is_secure = context.settings.is_secure
    path = context.settings.prefix or "/"
    name = context.credentials.sessions.cookie
    return b"set-cookie", render_cookie(name, value, age_us, path, is_secure=is_secure)

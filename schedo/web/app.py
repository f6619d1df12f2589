"""The HTTP application: the table of operations, each with its handler, behind access control."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

from schedo.engine.engine import Engine
from schedo.protocol.operation import Operation
from schedo.protocol.operations import OPERATIONS
from schedo.protocol.roles import LOGGED
from schedo.web.auth import AccessMiddleware, TrustingMiddleware
from schedo.web.authors import logged
from schedo.web.context import AppContext, Handler
from schedo.web.credentials import Credentials
from schedo.web.endpoint import Endpoint
from schedo.web.handler_table import HANDLERS
from schedo.web.permissions import TokenPermission
from schedo.web.sessions import Sessions
from schedo.web.settings import WebSettings
from schedo.web.slim_imports import Route, Router

if TYPE_CHECKING:
    from schedo.web.site import Site


class WebApp:
    """The ASGI application of one server."""

    def __init__(self, engine: Engine, settings: WebSettings) -> None:
        signed = Sessions(engine.store.session_key, engine.clock.now)
        self.context = AppContext(engine, settings, Credentials(settings, signed))
        routes = _make_routes(self.context)
        self._site: Site | None = None
        self._fixed = {route.path: route.app for route in routes if "{" not in route.path}
        self._router = Router(routes, default=self._serve_page, redirect_slashes=False)
        self._guarded = AccessMiddleware(self._route, settings, self.context.credentials)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and (prefix := self.context.settings.prefix):
            _strip(scope, prefix)
        return self._guarded(scope, receive, send)

    def _route(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Look fixed paths up directly; the router would try one pattern after the other."""
        fixed = self._fixed.get(scope["path"])
        if fixed is None:
            return self._router(scope, receive, send)
        scope["path_params"] = {}
        return fixed(scope, receive, send)

    async def _serve_page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the page, whose module is imported for its first request: many have none."""
        from schedo.web.site import Site

        if self._site is None:
            self._site = Site(self.context.settings.prefix + "/")
        await self._site(scope, receive, send)

    def check(self, scope: Scope) -> None:
        """Raise the error of a request that may not come at all; its body need not be there."""
        self._guarded.check(scope)

    def use(self, settings: WebSettings) -> None:
        """Use these settings for the requests that follow."""
        self.context.settings = settings
        self._guarded.use(settings)
        if settings.tokens != self.context.credentials.tokens:
            # Their clients connect again, if they still may.
            self.context.end_streams()
            self.context.end_polls(self.context.credentials.find_changed(settings))
        self.context.credentials.use(settings)

    def trusting(self, permission: TokenPermission, client_id: str) -> ASGIApp:
        """Return this application for connections that have the permission without a token."""
        context = self.context
        return TrustingMiddleware(
            self._route, context.settings, context.credentials, permission, client_id
        )

    def drain(self) -> None:
        """End open waits with the current state of their jobs; the server shuts down."""
        self.context.drain()


def build_app(engine: Engine, settings: WebSettings) -> WebApp:
    """Return the application that serves the engine over HTTP."""
    return WebApp(engine, settings)


def _make_routes(context: AppContext) -> list[Route]:
    methods: dict[str, dict[str, tuple[Operation, Handler]]] = defaultdict(dict)
    for operation in OPERATIONS:
        handle = HANDLERS[operation.name]
        if operation.name in LOGGED:
            handle = logged(handle)
        methods[operation.path][operation.method] = (operation, handle)
    # Paths that end in a verb go first: {id} would take "X:cancel" for an id.
    paths = sorted(methods, key=lambda path: "}:" not in path and "{" in path)
    return [Route(path, Endpoint(context, methods[path])) for path in paths]


def _strip(scope: Scope, prefix: str) -> None:
    """Remove the prefix from the path, unless a proxy has done that; links begin with it."""
    scope["root_path"] = prefix
    path: str = scope["path"]
    if path.startswith(prefix) and path[len(prefix) :][:1] in ("", "/"):
        scope["path"] = path[len(prefix) :] or "/"

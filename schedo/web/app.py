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
from schedo.web.handlers import (
    action_log,
    backup,
    batches,
    bulk,
    clock,
    declarations,
    events,
    expectations,
    failures,
    fires,
    invocations,
    jobs,
    metrics,
    names,
    pauses,
    queues,
    schedules,
    sessions,
    submit,
    summary,
    system,
    timeseries,
    work,
    workers,
)
from schedo.web.permissions import TokenPermission
from schedo.web.sessions import Sessions
from schedo.web.settings import WebSettings
from schedo.web.slim_imports import Route, Router

if TYPE_CHECKING:
    from schedo.web.site import Site

HANDLERS: dict[str, Handler] = {
    handler.__name__: handler
    for handler in (
        submit.create_job,
        batches.create_jobs,
        submit.short_schedule,
        jobs.list_jobs,
        jobs.get_job,
        jobs.update_job,
        jobs.list_attempts,
        jobs.get_history,
        jobs.get_output,
        jobs.wait_for_job,
        jobs.explain_job,
        jobs.cancel_job,
        jobs.retry_job,
        jobs.run_job,
        jobs.delete_job,
        bulk.create_operation,
        bulk.list_operations,
        bulk.get_operation,
        bulk.cancel_operation,
        bulk.undo_operation,
        jobs.short_status,
        schedules.list_schedules,
        schedules.put_schedule,
        schedules.get_schedule,
        schedules.reset_schedule,
        declarations.declare,
        schedules.delete_schedule,
        schedules.list_decisions,
        schedules.pause_schedule,
        schedules.resume_schedule,
        schedules.trigger_schedule,
        fires.list_schedule_fires,
        fires.list_fires,
        fires.explain_cron,
        work.work,
        workers.list_workers,
        workers.get_worker,
        workers.cordon_worker,
        workers.uncordon_worker,
        workers.drain_worker,
        workers.get_progress,
        invocations.invoke,
        invocations.reserve,
        invocations.commit_reservation,
        invocations.release_reservation,
        expectations.put_expectation,
        expectations.list_expectations,
        expectations.get_expectation,
        expectations.delete_expectation,
        expectations.beat_expectation,
        queues.list_queues,
        queues.update_queue,
        queues.pause_queue,
        queues.resume_queue,
        action_log.list_log,
        sessions.get_me,
        sessions.create_session,
        sessions.delete_session,
        sessions.create_session_link,
        system.check_health,
        system.check_ready,
        metrics.get_metrics,
        events.get_events,
        failures.list_failures,
        names.list_names,
        summary.get_summary,
        timeseries.get_timeseries,
        pauses.pause_server,
        pauses.resume_server,
        clock.advance_clock,
        backup.create_backup,
        system.get_info,
        system.get_openapi,
        system.get_problem,
    )
}


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

    def use(self, settings: WebSettings) -> None:
        """Use these settings for the requests that follow."""
        self.context.settings = settings
        self._guarded.use(settings)
        if settings.tokens != self.context.credentials.tokens:
            self.context.end_streams()  # their clients connect again, if they still may
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

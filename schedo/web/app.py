"""The HTTP application: the table of operations, each with its handler, behind access control."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Awaitable

from schedo.engine.engine import Engine
from schedo.errors import NotFound
from schedo.protocol.operation import Operation
from schedo.protocol.operations import OPERATIONS
from schedo.web.asgi import Receive, Scope, Send
from schedo.web.auth import AccessMiddleware
from schedo.web.context import AppContext, Handler
from schedo.web.endpoint import Endpoint
from schedo.web.handlers import (
    backup,
    batches,
    bulk,
    clock,
    declarations,
    expectations,
    invocations,
    jobs,
    metrics,
    pauses,
    queues,
    schedules,
    submit,
    system,
    timeseries,
    work,
    workers,
)
from schedo.web.settings import WebSettings

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
        schedules.explain_cron,
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
        system.check_health,
        system.check_ready,
        metrics.get_metrics,
        timeseries.get_timeseries,
        pauses.pause_server,
        pauses.resume_server,
        clock.advance_clock,
        backup.create_backup,
        system.get_info,
        system.get_openapi,
        system.get_docs,
        system.get_docs_file,
        system.get_problem,
    )
}


class WebApp:
    """The ASGI application of one server."""

    def __init__(self, engine: Engine, settings: WebSettings) -> None:
        self.context = AppContext(engine, settings)
        self._fixed, self._patterns = _make_routes(self.context)
        self._guarded = AccessMiddleware(self._route, settings)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return self._guarded(scope, receive, send)

    def _route(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        path: str = scope["path"]
        scope["path_params"] = {}
        endpoint = self._fixed.get(path)
        if endpoint is not None:
            return endpoint(scope, receive, send)
        for pattern, endpoint in self._patterns:
            found = pattern.fullmatch(path)
            if found is not None:
                scope["path_params"] = found.groupdict()
                return endpoint(scope, receive, send)
        raise NotFound(f"there is nothing at {path[:100]!a}")

    def use(self, settings: WebSettings) -> None:
        """Use these settings for the requests that follow."""
        self.context.settings = settings
        self._guarded.use(settings)

    def drain(self) -> None:
        """End open waits with the current state of their jobs; the server shuts down."""
        self.context.drain()


def build_app(engine: Engine, settings: WebSettings) -> WebApp:
    """Return the application that serves the engine over HTTP."""
    return WebApp(engine, settings)


def _make_routes(
    context: AppContext,
) -> tuple[dict[str, Endpoint], list[tuple[re.Pattern[str], Endpoint]]]:
    """Return the endpoints of the paths without parameters, and those with some, in order."""
    methods: dict[str, dict[str, tuple[Operation, Handler]]] = defaultdict(dict)
    for operation in OPERATIONS:
        methods[operation.path][operation.method] = (operation, HANDLERS[operation.name])
    endpoints = {path: Endpoint(context, found) for path, found in methods.items()}
    fixed = {path: endpoint for path, endpoint in endpoints.items() if "{" not in path}
    # Paths that end in a verb go first: {id} would take "X:cancel" for an id.
    others = sorted(endpoints.keys() - fixed.keys(), key=lambda path: ("}:" not in path, path))
    return fixed, [(_compile(path), endpoints[path]) for path in others]


def _compile(path: str) -> re.Pattern[str]:
    """Return the pattern of a path such as /v1/jobs/{id}:cancel."""
    texts = re.split(r"{([a-z]+)}", path)
    for place, text in enumerate(texts):
        texts[place] = f"(?P<{text}>[^/]+)" if place % 2 else re.escape(text)
    return re.compile("".join(texts))

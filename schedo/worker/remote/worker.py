"""The public Worker: runs an application's tasks, http and shell jobs for a remote server.

Everything runs in the event loop of run(), as in an embedded application. A handler that blocks the
loop also blocks the heartbeats, and the server treats the worker as lost after the session timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import Awaitable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from schedo.client.aio import AsyncClient
from schedo.client.async_transport import AsyncTransport
from schedo.client.errors import Unreachable
from schedo.client.messages import parse_address
from schedo.core.built_in import BUILT_IN, may_run
from schedo.core.model import Options
from schedo.errors import Invalid
from schedo.tasks.built_in import RunnerSettings, make_runners
from schedo.tasks.current_job import to_microseconds
from schedo.tasks.hooks import running_lifespan
from schedo.tasks.http.egress import AddressRules
from schedo.tasks.python import TaskRunner
from schedo.tasks.registry import Application
from schedo.tasks.runner import Runner
from schedo.tasks.shell.orphan_lists import OrphanList, find_directory
from schedo.tasks.shell.orphans import Orphans
from schedo.tasks.threads import HandlerThreads
from schedo.version import __version__
from schedo.worker.executor import Executor
from schedo.worker.http_backend import HttpBackend
from schedo.worker.remote.poller import RESPONSE_S, Poller
from schedo.worker.remote.ready_file import check_ready_file, existing_file
from schedo.worker.remote.registration import SESSION_TIMEOUT_S, SLOTS, Registration, make_name
from schedo.worker.remote.schedules import declare_schedules

GRACE_S = 25.0  # as for a server: Kubernetes kills 30 s after SIGTERM
LEAVE_S = 5.0  # for the last results to get through

Duration = str | float | timedelta
log = logging.getLogger("schedo.worker")


class Worker:
    """Polls the server at `server` for jobs and runs up to `slots` of them at a time.

    `app` is a Schedo object with the tasks to run. The worker also runs http jobs, and shell jobs
    with `allow_shell`. `labels` are properties of this machine, `resources` amounts (a number, or a
    text such as "8GiB"). `server`, `token` and `ca_cert` (a file of the only authorities to trust
    for TLS) default to SCHEDO_URL, SCHEDO_TOKEN and SCHEDO_CA_CERT. A worker that sends no request
    for `session_timeout` is lost; `grace` is the time that attempts get to end after stop(). Both
    are a number of seconds, a text such as "30s" or a timedelta. Bad values raise Invalid.

    The schedules of `app` are put on the server, whose owner of them is `code:{app_name}`. With
    `prune_schedules` the start deletes those that it once declared and no longer declares.

    `ready_file` exists while the server has accepted the worker and it takes jobs: not before, and
    not while it drains.
    """

    def __init__(  # noqa: PLR0913 - one keyword per property of a worker
        self,
        app: Application | None = None,
        *,
        server: str | None = None,
        token: str | None = None,
        ca_cert: str | None = None,
        name: str | None = None,
        tasks: Sequence[str] | None = None,
        queues: Sequence[str] | None = None,
        slots: int = SLOTS,
        labels: Mapping[str, Any] | None = None,
        resources: Mapping[str, Any] | None = None,
        allow_shell: bool = False,
        output_dir: str | os.PathLike[str] | None = None,
        webhook_allow: Sequence[str] = (),
        session_timeout: Duration = SESSION_TIMEOUT_S,
        grace: Duration = GRACE_S,
        app_name: str = "worker",
        prune_schedules: bool = False,
        ready_file: str | os.PathLike[str] | None = None,
    ) -> None:
        url = server or os.environ.get("SCHEDO_URL")
        if not url:
            raise Invalid("a worker needs a server: give its URL, or set SCHEDO_URL")
        if output_dir is not None and not allow_shell:
            raise Invalid(
                "output_dir is for the output of commands, but this worker may not run commands"
            )
        self._token = token or os.environ.get("SCHEDO_TOKEN") or None
        self._address = parse_address(url, self._token, ca_cert=ca_cert)
        self._connections: list[AsyncTransport | HttpBackend] = []  # while it runs
        self._registration = Registration(
            name=name or make_name(),
            slots=slots,
            queues=queues,
            labels=labels or {},
            resources=resources or {},
            session_timeout_s=_seconds("session_timeout", session_timeout),
        )
        self._grace_s = _seconds("grace", grace)
        self._owner = f"code:{app_name}"
        self._is_pruning = prune_schedules
        self._app = app
        self._permissions = frozenset({"allow_shell"} if allow_shell else ())
        self._output_dir = None if output_dir is None else Path(output_dir)
        AddressRules(webhook_allow)  # so that a bad rule is an error now
        self._webhook_allow = webhook_allow
        self._ready_file = None if ready_file is None else check_ready_file(ready_file)
        self._stopping = asyncio.Event()
        self._executor: Executor | None = None  # while it runs
        self.tasks = self._choose_tasks(tasks)
        self._description = self._registration.render(self.tasks, self._defaults)

    @property
    def name(self) -> str:
        return self._registration.name

    async def run(self) -> None:
        """Run jobs until stop() or until the server drains the worker.

        At the end the worker takes no new jobs, gives its attempts the grace time to end and
        releases the rest. Raises SchedoError if the server refuses the worker, and Unreachable if
        the last results could not be reported.
        """
        async with contextlib.AsyncExitStack() as stack:
            runners = self._make_runners(stack)
            if self._app is not None:
                backend = HttpBackend(self._address.url, self._token, self._address.ca_cert)
                await backend.open()
                stack.push_async_callback(backend.close)
                self._connections.append(backend)
                self._app.use_backend(backend)
            transport = AsyncTransport(self._address, RESPONSE_S)
            stack.push_async_callback(transport.close)
            self._connections.append(transport)
            stack.callback(self._connections.clear)
            if self._app is not None:
                await stack.enter_async_context(running_lifespan(self._app.registry.hooks))
            random = secrets.SystemRandom().random
            make_executor = partial(Executor, runners, watches_timeouts=True)
            await self._work(Poller(transport, self._description, make_executor, random))

    def use_token(self, token: str | None) -> bool:
        """Send this token with the requests that follow; return whether it is another one."""
        is_new = token != self._token
        self._token, self._address = token, self._address.with_token(token)
        for connection in self._connections:
            connection.use_token(token)
        return is_new

    def stop(self) -> None:
        """Take no new jobs. run() returns when all attempts have ended or are released."""
        self._stopping.set()

    def stop_now(self) -> None:
        """End the grace time of stop() now."""
        if self._executor is not None:
            self._executor.stop_now()

    async def _work(self, poller: Poller[Executor]) -> None:
        executor = self._executor = poller.executor
        log.info(
            "worker %s: %d slots for %s", self.name, self._registration.slots, self._address.url
        )
        polling = asyncio.create_task(poller.run())
        declaring = asyncio.create_task(self._declare_schedules(poller))
        showing = asyncio.create_task(self._show_ready(poller))
        try:
            await _first(polling, self._stopping.wait(), poller.drain_requested.wait())
            showing.cancel()
            poller.drain()
            await self._end_attempts(poller, polling)
            poller.leave()
            await asyncio.wait((polling,), timeout=LEAVE_S)
            if not polling.done():
                count = len(poller.outbox)
                lost = "its end" if not count else "1 result" if count == 1 else f"{count} results"
                raise Unreachable(f"the worker could not report {lost} to {self._address.url}")
            await polling
        finally:
            polling.cancel()
            declaring.cancel()
            showing.cancel()
            await asyncio.gather(polling, declaring, showing, return_exceptions=True)
            await executor.close()
        log.info("stopped")

    async def _end_attempts(self, poller: Poller[Executor], polling: asyncio.Task[None]) -> None:
        """Wait for the attempts: in a stop, only for the grace time."""
        executor = poller.executor
        if poller.drain_requested.is_set() and not self._stopping.is_set():
            still = _describe(len(executor), "no time limit")
            log.info("draining: an operator has asked for it; %s", still)
            await _first(polling, executor.wait_idle(), self._stopping.wait())
        if len(executor):
            log.info("draining: %s", _describe(len(executor), f"{self._grace_s:g} s to finish"))
        await _first(polling, executor.drain(self._grace_s))
        await executor.close()

    def _choose_tasks(self, wanted: Sequence[str] | None) -> list[str]:
        own = [] if self._app is None else list(self._app.registry.tasks)
        able = sorted({*own, *(name for name in BUILT_IN if may_run(name, self._permissions))})
        for task in wanted or ():
            if not may_run(task, self._permissions):
                setting = BUILT_IN[task].permission
                raise Invalid(f"task {task!r}: this worker may not run it; set {setting}")
            if task not in able:
                raise Invalid(f"task {task!r}: there is only {', '.join(able)}")
        return able if wanted is None else sorted(set(wanted))

    @property
    def _defaults(self) -> dict[str, Options]:
        defaults = {} if self._app is None else self._app.registry.task_defaults()
        return {task: options for task, options in defaults.items() if task in self.tasks}

    def _make_runners(self, stack: contextlib.AsyncExitStack) -> dict[str, Runner | TaskRunner]:
        settings = RunnerSettings(
            user_agent=f"schedo/{__version__}",
            webhook_allow=self._webhook_allow,
            output_dir=self._output_dir,
            orphans=_open_orphans(stack) if "allow_shell" in self._permissions else None,
        )
        built_in = make_runners(self.tasks, settings)
        for runner in built_in.values():
            stack.callback(runner.close)
        runners: dict[str, Runner | TaskRunner] = {**built_in}
        if self._app is not None:
            threads = HandlerThreads(self._registration.slots)
            stack.callback(threads.shutdown, wait=False, cancel_futures=True)
            tasks = self._app.registry.tasks
            hooks = self._app.registry.hooks
            runners |= {
                name: TaskRunner(task, threads, hooks=hooks) for name, task in tasks.items()
            }
        return runners

    async def _show_ready(self, poller: Poller[Executor]) -> None:
        if self._ready_file is None:
            return
        await poller.connected.wait()
        with existing_file(self._ready_file):
            await asyncio.Event().wait()  # until this task is cancelled

    async def _declare_schedules(self, poller: Poller[Executor]) -> None:
        if self._app is None or not (self._app.registry.schedules or self._is_pruning):
            return
        await poller.connected.wait()  # so that the server knows the tasks
        address = self._address
        async with AsyncClient(address.url, self._token, ca_cert=address.ca_cert) as client:
            schedules = self._app.registry.schedules.values()
            await declare_schedules(client, self._owner, schedules, is_pruning=self._is_pruning)


def _open_orphans(stack: contextlib.AsyncExitStack) -> Orphans | None:
    directory = find_directory(os.environ)
    try:
        orphan_list = OrphanList(directory)
    except OSError as error:
        log.warning(
            "commands may outlive a crash of this worker: cannot keep their list in %s: %s",
            directory,
            error,
        )
        return None
    stack.callback(orphan_list.close)
    return orphan_list.orphans


def _describe(running: int, limit: str) -> str:
    """Return how many attempts still run, and how long they may take."""
    if not running:
        return "no attempt runs"
    if running == 1:
        return f"1 attempt still runs and has {limit}"
    return f"{running} attempts still run and have {limit}"


async def _first(*waits: Awaitable[Any]) -> None:
    """Wait until one of these is done, and cancel the others that are not tasks."""
    tasks = [
        wait if isinstance(wait, asyncio.Task) else asyncio.create_task(_await(wait))
        for wait in waits
    ]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for wait, task in zip(waits, tasks, strict=True):
        if wait is not task:
            task.cancel()


async def _await(wait: Awaitable[Any]) -> None:
    await wait


def _seconds(name: str, duration: Duration) -> float:
    try:
        return to_microseconds(duration) / 1_000_000
    except ValueError as error:
        raise Invalid(f"{name} = {duration!r}: {error}") from None

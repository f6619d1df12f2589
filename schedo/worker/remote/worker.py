"""The public Worker: runs an application's tasks, http and shell jobs for a server elsewhere.

Everything runs in the event loop that run() is awaited in, as in an embedded application: a handler
that blocks the loop also keeps the worker silent, and the server takes a silent worker for lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import Awaitable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import schedo
from schedo.app.http_backend import HttpBackend
from schedo.client.async_transport import AsyncTransport
from schedo.client.errors import Unreachable
from schedo.client.messages import parse_address
from schedo.core.model import Options
from schedo.errors import Invalid
from schedo.tasks.current_job import to_microseconds
from schedo.tasks.http.task import HttpRunner
from schedo.tasks.python import TaskRunner
from schedo.tasks.registry import Application
from schedo.tasks.runner import Runner
from schedo.tasks.shell.orphan_lists import OrphanList, find_directory
from schedo.tasks.shell.orphans import Orphans
from schedo.tasks.shell.task import ShellRunner
from schedo.worker.remote.poller import ANSWER_S, Poller
from schedo.worker.remote.registration import SESSION_TIMEOUT_S, SLOTS, Registration, make_name

GRACE_S = 25.0  # as for a server: Kubernetes kills 30 s after SIGTERM
STOP_GRACE_S = 3.0  # beyond the grace, for a runner that was asked to stop
LEAVE_S = 5.0  # for the last results to get through

Duration = str | float | timedelta
log = logging.getLogger("schedo.worker")


class Worker:
    """Takes jobs from the server at `server` and runs up to `slots` of them at a time.

    `app` is a Schedo object with the tasks to run; http jobs are run as well, and shell jobs with
    `allow_shell`. `labels` say what this machine is, `resources` what it has ("8GiB" is a number).
    `server` and `token` may come from SCHEDO_URL and SCHEDO_TOKEN. Bad values raise Invalid.
    """

    def __init__(  # noqa: PLR0913 - a worker is described once, by name
        self,
        app: Application | None = None,
        *,
        server: str | None = None,
        token: str | None = None,
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
    ) -> None:
        url = server or os.environ.get("SCHEDO_URL")
        if not url:
            raise Invalid("a worker needs a server: give its URL, or set SCHEDO_URL")
        if output_dir is not None and not allow_shell:
            raise Invalid("output_dir is for the output of commands, and this worker runs none")
        self._token = token or os.environ.get("SCHEDO_TOKEN") or None
        self._address = parse_address(url, self._token)
        self._registration = Registration(
            name=name or make_name(),
            slots=slots,
            queues=queues,
            labels=labels or {},
            resources=resources or {},
            session_timeout_s=_seconds("session_timeout", session_timeout),
        )
        self._grace_s = _seconds("grace", grace)
        self._app = app
        self._allow_shell = allow_shell
        self._output_dir = None if output_dir is None else Path(output_dir)
        self._http = HttpRunner(webhook_allow, f"schedo/{schedo.__version__}")
        self._stopping = asyncio.Event()
        self._hurried = asyncio.Event()
        self.tasks = self._choose_tasks(tasks)
        self._told = self._registration.render(self.tasks, self._defaults)

    @property
    def name(self) -> str:
        return self._registration.name

    async def run(self) -> None:
        """Work until stop() or the server ends it; raise SchedoError if the server refuses to.

        At the end nothing more is taken, what runs may end within the grace time, and the rest goes
        back to the server. Unreachable says that the last results could not be told.
        """
        self._warn_of_schedules()
        async with contextlib.AsyncExitStack() as stack:
            runners = self._make_runners(stack)
            if self._app is not None:
                desk = HttpBackend(self._address.url, self._token)
                await desk.open()
                stack.push_async_callback(desk.close)
                self._app.use_backend(desk)
            transport = AsyncTransport(self._address, ANSWER_S)
            stack.push_async_callback(transport.close)
            random = secrets.SystemRandom().random
            await self._work(Poller(transport, self._told, runners, random))

    def stop(self) -> None:
        """Take no more; run() returns when what runs has ended or has been handed back."""
        self._stopping.set()

    def stop_now(self) -> None:
        """Cut the grace of a stop short."""
        self._hurried.set()

    async def _work(self, session: Poller) -> None:
        attempts = session.attempts
        log.info(
            "worker %s: %d slots for %s", self.name, self._registration.slots, self._address.url
        )
        speaking = asyncio.create_task(session.run())
        try:
            await _first(speaking, self._stopping.wait(), session.drain_requested.wait())
            session.drain()
            if not self._stopping.is_set():  # a person asked the server, and nobody is in a hurry
                await _first(speaking, attempts.wait_idle(), self._stopping.wait())
            log.info("stopping; %d attempts have %g s", len(attempts), self._grace_s)
            await _first(
                speaking, attempts.wait_idle(), self._hurried.wait(), timeout_s=self._grace_s
            )
            attempts.stop_all()
            await _first(speaking, attempts.wait_idle(), timeout_s=STOP_GRACE_S)
            if speaking.done():  # the server refuses this worker, so nobody wants to hear of it
                attempts.abandon_all()
            await attempts.close()
            session.leave()
            await asyncio.wait((speaking,), timeout=LEAVE_S)
            if not speaking.done():
                count = len(session.outbox)
                raise Unreachable(f"{count} results could not be told to {self._address.url}")
            await speaking
        finally:
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
            await attempts.close()
        log.info("stopped")

    def _choose_tasks(self, wanted: Sequence[str] | None) -> list[str]:
        own = [] if self._app is None else list(self._app.registry.tasks)
        able = sorted({*own, "http", *(["shell"] if self._allow_shell else [])})
        for task in wanted or ():
            if task == "shell" and not self._allow_shell:
                raise Invalid("task 'shell': this worker may run no commands; allow_shell lets it")
            if task not in able:
                raise Invalid(f"task {task!r}: there is only {', '.join(able)}")
        return able if wanted is None else sorted(set(wanted))

    @property
    def _defaults(self) -> dict[str, Options]:
        defaults = {} if self._app is None else self._app.registry.task_defaults()
        return {task: options for task, options in defaults.items() if task in self.tasks}

    def _make_runners(self, stack: contextlib.AsyncExitStack) -> dict[str, Runner]:
        runners: dict[str, Runner] = {"http": self._http}
        if self._allow_shell:
            runners["shell"] = ShellRunner(self._output_dir, _open_orphans(stack))
        if self._app is not None:
            threads = ThreadPoolExecutor(self._registration.slots, thread_name_prefix="schedo")
            stack.callback(threads.shutdown, wait=False, cancel_futures=True)
            tasks = self._app.registry.tasks
            runners |= {name: TaskRunner(task, threads) for name, task in tasks.items()}
        for runner in runners.values():
            if hasattr(runner, "close"):
                stack.callback(runner.close)
        return runners

    def _warn_of_schedules(self) -> None:
        if self._app is not None and self._app.registry.schedules:
            names = ", ".join(sorted(self._app.registry.schedules)[:5])
            log.warning("a worker puts no schedules to the server; not put: %s", names)


def _open_orphans(stack: contextlib.AsyncExitStack) -> Orphans | None:
    directory = find_directory(os.environ)
    try:
        leftovers = OrphanList(directory)
    except OSError as error:
        log.warning("a crash may leave commands running: no list in %s: %s", directory, error)
        return None
    stack.callback(leftovers.close)
    return leftovers.orphans


async def _first(*waits: Awaitable[Any], timeout_s: float | None = None) -> None:
    """Return when one of these is done, or when the time is up."""
    tasks = [
        wait if isinstance(wait, asyncio.Task) else asyncio.create_task(_await(wait))
        for wait in waits
    ]
    await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
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

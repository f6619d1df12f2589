"""The composition root of the server: builds its parts, starts and stops them, handles signals.

Start: the store and the engine, the workers, then the socket, so that the server accepts no request
before it can run jobs. Stop, on SIGTERM or SIGINT: the workers first (they take no new work,
running attempts have the grace time to finish, the rest is released), then the socket, so that
clients can watch the drain, then the engine, which makes everything durable. A second signal ends
the grace time, a third one ends the process at once. SIGHUP reloads the settings (reload.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import faulthandler
import gc
import logging
import os
import resource
import sys
import tomllib
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import schedo
from schedo.client.tokens import check_token, read_private
from schedo.clock import Clock, SystemClock
from schedo.config import Config, check_config, needs_token
from schedo.core.built_in import BUILT_IN, find_permissions, may_run
from schedo.engine.call_results import describe_pauses
from schedo.engine.engine import Engine
from schedo.errors import Exit, Invalid, SchedoError, Unavailable, exit_of_server
from schedo.logs import set_level, start_logging
from schedo.loops import new_loop
from schedo.protocol.roles import Role
from schedo.reload import Reload
from schedo.startup_text import print_address
from schedo.store import open_store
from schedo.tasks.built_in import RunnerSettings, make_runners, payload_checks
from schedo.tasks.http.signatures import parse_secrets
from schedo.tasks.shell.orphans import Orphans
from schedo.virtual_clock import VirtualClock
from schedo.web.app import WebApp, build_app
from schedo.web.permissions import ANYONE, WORKER_LINE, TokenPermission, digest, parse_tokens
from schedo.web.server import HttpServer
from schedo.web.settings import LOOPBACK_HOSTS, WebSettings
from schedo.worker.in_process import LocalWorker
from schedo.worker.shutdown import handle_hangup, handle_signals

if TYPE_CHECKING:
    from schedo.worker.process.pool import ProcessPool

log = logging.getLogger("schedo")

LARGE_BUFFER_BYTES = 65_536
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h
SECRETS_CHARACTERS_MAX = 65_536
TOKENS_CHARACTERS_MAX = 1_048_576
ADMIN = TokenPermission(Role.ADMIN, "token_file", setting="token")


class Start(NamedTuple):
    """What only this start does.

    accept_loss: start although a part of the store is missing; the jobs in that part are lost.
    is_resuming: end the pauses of the server. is_pruning: delete the schedules that the code of the
    app no longer declares. has_test_clock: use a clock that only POST /v1/clock:advance moves.
    is_reloading: replace the child processes when a source file changes.
    """

    accept_loss: bool = False
    is_resuming: bool = False
    is_pruning: bool = False
    has_test_clock: bool = False
    is_reloading: bool = False


_PLAIN_START = Start()


def run_server(
    config: Config, start: Start = _PLAIN_START, *, read: Callable[[], Config] | None = None
) -> int:
    """Serve until a signal or a broken store ends it; return the process's exit code.

    read: reads the settings again; by default they stay as they are.
    """
    _limit_freed_memory()  # before there is a second thread
    listener = start_logging(config.log_format, config.log_level)
    faulthandler.enable()  # a crash by a signal such as SIGBUS leaves a traceback, too
    os.umask(0o077)
    _raise_descriptor_limit()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump would hold tokens and payloads
    try:
        check_config(config)
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(_serve(config, read or (lambda: config), start))
    except Invalid as error:
        _print_error(f"schedo: {error}")
        return Exit.MISUSED
    except (SchedoError, OSError) as error:
        _print_error(f"schedo: {error}")
        return exit_of_server(error)
    finally:
        listener.stop()


def _limit_freed_memory() -> None:
    """Return large buffers to the system when they are freed, and share one arena among threads.

    glibc raises its mmap threshold to the size of the largest freed buffer, so the process would
    keep the memory of one large request forever. It also gives each thread an arena of its own, so
    each thread of the store would keep a megabyte that no other thread can use.
    """
    with contextlib.suppress(AttributeError, OSError):  # another libc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, LARGE_BUFFER_BYTES)
        mallopt(_M_TRIM_THRESHOLD, LARGE_BUFFER_BYTES)
        mallopt(_M_ARENA_MAX, 1)


def _raise_descriptor_limit() -> None:
    """Raise the soft limit of descriptors to the hard limit, because each open poll takes one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _serve(config: Config, read: Callable[[], Config], start: Start) -> int:
    shutdown = _Shutdown()
    store = open_store(config.store, accept_loss=start.accept_loss)
    clock = _make_test_clock() if start.has_test_clock else SystemClock()
    engine = Engine(store, clock, retention=config.retention, on_fatal=shutdown.fail)
    workers = _Workers(config, engine, start)
    handle_signals(shutdown.request, workers.stop_now)
    server = HttpServer()
    await engine.start()
    try:
        await _check_pauses(engine, is_resuming=start.is_resuming)
        app = build_app(engine, _web_settings(config))
        reload = Reload(config, read, partial(_use, engine, app))
        is_new_store = engine.health().epoch == 1  # the first server that has ever opened it
        await shutdown.interrupts(_start(workers, server, app, reload, is_new_store=is_new_store))
        # All objects loaded so far live until the end, so the collector need not scan them again.
        gc.collect()
        gc.freeze()
        # Requests leave no reference cycles, and a full collection stops the loop for milliseconds.
        # The cycles of other code must not pile up, though, so these thresholds start a collection
        # after at most about 50,000 new objects.
        gc.set_threshold(10_000, 5, 20)
        async with _beating(config, engine):
            await shutdown.wait()
        app.drain()
        grace_s = 0.0 if shutdown.failure else reload.config.drain_grace_us / 1_000_000
        log.info(
            "draining: running jobs have %g s to finish; a second signal stops them at once",
            grace_s,
        )
        await workers.drain(grace_s)
    finally:
        await server.stop()
        await workers.drain(0.0)
        await engine.stop()
    log.info("stopped")
    return exit_of_server(shutdown.failure) if shutdown.failure else Exit.DONE


def _beating(config: Config, engine: Engine) -> contextlib.AbstractAsyncContextManager[None]:
    """Call the URL of --heartbeat-url, if there is one, while the server is ready."""
    url, interval_us = config.heartbeat_url, config.heartbeat_interval_us
    if url is None:
        return contextlib.nullcontext()
    from schedo.tasks.http.heartbeat import beating

    return beating(url, interval_us, lambda: engine.health().ready)


async def _start(
    workers: _Workers, server: HttpServer, app: WebApp, reload: Reload, *, is_new_store: bool
) -> None:
    config = reload.config
    await workers.start()
    port = await _listen(server, app, config)
    handle_hangup(reload.run)
    print_address(config, port, is_new_store=is_new_store)


def _make_test_clock() -> Clock:
    """Return a clock that stands at the present."""
    log.warning(
        "this server is for tests: its clock stands still until POST /v1/clock:advance moves it,"
        " and its jobs are only in memory"
    )
    return VirtualClock(SystemClock().now())


async def _check_pauses(engine: Engine, *, is_resuming: bool) -> None:
    """Resume a server that is paused, or log that it is."""
    pauses = engine.pauses()
    if pauses and is_resuming:
        await engine.resume()
    elif pauses:
        log.warning(
            "the server is paused: %s; `schedo resume` ends that, or a start with --resume",
            describe_pauses(pauses),
        )


def _use(engine: Engine, app: WebApp, config: Config) -> list[str]:
    """Use the settings that a reload can change; return the changed files; see Reload."""
    old, new = app.context.settings, _web_settings(config)
    app.use(new)
    engine.use_retention(config.retention)
    set_level(config.log_level)
    changed = set(old.tokens.items()) ^ set(new.tokens.items())
    return sorted({permission.setting for _, permission in changed})


class _Shutdown:
    """The shutdown of the server: a drain, or a broken store."""

    def __init__(self) -> None:
        self._requested = asyncio.Event()
        self.failure: Exception | None = None

    def request(self) -> None:
        """Start the drain."""
        self._requested.set()

    def fail(self, error: Exception) -> None:
        """Shut down without grace time, because the store cannot commit any more."""
        log.critical("%s; the server stops now with exit code %d", error, exit_of_server(error))
        self.failure = error
        self._requested.set()

    async def interrupts(self, start: Coroutine[Any, Any, None]) -> None:
        """Run the start to its end, or until the shutdown is requested: an import may block."""
        starting = asyncio.create_task(start)
        requested = asyncio.create_task(self.wait())
        await asyncio.wait((starting, requested), return_when=asyncio.FIRST_COMPLETED)
        requested.cancel()
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting

    async def wait(self) -> None:
        """Return when a signal or a failure has requested the shutdown."""
        await self._requested.wait()


class _Workers:
    """The server's own workers: one in this loop for shell and http, and child processes."""

    def __init__(self, config: Config, engine: Engine, start: Start) -> None:
        self._orphans: Orphans | None = None
        if config.allow_shell and engine.store.path is not None:
            self._orphans = Orphans(Path(engine.store.path + ".children"))
        permissions = find_permissions(config)
        self._runners = make_runners(
            (name for name in BUILT_IN if may_run(name, permissions)),
            RunnerSettings(
                user_agent=f"schedo/{schedo.__version__}",
                webhook_allow=config.webhook_allow,
                webhook_secrets=_read_secrets(config.webhook_secrets_file),
                output_dir=Path(config.output_dir) if config.output_dir else None,
                orphans=self._orphans,
            ),
        )
        for runner in self._runners.values():
            engine.add_reasons(runner.not_ready_reasons)
        self._local = LocalWorker(engine, "local", config.concurrency, self._runners)
        self._children: ProcessPool | None = None
        if config.app is not None:
            from schedo.worker.process.pool import PoolSettings, ProcessPool

            settings = PoolSettings(
                processes=config.processes,
                slots=_share(config.concurrency, config.processes),
                async_slots=_share(config.async_concurrency, config.processes),
                log_format=config.log_format,
                log_level=config.log_level,
                is_pruning=start.is_pruning,
                is_reloading=start.is_reloading,
            )
            self._children = ProcessPool(engine, config.app, settings)

    async def start(self) -> None:
        """Accept work; raise CannotServe if the application cannot be imported.

        The engine has started: this server holds the store, so another server that wrote the list
        of commands is dead, and what it left running has no owner.
        """
        if self._orphans is not None:
            killed = self._orphans.reap()
            if killed:
                log.warning("killed %d commands that an earlier server left running", killed)
        self._local.attach()
        if self._children is not None:
            await self._children.start()

    async def drain(self, grace_s: float) -> None:
        """Take no new work, give running attempts the grace time to finish, release the rest."""
        stops = [self._local.drain(grace_s)]
        if self._children is not None:
            stops.append(self._children.stop(grace_s))
        await asyncio.gather(*stops)
        for runner in self._runners.values():
            runner.close()
        if self._orphans is not None:
            self._orphans.close()

    def stop_now(self) -> None:
        """End the grace time of a drain now."""
        self._local.stop_now()
        if self._children is not None:
            self._children.stop_now()


def _share(count: int, processes: int) -> int:
    return -(-count // processes)


def _read_secrets(path: str | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        secrets = tomllib.loads(read_private(path, "webhook_secrets_file", SECRETS_CHARACTERS_MAX))
    except tomllib.TOMLDecodeError as error:
        raise Invalid(f"webhook_secrets_file = {path!r}: {error}") from error
    for name, secret in secrets.items():
        try:
            parse_secrets(secret if isinstance(secret, str) else "")
        except ValueError as error:
            raise Invalid(f"webhook_secrets_file = {path!r}: {name}: {error}") from error
    return secrets


def _web_settings(config: Config) -> WebSettings:
    return WebSettings(
        tokens=read_tokens(config),
        anyone=None if needs_token(config) else ANYONE,
        allowed_hosts=(*LOOPBACK_HOSTS, config.host, *config.allowed_hosts),
        permissions=find_permissions(config),
        payload_checks=payload_checks(),
        version=schedo.__version__,
        is_strict=config.strict,
    )


def read_tokens(config: Config) -> dict[bytes, TokenPermission]:
    """Return the permission of each token, by its SHA-256.

    Raise Invalid if a file cannot be used, or contains the server's own token or one of the other.
    """
    tokens: dict[bytes, TokenPermission] = {}
    if config.token is not None:
        tokens[digest(config.token.reveal())] = ADMIN
    if config.tokens is not None:
        tokens |= _read_tokens("tokens", config.tokens, tokens, {})
    if config.worker_tokens is not None:
        tokens |= _read_tokens("worker_tokens", config.worker_tokens, tokens, WORKER_LINE)
    return tokens


def _read_tokens(
    setting: str, path: str, others: Collection[bytes], given: Mapping[str, str]
) -> dict[bytes, TokenPermission]:
    source = f"{setting} = {path!r}"
    text = read_private(path, setting, TOKENS_CHARACTERS_MAX + 1)
    if len(text) > TOKENS_CHARACTERS_MAX:
        raise Invalid(f"{source}: the file is larger than {TOKENS_CHARACTERS_MAX} characters")
    tokens = parse_tokens(text, setting, source, check_token, given)
    if not tokens.keys().isdisjoint(others):
        raise Invalid(
            f"{source}: the file contains the server's own token, or one of another file;"
            " every line needs a token of its own"
        )
    return tokens


async def _listen(server: HttpServer, app: WebApp, config: Config) -> int:
    """Start the HTTP server and return its port."""
    try:
        return await server.start(app, config.host, config.port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise Unavailable(
            f"port {config.port} of {config.host} is in use, perhaps by another schedo server;"
            " choose another port with --port"
        ) from error


def _print_error(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

"""The composition root of the server: what there is, the order of start and stop, and the signals.

Start: store and engine, workers, then the socket, so that nobody is let in before work can be
done. Stop on SIGTERM or SIGINT: workers first (no new work, running attempts finish within the
grace time, the rest is handed back uncounted), then the socket, so that one can watch, then the
engine, which makes everything durable. A second signal cuts the grace short.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import faulthandler
import gc
import hashlib
import logging
import os
import resource
import signal
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import schedo
from schedo.client.tokens import check_token, read_private
from schedo.clock import SystemClock
from schedo.config import Config, check_config
from schedo.engine.engine import Engine
from schedo.errors import Exit, Invalid, SchedoError, Unavailable, exit_of_server
from schedo.logs import start_logging
from schedo.loops import new_loop
from schedo.store import open_store
from schedo.tasks.http.payload import check_http_payload
from schedo.tasks.http.signatures import parse_secrets
from schedo.tasks.http.task import HttpRunner
from schedo.tasks.runner import Runner
from schedo.tasks.shell.orphans import Orphans
from schedo.tasks.shell.payload import check_shell_payload
from schedo.tasks.shell.task import ISOLATED_TASKS, ShellRunner
from schedo.web.app import WebApp, build_app
from schedo.web.permissions import WorkerPermission, parse_grants
from schedo.web.server import HttpServer
from schedo.web.settings import LOOPBACK_HOSTS, WebSettings
from schedo.worker.in_process import LocalWorker
from schedo.worker.process.pool import ProcessPool
from schedo.worker.process.supervisor import CannotServe

log = logging.getLogger("schedo")

LARGE_BUFFER_BYTES = 65_536
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h
SIGNALS = (signal.SIGTERM, signal.SIGINT)
SECRETS_CHARACTERS_MAX = 65_536
WORKER_TOKENS_CHARACTERS_MAX = 1_048_576


def run_server(config: Config, *, accept_loss: bool = False) -> int:
    """Serve until a signal or a broken store ends it; return the process's exit code.

    accept_loss: start with what is left of a store of which a part is missing.
    """
    _give_memory_back()  # before there is a second thread
    listener = start_logging(config.log_format, config.log_level)
    faulthandler.enable()  # a death by a signal like SIGBUS leaves a word, too
    os.umask(0o077)
    _raise_descriptor_limit()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump would hold tokens and payloads
    try:
        check_config(config)
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(_serve(config, accept_loss))
    except Invalid as error:
        _say(f"schedo: {error}")
        return Exit.MISUSED
    except (CannotServe, SchedoError, OSError) as error:
        _say(f"schedo: {error}")
        return exit_of_server(error)
    finally:
        listener.stop()


def _give_memory_back() -> None:
    """Let large buffers go back to the system when they are freed, and small ones be shared.

    glibc raises its own threshold with the largest buffer it has seen freed, so that one large
    request would leave its room in the process for ever. And it gives each thread an arena of its
    own: the store's threads would each keep a megabyte that no other can use.
    """
    with contextlib.suppress(AttributeError, OSError):  # another libc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, LARGE_BUFFER_BYTES)
        mallopt(_M_TRIM_THRESHOLD, LARGE_BUFFER_BYTES)
        mallopt(_M_ARENA_MAX, 1)


def _raise_descriptor_limit() -> None:
    """Allow as many descriptors as the system does: a waiting worker takes one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _serve(config: Config, accept_loss: bool) -> int:
    end = _End()
    store = open_store(config.store, accept_loss=accept_loss)
    engine = Engine(store, SystemClock(), retention=config.retention)
    engine.on_fatal(end.break_down)
    crew = _Crew(config, engine)
    server = HttpServer()
    await engine.start()
    try:
        await crew.start()
        app = build_app(engine, _web_settings(config))
        port = await _listen(server, app, config)
        _announce(config, port)
        # What is loaded now stays: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        # Requests leave no cycles, and a look at everything stops the loop for milliseconds. But
        # what leaves some must not pile up, so no look is at more than about 50,000 new objects.
        gc.set_threshold(10_000, 5, 20)
        await end.wait()
        app.drain()
        grace_s = 0.0 if end.is_broken else config.drain_grace_us / 1_000_000
        log.info("stopping; running jobs have %g s, a second signal takes it from them", grace_s)
        end.on_hurry(crew.hurry)
        await crew.drain(grace_s)
    finally:
        await server.stop()
        await crew.drain(0.0)
        await engine.stop()
    log.info("stopped")
    return Exit.BROKEN if end.is_broken else Exit.DONE


class _End:
    """Whether the server is to end, and how: in order, in a hurry, or because the disk failed."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._hurry: Callable[[], None] = lambda: None
        self.is_broken = False
        self._loop = asyncio.get_running_loop()
        for number in SIGNALS:
            self._loop.add_signal_handler(number, self._ask)

    def _ask(self) -> None:
        """End in order; asked again, without grace; the third signal ends the process at once."""
        if self._asked.is_set():
            self._hurry()
            for number in SIGNALS:
                self._loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_DFL)
        self._asked.set()

    def on_hurry(self, call: Callable[[], None]) -> None:
        """Set what a second signal does."""
        self._hurry = call

    def break_down(self, error: BaseException) -> None:
        """End without grace: the store can take nothing more."""
        log.critical("%s; the server ends and must be started again", error)
        self.is_broken = True
        self._asked.set()

    async def wait(self) -> None:
        """Return when the server is to end."""
        await self._asked.wait()


class _Crew:
    """The workers: one in this loop for shell and http jobs, child processes for an application."""

    def __init__(self, config: Config, engine: Engine) -> None:
        self._orphans = _find_orphans(config)
        http = HttpRunner(
            config.webhook_allow,
            f"schedo/{schedo.__version__}",
            secrets=_read_secrets(config.webhook_secrets_file),
        )
        engine.add_reasons(http.not_ready_reasons)
        runners: dict[str, Runner] = {"http": http}
        self._shell: ShellRunner | None = None
        if config.allow_shell:
            output_dir = Path(config.output_dir) if config.output_dir else None
            runners["shell"] = self._shell = ShellRunner(output_dir, self._orphans)
            engine.add_reasons(self._shell.not_ready_reasons)
        self._local = LocalWorker(
            engine, "local", config.concurrency, runners, isolated_tasks=ISOLATED_TASKS
        )
        self._children: ProcessPool | None = None
        if config.app is not None:
            slots = -(-config.concurrency // config.processes)
            self._children = ProcessPool(
                engine,
                config.app,
                processes=config.processes,
                slots=slots,
                log_format=config.log_format,
                log_level=config.log_level,
            )

    async def start(self) -> None:
        """Begin to take work; raise CannotServe if the application cannot be imported."""
        self._local.attach()
        if self._children is not None:
            await self._children.start()

    async def drain(self, grace_s: float) -> None:
        """Take no more; let what runs end within the grace time, hand the rest back."""
        stops = [self._local.drain(grace_s)]
        if self._children is not None:
            stops.append(self._children.stop(grace_s))
        await asyncio.gather(*stops)
        if self._shell is not None:
            self._shell.close()
        if self._orphans is not None:
            self._orphans.close()

    def hurry(self) -> None:
        """Cut the grace short."""
        self._local.stop_now()
        if self._children is not None:
            self._children.stop_now()


def _read_secrets(path: str | None) -> dict[str, str]:
    """Return the webhook secrets by name, as the runner takes them."""
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


def _find_orphans(config: Config) -> Orphans | None:
    """End what a killed server left running, and return the record of what this one starts."""
    if not config.allow_shell or config.store == ":memory:":
        return None
    orphans = Orphans(Path(config.store.removeprefix("sqlite:///") + ".children"))
    count = orphans.reap()
    if count:
        log.warning("ended %d commands that an earlier server left running", count)
    return orphans


def _web_settings(config: Config) -> WebSettings:
    token = config.token
    return WebSettings(
        token_sha256=[hashlib.sha256(token.reveal().encode()).digest()] if token else None,
        worker_tokens=read_worker_tokens(config),
        allowed_hosts=(*LOOPBACK_HOSTS, config.host, *config.allowed_hosts),
        allow_shell=config.allow_shell,
        payload_checks={"shell": check_shell_payload, "http": check_http_payload},
        version=schedo.__version__,
    )


def read_worker_tokens(config: Config) -> dict[bytes, WorkerPermission]:
    """Return what each worker's token allows; the server's own token cannot be one of them."""
    path = config.worker_tokens
    if path is None:
        return {}
    text = read_private(path, "worker_tokens", WORKER_TOKENS_CHARACTERS_MAX + 1)
    if len(text) > WORKER_TOKENS_CHARACTERS_MAX:
        raise Invalid(f"worker_tokens = {path!r}: the file is too large")
    grants = parse_grants(text, f"worker_tokens = {path!r}", check_token)
    token = config.token
    if token is not None and hashlib.sha256(token.reveal().encode()).digest() in grants:
        raise Invalid(f"worker_tokens = {path!r}: the server's own token stands there")
    return grants


async def _listen(server: HttpServer, app: WebApp, config: Config) -> int:
    """Serve HTTP and return the port."""
    try:
        return await server.start(app, config.host, config.port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise Unavailable(
            f"port {config.port} of {config.host} is taken, perhaps by another schedo;"
            " choose another one with --port"
        ) from error


def _announce(config: Config, port: int) -> None:
    """Print what a person needs first: where the server is, and a line to paste."""
    host = f"[{config.host}]" if ":" in config.host else config.host
    address = f"http://{host}:{port}"
    job = (
        '{"task":"shell","payload":{"command":"echo hello"},"delay":"5s"}'
        if config.allow_shell
        else '{"task":"http","payload":{"url":"https://example.org/"},"delay":"5s"}'
    )
    token = ' -H "authorization: Bearer $(cat TOKEN_FILE)"' if config.token else ""
    if config.token_file:
        token = token.replace("TOKEN_FILE", config.token_file)
    lines = [f"schedo {schedo.__version__} listens on {address}; jobs are kept in {config.store}"]
    if not config.allow_shell:
        lines.append("it runs no shell commands: start it with --allow-shell if it should")
    lines.append(
        f"try: curl {address}/v1/jobs{token} -H 'content-type: application/json' -d '{job}'"
    )
    print("\n".join(lines), flush=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

"""The composition root of the server: what there is, the order of start and stop, and the signals.

Start: store and engine, workers, then the socket, so that nobody is let in before work can be
done. Stop on SIGTERM or SIGINT: workers first (no new work, running attempts finish within the
grace time, the rest is handed back uncounted), then the socket, then the engine, which makes
everything durable. A second signal cuts the grace short.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import hashlib
import logging
import os
import resource
import signal
import sys
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import schedo
from schedo.client.tokens import read_private
from schedo.clock import SystemClock
from schedo.config import Config, check_config
from schedo.engine.engine import Engine
from schedo.errors import Invalid, SchedoError
from schedo.logs import start_logging
from schedo.store import open_store
from schedo.web.app import build_app
from schedo.web.server import HttpServer
from schedo.web.settings import LOOPBACK_HOSTS, WebSettings
from schedo.workers.attendant import CannotServe
from schedo.workers.children import ChildProcesses
from schedo.workers.contract import Runner
from schedo.workers.http import HttpRunner
from schedo.workers.http_payload import check_http_payload
from schedo.workers.local import LocalWorker
from schedo.workers.orphans import Orphans
from schedo.workers.shell import ShellRunner, check_shell_payload
from schedo.workers.signing import parse_secrets

log = logging.getLogger("schedo")

SWITCH_INTERVAL_S = 0.0005
LARGE_BUFFER_BYTES = 65_536
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
SECRETS_CHARACTERS_MAX = 65_536
DONE, REFUSED, MISUSED, BROKEN = 0, 1, 2, 70  # exit codes; 70 is EX_SOFTWARE: start it again


def run_server(config: Config) -> int:
    """Serve until a signal or a broken store ends it; return the process's exit code."""
    listener = start_logging(config.log_format, config.log_level)
    os.umask(0o077)
    _give_memory_back()
    # The loop and the thread that commits take turns at the interpreter; at the usual 5 ms a
    # commit's few statements would wait for a busy loop five times, and a timer for a commit.
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump would hold tokens and payloads
    try:
        check_config(config)
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            return runner.run(_serve(config))
    except (CannotServe, Invalid) as error:
        _say(f"schedo: {error}")
        return MISUSED
    except (SchedoError, OSError) as error:
        _say(f"schedo: {error}")
        return REFUSED
    finally:
        listener.stop()


def _give_memory_back() -> None:
    """Let large buffers go back to the system when they are freed.

    glibc raises its own threshold with the largest buffer it has seen freed, so that one large
    request would leave its room in the process for ever.
    """
    with contextlib.suppress(AttributeError, OSError):  # another libc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, LARGE_BUFFER_BYTES)
        mallopt(_M_TRIM_THRESHOLD, LARGE_BUFFER_BYTES)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not made for this platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _serve(config: Config) -> int:
    end = _End(config.drain_grace_us / 1_000_000)
    engine = Engine(open_store(config.store), SystemClock(), retention=config.retention)
    engine.on_fatal(end.break_down)
    await engine.start()
    try:
        async with _working(config, engine, end), _listening(config, engine) as address:
            _announce(config, address)
            # What is loaded now stays: the collector need not look at it again.
            gc.collect()
            gc.freeze()
            await end.wait()
            log.info("stopping; running jobs have %g s", end.grace_s)
    finally:
        await engine.stop()
    log.info("stopped")
    return end.exit_code


class _End:
    """Whether the server is to end, how, and how long running jobs may still take."""

    def __init__(self, grace_s: float) -> None:
        self._asked = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.grace_s = grace_s
        self.exit_code = DONE
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.ask)

    def ask(self) -> None:
        """End in order; the next signal ends the process at once, which loses nothing durable."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        self._asked.set()

    def break_down(self, error: BaseException) -> None:
        """End without grace: the store can take nothing more."""
        log.critical("%s; the server ends and must be started again", error)
        self.exit_code = BROKEN
        self.grace_s = 0.0
        self._asked.set()

    async def wait(self) -> None:
        """Return when the server is to end."""
        await self._asked.wait()


@contextlib.asynccontextmanager
async def _working(config: Config, engine: Engine, end: _End) -> AsyncIterator[None]:
    """Run the workers: one in this loop for shell and http jobs, children for an application."""
    orphans = _find_orphans(config)
    runners: dict[str, Runner] = {
        "http": HttpRunner(
            config.webhook_allow,
            f"schedo/{schedo.__version__}",
            secrets=_read_secrets(config.webhook_secrets_file),
        )
    }
    if config.allow_shell:
        output_dir = Path(config.output_dir) if config.output_dir else None
        runners["shell"] = ShellRunner(output_dir, orphans)
    local = LocalWorker(engine, "local", config.concurrency, runners)
    local.attach()
    children: ChildProcesses | None = None
    try:
        if config.app is not None:
            slots = -(-config.concurrency // config.processes)
            children = ChildProcesses(engine, config.app, processes=config.processes, slots=slots)
            await children.start()
        yield
    finally:
        stops = [local.drain(end.grace_s)]
        if children is not None:
            stops.append(children.stop(end.grace_s))
        await asyncio.gather(*stops)
        if orphans is not None:
            orphans.close()


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


@contextlib.asynccontextmanager
async def _listening(config: Config, engine: Engine) -> AsyncIterator[str]:
    """Serve HTTP; yield the address to reach it."""
    token = config.token
    settings = WebSettings(
        token_sha256=[hashlib.sha256(token.reveal().encode()).digest()] if token else None,
        allowed_hosts=(*LOOPBACK_HOSTS, config.host, *config.allowed_hosts),
        allow_shell=config.allow_shell,
        payload_checks={"shell": check_shell_payload, "http": check_http_payload},
        version=schedo.__version__,
    )
    server = HttpServer()
    port = await server.start(build_app(engine, settings), config.host, config.port)
    host = f"[{config.host}]" if ":" in config.host else config.host
    try:
        yield f"http://{host}:{port}"
    finally:
        await server.stop()


def _announce(config: Config, address: str) -> None:
    """Print what a person needs first: where the server is, and a line to paste."""
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

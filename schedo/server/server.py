"""A server: its parts, and the phases of its life in their order.

    built     the engine, the workers, the application; no file and no socket is open
    open      it holds the store, and the engine runs
    bind      it has its address, so nothing starts beside another program that uses the port
    attach    the workers take jobs
    listen    it accepts requests, now that it can run jobs
    drain     the workers finish what they run; the socket is open, so that clients can watch
    stop      the socket, what is left of the workers, then the engine, which makes all durable

`stop` may follow any phase. A server that would make its store binds before it opens it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import msgspec

from schedo.config import Config
from schedo.engine.call_results import describe_pauses
from schedo.engine.clocks import make_clock, make_test_clock
from schedo.engine.engine import Engine
from schedo.errors import SchedoError, Unavailable
from schedo.logs import set_level
from schedo.reload import Reload
from schedo.server.control import ControlSocket
from schedo.server.grpc_port import GrpcPort
from schedo.server.other_servers import OtherServers
from schedo.server.passed_listeners import PassedListeners
from schedo.server.predecessors import Predecessors
from schedo.server.settings import read_web_settings
from schedo.server.shutdown import Shutdown
from schedo.server.start import Start
from schedo.server.upgrades import Upgrades, find_lasting_obstacle
from schedo.server.workers import ServerWorkers
from schedo.setting_values import unix_path
from schedo.startup_text import describe_address
from schedo.store import open_store
from schedo.store.inbox import find_inbox
from schedo.systemd import Inherited, Notifier
from schedo.web.app import build_app
from schedo.web.server import STOP_GRACE_S, HttpServer, bind
from schedo.web.tenure import Tenure

if TYPE_CHECKING:
    from schedo.handover.control import Control
    from schedo.handover.listeners import ListenerPair
    from schedo.handover.messages import Handover
    from schedo.handover.predecessor import Predecessor
    from schedo.server.replaced import Replaced
    from schedo.server.takeover import Takeover
    from schedo.store.sqlite.store import SqliteStore
    from schedo.telemetry.service import Telemetry

log = logging.getLogger("schedo")


class Server:
    """One server on one store, in the running event loop."""

    def __init__(
        self,
        config: Config,
        start: Start,
        read: Callable[[], Config],
        predecessor: Predecessor | None = None,
    ) -> None:
        """read: reads the settings again, for a reload. predecessor: the process it replaces."""
        self._predecessor = predecessor
        self.upgrades = Upgrades(self, start.command, find_lasting_obstacle(start))
        self._watching: asyncio.Task[None] | None = None  # what old processes leave
        self.handover: Handover | None = None  # an upgrade or a passing that is under way
        self.replaced: Replaced | None = None  # set: another process serves, this one drains
        self._is_resuming = start.is_resuming
        self.shutdown = Shutdown()
        self.store = open_store(
            config.store,
            accept_loss=start.accept_loss,
            failover_timeout_us=config.failover_timeout_us,
            read_url=config.store_read,
        )
        self.engine = Engine(
            self.store,
            make_test_clock() if start.has_test_clock else make_clock(self.store),
            retention=config.retention,
            on_fatal=self.shutdown.fail,
            page_url=str(config.public_url or ""),
        )
        self._telemetry = _make_telemetry(config, self.engine)
        self.workers = ServerWorkers(config, self.engine, start)
        self.app = build_app(self.engine, read_web_settings(config))
        self._use_inbox()
        self.http = HttpServer()
        self.others = OtherServers(self.app.context)
        self.grpc = GrpcPort(config, self.app, self.http)
        self.reload = Reload(config, read, self._use)
        self.predecessors = Predecessors(self.engine.sessions, self.workers.reap_left)
        self.takeover: Takeover | None = None  # by which it became active; None: the store was free
        self._control = ControlSocket(
            self._make_control, self.store.path, lambda: self.handover is not None
        )
        self.passed_listeners = PassedListeners()
        self._bound: list[socket.socket] = []  # on which it will listen
        self._bound_grpc: list[socket.socket] = []
        self._owns_sockets = False  # they are not from systemd

    def _use_inbox(self) -> None:
        inbox = find_inbox(self.store)
        if inbox is not None:
            from schedo.protocol.enqueued import read_rows

            self.engine.inbox.use(inbox, partial(read_rows, check=self.app.context.check_enqueued))

    @property
    def is_successor(self) -> bool:
        """Whether an upgrade has started this process."""
        return self._predecessor is not None

    def find_listeners(self) -> ListenerPair:
        """Return the sockets on which it listens."""
        from schedo.handover.listeners import ListenerPair

        return ListenerPair(self.http.sockets, self.grpc.sockets)

    @property
    def config(self) -> Config:
        """The settings, as the last reload left them."""
        return self.reload.config

    @property
    def grace_s(self) -> float:
        """How long running attempts may take to end in a drain."""
        return self.config.drain_grace_us / 1_000_000

    @property
    def file_store(self) -> SqliteStore:
        """The store, which is a file: only a file passes from one process to the next one."""
        return cast("SqliteStore", self.store)

    async def leave(self) -> None:
        """Stop a server that has not opened its store."""
        _close([*self._bound, *self._bound_grpc])
        await self.workers.drain(0.0)
        await self.store.close()

    async def open(self) -> None:
        """Open the store and start the engine; raise StoreLocked if another server holds it."""
        if self.engine.cluster is not None:
            self.engine.cluster.join()
        await self.engine.start()
        try:
            await asyncio.sleep(0)  # leases of the first turn go to the children before all else
            await self.others.open()
        except BaseException:
            await self.engine.stop()
            raise
        self._note_step("open")
        if self._telemetry is not None:
            from schedo.web.handlers.metrics import read_families

            self._telemetry.start(partial(read_families, self.app.context), self.engine.metrics)
        if self._predecessor is not None:
            self._predecessor.note_opened()

    async def attach(self) -> None:
        """Run jobs; raise CannotServe if the application cannot be imported.

        After a take-over the built-in tasks follow when requests are accepted.
        """
        await self._check_pauses()
        if self.takeover is None:
            await self.workers.attach()
        if self.takeover is None or not self.takeover.is_warm:
            await self.workers.start_children()
        self._note_step("attach")

    async def _check_pauses(self) -> None:
        """Resume a server that is paused, or log that it is."""
        pauses = self.engine.pauses()
        if pauses and self._is_resuming:
            await self.engine.resume()
        elif pauses:
            log.warning(
                "the server is paused: %s; `schedo resume` ends that, or a start with --resume",
                describe_pauses(pauses),
            )

    async def bind(self, inherited: Inherited) -> None:
        """Take inherited sockets, or else bind own ones; raise Unavailable if the port is in use.

        A take-over inherits the sockets of the server before, unless systemd passes others.
        A server that is bound stays as it is.
        """
        if self._bound:
            return
        config, takeover = self.config, self.takeover
        passed = inherited.choose(config.host, config.port)
        left, grpc = ((), ()) if takeover is None else takeover.listeners
        if passed:
            _close(left)  # else they would go on listening after a stop
        self._owns_sockets = not passed
        self._bound = list(passed) or await _bind(config, left)
        self._bound_grpc = list(grpc)
        if config.grpc_port is None:
            _close(grpc)
        elif not grpc:
            self._bound_grpc = await _bind_grpc(config, config.grpc_port)

    async def listen(self, notifier: Notifier) -> int:
        """Accept requests on the bound sockets; return the port."""
        sockets, self._bound = self._bound, []
        with _explaining(self.config.host, self.config.port):
            port = await self.http.listen(self.app, sockets)
        grpc_sockets, self._bound_grpc = self._bound_grpc, []
        self.grpc.listen(grpc_sockets)
        if self.engine.cluster is not None:
            await self.engine.cluster.announce(_find_url(self.config, port))
        self._control.open()
        if self.takeover is not None:
            await self._end_takeover(self.takeover)
        if self._owns_sockets:
            notifier.store(sockets)  # systemd drops sockets that do not listen yet
        return port

    async def _end_takeover(self, takeover: Takeover) -> None:
        """Store the schedules of the application, too, whose code may be newer than before."""
        self._note_step("accept")
        self.app.context.tenure = Tenure(takeover.number, round(takeover.took_ms * 1_000))
        takeover.log()
        if self._predecessor is not None:
            from schedo.server.successor import report_active

            self.predecessors.watch(self._predecessor.pid, self._predecessor.worker)
            for name, pid in self._predecessor.older.items():
                self.predecessors.watch(pid, name)
            report_active(self, self._predecessor)
        # Not before: the thread that looks for the commands which the dead server has left takes
        # the interpreter from the open and from the jobs that became due.
        await self.workers.attach()
        self._watching = asyncio.create_task(self.workers.watch_left())
        if takeover.is_warm:  # the children run already, and wait for this
            try:
                await self.workers.start_children()
            except SchedoError as error:
                log.error("the schedules of the application stay as they are: %s", error)

    def _make_control(self) -> Control:
        from schedo.handover.control import Control
        from schedo.server.active import ActiveServer

        return Control(ActiveServer(self))

    def _note_step(self, step: str) -> None:
        if self.takeover is not None:
            self.takeover.note(step)

    async def drain(self) -> None:
        """End open waits, and give running attempts the grace time to finish.

        Other servers that share the store get before that what does not run here, then the rest.
        """
        self.app.drain()
        self.http.announce_end()
        ownership = None if self.shutdown.failure else self.engine.ownership
        if ownership is not None:
            await ownership.leave()
        grace_s = 0.0 if self.shutdown.failure else self.grace_s
        text = "draining: running jobs have %g s to finish; a second signal stops them at once"
        log.info(text, grace_s)
        await self.workers.drain(grace_s)
        if ownership is not None:
            await ownership.leave_last()

    async def pass_to_standby(self) -> None:
        """Let a warm standby have the store before this process drains, if there is one.

        Then `replaced` is set. Else nothing has changed.
        """
        if self.shutdown.failure is None and self._control.has_warm_standby:
            from schedo.server.to_standby import pass_to_standby

            await pass_to_standby(self)

    def begin_grace(self) -> None:
        """Give what this replaced process still runs the grace time to end."""
        grace_s = self.grace_s
        log.info("stopping: the running jobs of this old process have %g s to finish", grace_s)
        asyncio.get_running_loop().call_later(grace_s, self.workers.stop_now)

    def leave_control(self) -> None:
        """Leave the control socket to the process that is active now."""
        self._control.leave()

    def reopen_control(self) -> None:
        """Listen on the control socket again, whose file another process may have replaced."""
        self._control.leave()
        self._control.open()

    async def stop(self) -> None:
        """Stop what is left at once, and make everything durable."""
        if self._watching is not None:
            self._watching.cancel()
        self.predecessors.close()
        await self._control.close()
        _close([*self._bound, *self._bound_grpc])
        # One that was replaced has waited for its clients already.
        grace_s = STOP_GRACE_S if self.replaced is None else 0.0
        await asyncio.gather(self.http.stop(grace_s), self.grpc.stop(grace_s))
        await self.workers.drain(0.0)
        if self._telemetry is not None:
            await self._telemetry.end_metrics()
        await self.others.close()
        await self.engine.stop()
        if self._telemetry is not None:
            await self._telemetry.stop()

    def _use(self, config: Config) -> list[str]:
        """Use the settings that a reload can change; return the changed files; see Reload."""
        self.passed_listeners.check(config)
        old, new = self.app.context.settings, read_web_settings(config)
        self.app.use(new)
        self.engine.use_retention(config.retention)
        set_level(config.log_level)
        changed = set(old.tokens.items()) ^ set(new.tokens.items())
        names = {permission.setting for _, permission in changed}
        if old.tls and new.tls and old.tls.digest != new.tls.digest:
            names |= {"tls_cert", "tls_key"}
        return sorted(names)


def _find_url(config: Config, port: int) -> str:
    """Return the URL by which other servers reach this one; empty if none can."""
    if config.advertise is not None or unix_path(config.host) is not None:
        return config.advertise or ""
    is_any = config.host in ("0.0.0.0", "::")
    host = socket.gethostname() if is_any else config.host
    return describe_address(msgspec.structs.replace(config, host=host), port)


def _make_telemetry(config: Config, engine: Engine) -> Telemetry | None:
    """Let the telemetry observe the engine, if it is switched on."""
    if not config.otel:
        return None
    from schedo.telemetry.service import Telemetry
    from schedo.telemetry.settings import read_settings

    telemetry = engine.monitor.observer = Telemetry(read_settings(os.environ), engine.clock)
    return telemetry


def _close(sockets: Iterable[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


async def _bind(config: Config, left: Sequence[socket.socket]) -> list[socket.socket]:
    path = unix_path(config.host)
    if path is not None:
        from schedo.web.unix_socket import listen_at

        return listen_at(path, int(config.socket_mode, 8), left)
    if left:
        return list(left)
    with _explaining(config.host, config.port):
        return await bind(config.host, config.port)


async def _bind_grpc(config: Config, port: int) -> list[socket.socket]:
    """Bind the port at the host of HTTP; beside a Unix socket, on loopback."""
    host = config.host if unix_path(config.host) is None else "127.0.0.1"
    with _explaining(host, port, "grpc-port"):
        return await bind(host, port)


@contextlib.contextmanager
def _explaining(host: str, port: int, option: str = "port") -> Iterator[None]:
    """Turn the error of a port that is in use into Unavailable.

    listen() can have it, too: two processes can bind the same port as long as neither listens.
    """
    try:
        yield
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise Unavailable(
            f"port {port} of {host} is in use, perhaps by another schedo server;"
            f" choose another port with --{option}"
        ) from error

"""Sessions of a store with PostgreSQL: the one that writes, and those that read.

The session of the writer holds the lock of the store and carries every commit. PostgreSQL releases
the locks of a session only after its transaction has ended. So the next server that gets the lock
knows that this session can never commit again.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

import asyncpg

from schedo.errors import StoreError
from schedo.store.postgres.address import Address
from schedo.store.postgres.errors import DRIVER_ERRORS, ends_session, opening_error, store_error
from schedo.store.postgres.hosts import Target, connect_to_host

T = TypeVar("T")

# For a statement that waits for nothing. The kernel notices a lost host sooner, but behind a proxy
# the host of PostgreSQL may be lost while that of the proxy confirms what is sent to it.
ANSWER_S = 5.0
CLOSE_S = 5.0  # for the last calls; then the session is ended, as that of a dead process is
SILENCE_S = 1.0  # of the database, after which reads fail
SILENCE_LOOK_S = 0.1
READERS_MAX = 3
# Apart from one, a session that no read has needed for so long is closed. When the process dies,
# the locks of its other sessions wait for the processors until PostgreSQL has ended these, too.
SPARE_S = 1.0
# A plan is made once and used for months, often before the tables have their rows and statistics.
# Each query of the store has an index for it, so the planner gets no other choice.
_SETTINGS = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "timezone": "UTC",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    # A statement that has waited for a row must go on with what that has become.
    "default_transaction_isolation": "read committed",
    "client_min_messages": "warning",
    # So the locks of a host that has lost its power or its network are free after some 11 s.
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
}
# For a session with few statements, each of which has one good plan. Otherwise PostgreSQL makes its
# plan again at each of the first five uses, and a take-over waits for 2 ms of that.
PLAN_ONCE = "SET plan_cache_mode = force_generic_plan"
# The keep-alives of _SETTINGS, for this side. The timeout is also for data that the other side has
# not confirmed.
_KEEP_ALIVES = {
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
    (socket.IPPROTO_TCP, getattr(socket, "TCP_USER_TIMEOUT", 18)): 11_000,
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPIDLE", 4)): 5,
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): 2,
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): 3,
}


async def connect(address: Address, name: str, target: Target = "read-write") -> asyncpg.Connection:
    """Open a session that uses the schema; raise StoreError with a hint.

    name: what PostgreSQL shows as its application_name. target: which of several hosts.
    """
    try:
        connection = await connect_to_host(
            address,
            target,
            max_cached_statement_lifetime=0,  # a take-over needs its statements after months, too
        )
    except (*DRIVER_ERRORS, ValueError, OverflowError) as error:  # a port may be too large
        is_unmatched = isinstance(error, asyncpg.TargetServerAttributeNotMatched)
        if is_unmatched and len(address.hosts) > 1:  # a moment later, one may be the primary
            raise StoreError(
                f"none of the hosts of {address.shown} takes writes; is a fail-over under way?"
            ) from error
        raise opening_error(error, address.shown) from error
    with ending_on_error(connection, address):
        _notice_silence(connection)
        # By statements, because a pooler refuses settings of which it does not know.
        settings = list_settings(connection.get_server_version().major)
        settings |= {"search_path": address.schema, "application_name": name}
        await connection.execute(
            "".join(f"SET {name} = '{_quoted(value)}';" for name, value in settings.items()),
            timeout=ANSWER_S,
        )
    return connection


def list_settings(version: int) -> dict[str, str]:
    """Return the settings of each session with a PostgreSQL of this major version."""
    # Earlier versions do not know this one, and refuse it.
    return _SETTINGS | ({"transaction_timeout": "0"} if version >= 17 else {})


@contextmanager
def ending_on_error(connection: asyncpg.Connection, address: Address) -> Iterator[None]:
    """End a session whose preparation fails; raise the errors of the driver with a hint."""
    try:
        yield
    except BaseException as error:
        connection.terminate()
        if isinstance(error, DRIVER_ERRORS):
            raise opening_error(error, address.shown) from error
        raise


def _notice_silence(connection: asyncpg.Connection) -> None:
    """Let the kernel end the session when the host of the server is silent, as after a power cut.

    Otherwise a commit would wait for a quarter of an hour (tcp_retries2 in man 7 tcp).
    """
    found = connection._transport.get_extra_info("socket")
    if found.family != socket.AF_UNIX:
        for option, value in _KEEP_ALIVES.items():
            found.setsockopt(*option, value)


def _quoted(value: str) -> str:
    return value.replace("'", "''")


class Writer:
    """The session that writes: its calls run one after the other, in the order of the calls.

    A call goes on when its caller is cancelled, so the outcome of a commit does not depend on that.
    """

    def __init__(self, connection: asyncpg.Connection, shown: str) -> None:
        self.connection, self.pid = connection, int(connection.get_server_pid())
        self.is_signed = False  # the other servers know that this session writes
        self._shown = shown
        self._turn = asyncio.Lock()
        self._calls: set[asyncio.Task[Any]] = set()

    @property
    def is_lost(self) -> bool:
        return bool(self.connection.is_closed())

    async def run(self, function: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """Call the function after all earlier calls; raise its errors as StoreError."""
        return await asyncio.shield(self.begin(function))

    def begin(self, function: Callable[[asyncpg.Connection], Awaitable[T]]) -> asyncio.Task[T]:
        """Call the function after all earlier calls, without waiting for it."""
        task = asyncio.create_task(self._call(function), name="schedo store call")
        self._calls.add(task)
        task.add_done_callback(self._forget)
        return task

    async def _call(self, function: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        async with self._turn:
            try:
                return await function(self.connection)
            except DRIVER_ERRORS as error:
                if ends_session(error):
                    self.connection.terminate()
                raise store_error(error, self._shown) from error

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may be gone

    async def end(self, function: Callable[[asyncpg.Connection], Awaitable[None]]) -> None:
        """Call the function as the last one, if it can end within CLOSE_S; raise nothing."""
        self.begin(function)
        await self._end_calls()

    async def close(self) -> None:
        """Close the session after all earlier calls, or after CLOSE_S without their end."""
        await self._end_calls()
        await close(self.connection)

    async def _end_calls(self) -> None:
        if self._calls:
            await asyncio.wait(self._calls, timeout=CLOSE_S)
        if self._calls:  # they wait for the database, or for a lock of another session
            self.connection.terminate()


@asynccontextmanager
async def transaction(connection: asyncpg.Connection) -> AsyncIterator[None]:
    """Make all writes inside durable, or roll them back if the block raises.

    The transactions of the driver hide the error of a session that is lost behind one of their own.
    """
    await connection.execute("BEGIN")
    try:
        yield
        await connection.execute("COMMIT")
    except BaseException:
        with suppress(*DRIVER_ERRORS):
            await connection.execute("ROLLBACK")
        raise


async def close(connection: asyncpg.Connection) -> None:
    """Close a session, or drop it if the server does not answer."""
    try:
        await connection.close(timeout=CLOSE_S)
    except DRIVER_ERRORS:
        connection.terminate()


class Readers:
    """The sessions of the concurrent reads, opened when they are needed."""

    def __init__(
        self,
        address: Address,
        name: str,
        target: Target = "read-write",
        is_silent: Callable[[], bool] = lambda: False,
    ) -> None:
        """is_silent: returns whether nothing has been heard of the database for SILENCE_S."""
        self._address, self._name, self._target = address, name, target
        self._is_silent = is_silent
        self._idle: list[asyncpg.Connection] = []  # the one that was used last is the last
        self._timer: asyncio.TimerHandle | None = None
        self._least = 0  # of those that were idle, since the last look
        self._room = asyncio.Semaphore(READERS_MAX)
        self._searches = asyncio.Semaphore(READERS_MAX - 1)  # one is left to short reads
        self._is_closed = False

    @asynccontextmanager
    async def session(self) -> AsyncIterator[asyncpg.Connection]:
        """Use a session; raise the errors of the driver as StoreError.

        So it does if it has waited for SILENCE_S, and the database is silent.
        """
        async with self._unless_silent(), self._room:
            connection = await self.take()
            try:
                yield connection
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError) or ends_session(error):
                    connection.terminate()  # the server may still run the query
                if isinstance(error, DRIVER_ERRORS):
                    raise store_error(error, self._address.shown) from error
                raise
            finally:
                self.put_back(connection)

    @asynccontextmanager
    async def search(self) -> AsyncIterator[asyncpg.Connection]:
        """Use a session for a read that may take long, so that no other read waits for these."""
        async with self._unless_silent(), self._searches, self.session() as connection:
            yield connection

    @asynccontextmanager
    async def _unless_silent(self) -> AsyncIterator[None]:
        loop, wait = asyncio.get_running_loop(), asyncio.timeout(None)
        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal timer
            if self._is_silent():
                wait.reschedule(loop.time())
            else:
                timer = loop.call_later(SILENCE_LOOK_S, look)

        timer = loop.call_later(SILENCE_S, look)
        try:
            async with wait:
                yield
        except TimeoutError as error:
            raise StoreError(f"the store {self._address.shown} does not respond") from error
        finally:
            timer.cancel()

    async def take(self) -> asyncpg.Connection:
        """Return a session for one caller, beside those of `session`, until it is put back."""
        if self._is_closed:
            raise StoreError(f"the store {self._address.shown} is not open")
        while self._idle:
            connection = self._idle.pop()
            self._least = min(self._least, len(self._idle))
            if not connection.is_closed():
                return connection
        return await connect(self._address, self._name, self._target)

    def put_back(self, connection: asyncpg.Connection) -> None:
        """Keep the session for the next caller, so that a take-over need not open one."""
        if self._is_closed:
            connection.terminate()
        elif not connection.is_closed():
            self._idle.append(connection)
            if self._timer is None and len(self._idle) > 1:
                self._watch_spare()

    def _watch_spare(self) -> None:
        self._least = len(self._idle)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(SPARE_S, self._close_spare)

    def _close_spare(self) -> None:
        """Close as many sessions as were idle since the last look, but leave one."""
        self._timer = None
        for _ in range(min(self._least, len(self._idle) - 1)):
            self._idle.pop(0).terminate()
        if len(self._idle) > 1:
            self._watch_spare()

    def drop_idle(self) -> None:
        """End the sessions that are idle now, so that the next reads open others."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.terminate()

    async def close(self) -> None:
        """Close the sessions that are idle now, and each other one at the end of its read."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        idle, self._idle = self._idle, []
        if self._is_silent():
            for connection in idle:
                connection.terminate()
        await asyncio.gather(*map(close, idle))

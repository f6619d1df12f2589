"""The supervisor of one child process: sends leases, receives results, handles its failures.

The supervisor pings a child that holds leases. If the child does not respond (a handler blocks its
loop), it gets no new leases. After `stalled_s` the supervisor releases the leases that the child
has not started and retires the child, and the pool starts another one. A retired child finishes its
running attempts and ends. The supervisor kills only a child that ignores a stop. The attempts that
a dead child still held are lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from schedo.child_process import ChildHandle, describe_exit
from schedo.core.leases import (
    AttemptResult,
    Blame,
    Completed,
    Lease,
    Lost,
    Released,
    Stopped,
    StopRequest,
)
from schedo.core.model import LeaseKey
from schedo.engine.engine import Engine
from schedo.errors import BadJson, SchedoError
from schedo.protocol import frames
from schedo.protocol.pieces import PIECE_BYTES
from schedo.silence_timer import SilenceTimer
from schedo.tasks.checked_json import check_json
from schedo.worker.engine_backend import note_progress
from schedo.worker.process.backend_server import BackendServer
from schedo.worker.process.child_memory import ChildMemory
from schedo.worker.process.child_slots import ChildSlots
from schedo.worker.process.connection import FrameConnection
from schedo.worker.process.lease_batch import LeaseBatch
from schedo.worker.process.payload_room import PayloadRoom
from schedo.worker.process.timeouts import ChildTimeouts

_CLOSE_AFTER_S = 1.0  # a process that the dead child started may still hold its socket open

if TYPE_CHECKING:
    from schedo.worker.successor_backend import SuccessorBackend

log = logging.getLogger("schedo.worker")


class CannotServe(SchedoError):
    """The application cannot be imported, or its process does not work."""

    code = "cannot-serve"


class _Held(msgspec.Struct, eq=False):
    """A lease that the child holds."""

    number: int  # the position in the order of all leases sent to the child, from 1
    is_once: bool  # its job has the delivery at_most_once
    payload_bytes: int  # of a large payload
    start_by: float = math.inf  # as the child has it; until then the lease is not sent
    stop_timer: SilenceTimer | None = None


class ChildSupervisor:
    """The server's end of one child process; a worker and its transport to the engine."""

    def __init__(
        self,
        engine: Engine,
        process: ChildHandle,
        memory: ChildMemory,
        slots: ChildSlots,  # without tasks, which the child sends when it attaches
        timeouts: ChildTimeouts,
        on_gone: Callable[[ChildSupervisor, str], None],
    ) -> None:
        self._engine = engine
        self._process = process
        self._memory = memory
        self._leases_sent = 0  # sent to the child so far
        self._timeouts = timeouts
        self._on_gone = on_gone
        self._slots = slots
        self._held: dict[LeaseKey, _Held] = {}
        self._unchecked: dict[LeaseKey, AttemptResult] = {}  # large results
        self._checks: set[asyncio.Future[None]] = set()
        self._exit_timer: SilenceTimer | None = None
        self._liveness_timer: SilenceTimer | None = None
        self._has_pinged, self._silence_s = False, 0.0  # a ping is unanswered, for how long
        # Whether the engine has the worker, and whether it may send new leases.
        self._is_known = self._is_open = False
        self._has_abandoned = False  # a handler ignores its stop; only a kill ends it
        self._is_terminated = False  # the server shuts down: unfinished attempts are released
        self._protocol_error = False  # frames were lost, so the state of its leases is unknown
        self._culprit_known = False  # the attempt that caused the child's death is known
        self._fault: str | None = None
        self._room = PayloadRoom()
        self._connection = FrameConnection(
            frames.child_frames(), self._on_frame, self._on_closed, self._room.note_reading
        )
        self._batch = LeaseBatch(self._send_leases)
        self._backend_server = BackendServer(engine, self._connection.send)
        self._closed = asyncio.Event()
        self.attached: asyncio.Future[frames.Attach] = asyncio.Future()
        self.retired = asyncio.Event()  # it gets no more leases, so the pool replaces it
        self.gone = asyncio.Event()  # its process has ended and is reaped
        self._end_task = asyncio.create_task(self._await_end())

    @property
    def worker_id(self) -> str:
        return self._slots.worker_id

    @property
    def connection(self) -> asyncio.Protocol:
        """The protocol at the server's end of the socket."""
        return self._connection

    # The engine's side.

    def start(self, lease: Lease) -> None:
        """Send the lease in one frame with the others of this turn."""
        if self.retired.is_set():  # the engine sent it before it learned that the child is retired
            self._engine.report(AttemptResult(lease.key, Released()))
            return
        self._leases_sent += 1
        self._held[lease.key] = _Held(
            self._leases_sent, bool(lease.options.at_most_once), self._room.hold(lease)
        )
        self._batch.add(lease)
        if self._liveness_timer is None:
            self._liveness_timer = SilenceTimer(self._timeouts.pulse_s, self._check_liveness)

    def stop(self, stop: StopRequest) -> None:
        """Send the stop, and kill the process if the handler ignores it."""
        self._batch.flush()  # so that the lease arrives before its stop
        held = self._held.get(stop.key)
        if held is not None and held.stop_timer is None:
            self._connection.send(frames.Stops([(stop.key, stop.reason)]))
            held.stop_timer = SilenceTimer(
                self._timeouts.kill_s, functools.partial(self._kill_for, stop.key)
            )

    def _send_leases(self, leases: list[Lease]) -> None:
        if not self._engine.sessions.may_start():
            self._leases_sent -= len(leases)
            for lease in leases:
                self._end_attempt(AttemptResult(lease.key, Released()))
            return
        sent_before = self._leases_sent - len(leases)
        if self._slots.grow(sent_before, self._memory.starts.count) and self._is_open:
            self._attach_workers()
        start_by = time.monotonic() + self._timeouts.start_s
        for lease in leases:
            held = self._held.get(lease.key)
            if held is not None:
                held.start_by = start_by
        self._connection.send(frames.Leases(leases, start_by))

    # The child's side.

    def _on_frame(self, frame: frames.FromChild) -> None:
        match frame:
            case frames.Results(results):
                self._on_results(results)
            case frames.Attach():
                self._on_attach(frame)
            case frames.CannotImport(text):
                self._fault = "it cannot import the application"
                self._fail_to_attach(text)
            case frames.Progressed(key, said) if key in self._held:
                note_progress(self._engine, key, said)
            case frames.Abandoned():
                self._has_abandoned = True
                self.retire()
            case frames.Pong():
                self._has_pinged = False
                self._set_open(not self.retired.is_set())
            case frames.BackendRequest():
                self._backend_server.serve(frame)

    def _on_results(self, results: Iterable[AttemptResult]) -> None:
        """End the attempts; a large result is checked in steps before."""
        for result in results:
            value = result.outcome.result if isinstance(result.outcome, Completed) else None
            if isinstance(value, bytes) and len(value) > PIECE_BYTES:
                self._unchecked[result.key] = result
                checking = asyncio.ensure_future(self._check(result, value))
                self._checks.add(checking)
                checking.add_done_callback(self._checks.discard)
            else:
                self._end_attempt(result)

    async def _check(self, result: AttemptResult, value: bytes) -> None:
        checked = result
        with contextlib.suppress(BadJson):  # the engine refuses it
            outcome = Completed(await check_json(value))
            checked = msgspec.structs.replace(result, outcome=outcome)
        if self._unchecked.pop(result.key, None) is not None:
            self._end_attempt(checked)

    def _on_attach(self, attach: frames.Attach) -> None:
        if self.attached.done() or attach.protocol != frames.PROTOCOL:
            self._fault = f"it attached with protocol {attach.protocol}, or twice"
            self.kill()
            return
        self._slots.set_tasks(attach)
        self._set_open(not self.retired.is_set())  # perhaps it was retired while it imported
        self.attached.set_result(attach)

    def _fail_to_attach(self, reason: str) -> None:
        if not self.attached.done():
            self.attached.set_exception(CannotServe(reason))
            self.attached.exception()  # mark it as retrieved: the caller may have given up

    def _end_attempt(self, result: AttemptResult) -> None:
        held = self._held.pop(result.key, None)
        if held is None:
            log.debug("%s reported an attempt that it no longer holds", self.worker_id)
            return
        if held.stop_timer is not None:
            held.stop_timer.cancel()
        self._room.release(held.payload_bytes)
        self._engine.report(result)
        if not self._held:
            self._end_if_retired()

    # Liveness.

    def _check_liveness(self) -> None:
        self._liveness_timer = None
        self._on_results(self._memory.staged.take_stuck())
        if self._slots.adapt(self._leases_sent, self._memory.starts.count) and self._is_open:
            self._attach_workers()
        if not self._has_pinged:
            if not self._held:
                return
            self._has_pinged, self._silence_s = True, 0.0
            self._connection.send(frames.Ping())
        else:
            self._silence_s += self._timeouts.pulse_s
            self._set_open(False)
            if self._silence_s >= self._timeouts.stalled_s:
                self._on_stalled()
        self._liveness_timer = SilenceTimer(self._timeouts.pulse_s, self._check_liveness)

    def _set_open(self, is_open: bool) -> None:
        """Start or stop new leases; a worker without slots keeps the attempts that it runs."""
        if is_open != self._is_open:
            self._is_open = is_open
            self._is_known = True
            self._attach_workers()

    def _attach_workers(self) -> None:
        for spec in self._slots.workers:
            self._engine.attach(
                spec if self._is_open else replace(spec, slots=0), self, self._room.event
            )

    def _on_stalled(self) -> None:
        begun, before = self._memory.starts.count, time.monotonic() - self._timeouts.pulse_s
        for key, held in list(self._held.items()):
            # A lease that waited for its payload may be young: the child can still start it.
            if held.number > begun and held.start_by < before:
                self._end_attempt(AttemptResult(key, Released()))
        if not self.retired.is_set():
            log.warning(
                "%s has not answered for %g s: a handler blocks its event loop "
                "(its stack traces follow); another process replaces it",
                self.worker_id,
                self._timeouts.stalled_s,
            )
            with contextlib.suppress(OSError):
                os.kill(self._process.pid, signal.SIGUSR2)
            self.retire()

    def follow(self, successor: SuccessorBackend) -> None:
        """Send the requests of the child's tasks to the server that follows this one."""
        self._backend_server.follow(successor)

    # The end.

    def retire(self) -> None:
        """Send no more leases; the child ends when its running attempts have ended."""
        if not self.retired.is_set():
            self.retired.set()
            self._room.retire()
            self._set_open(False)
            self._connection.send(frames.Drain())
            self._end_if_retired()

    def terminate(self) -> None:
        """Kill the child now and release its attempts; those of at_most_once jobs are lost."""
        self._is_terminated = True
        self.kill()

    def kill(self) -> None:
        """Kill the process and all processes in its group."""
        self._process.signal_group(signal.SIGKILL)

    def _kill_for(self, key: LeaseKey) -> None:
        log.warning("%s is killed: a handler in it ignored its stop", self.worker_id)
        self._end_attempt(AttemptResult(key, Stopped()))
        self._culprit_known = True
        self._fault = "it was killed because another attempt in it ignored a stop"
        self.kill()

    def _end_if_retired(self) -> None:
        if not self.retired.is_set() or self._held:
            return
        if self._has_abandoned:
            self.kill()
        elif self._exit_timer is None:  # drained, but a thread of the application may keep it alive
            self._exit_timer = SilenceTimer(self._timeouts.kill_s, self.kill)

    def _on_closed(self, fault: str | None) -> None:
        if fault is not None:
            log.error("%s is killed: it broke the protocol: %s", self.worker_id, fault)
            self._protocol_error = True
            self._fault = f"it was killed because it broke the protocol: {fault}"
        if not self.retired.is_set():
            self.kill()
        self._closed.set()

    async def _await_end(self) -> None:
        """Wait until the process has ended and all its frames are read, then settle its leases.

        The order counts: results first, then leases that it never started (released), then the
        rest (lost), so that no attempt is counted as lost that ended or never began.
        """
        await self._process.ended
        await self._read_last_frames()
        self._on_results(self._memory.staged.read())
        # The processes that the child started; until it is reaped, no other group has its number.
        self.kill()
        status = self._process.reap()
        message = self._fault or describe_exit(status)
        self._cancel_timers()
        self._backend_server.cancel()
        self._end_checks()
        self._fail_to_attach(f"the child process ended before it could be used: {message}")
        self._end_held(f"{self.worker_id}: {message}")
        self._memory.close()
        self.retired.set()
        self._room.retire()
        self.gone.set()
        self._on_gone(self, message)

    async def _read_last_frames(self) -> None:
        try:
            async with asyncio.timeout(_CLOSE_AFTER_S):
                await self._closed.wait()
        except TimeoutError:
            self._connection.abort()

    def _cancel_timers(self) -> None:
        stop_timers = (held.stop_timer for held in self._held.values())
        for timer in (self._liveness_timer, self._exit_timer, *stop_timers):
            if timer is not None:
                timer.cancel()

    def _end_checks(self) -> None:
        """Report the large results as they are; the engine checks them itself."""
        while self._unchecked:
            self._end_attempt(self._unchecked.popitem()[1])
        for check in self._checks:
            check.cancel()

    def _end_held(self, loss: str) -> None:
        """Release the attempts that never began; the others are lost, for the reason given."""
        for key in [key for key, held in self._held.items() if self._can_release(held)]:
            self._end_attempt(AttemptResult(key, Released()))
        if len(self._held) > 1:
            for key in list(self._held):
                self._end_attempt(AttemptResult(key, Lost(loss, Blame.SHARED)))
        if self._is_known:
            for spec in self._slots.workers:
                self._engine.detach(spec.id, loss)
        self._held.clear()
        self._batch.clear()

    def _can_release(self, held: _Held) -> bool:
        """Return whether an attempt of a dead child may be released instead of lost."""
        if self._is_terminated or self._culprit_known:
            return not held.is_once
        return held.number > self._memory.starts.count and not self._protocol_error

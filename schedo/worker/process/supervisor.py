"""Looks after one child process: leases out, results in, and what happens when it goes wrong.

A child is asked for a sign of life while it holds leases. One that stays silent (a handler blocks
its loop) first gets no new leases; after a while those it has not started go back to the engine,
it is retired and another child takes its place. A retired child finishes what it runs and leaves.
Only a child that ignores a stop is killed. Whatever a dead child still held is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from schedo.child_process import ChildHandle
from schedo.core.leases import AttemptResult, Blame, Lease, Lost, Released, Stopped, StopRequest
from schedo.core.model import LeaseKey
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.engine import Engine
from schedo.errors import SchedoError
from schedo.silence_timer import SilenceTimer
from schedo.tasks.python import GRACE_S
from schedo.worker.process import frames
from schedo.worker.process.backend_server import BackendServer
from schedo.worker.process.batcher import Batcher
from schedo.worker.process.start_counter import StartCounter
from schedo.worker.progress_report import to_word

_CLOSE_AFTER_S = 1.0  # for the socket of a dead child, which a process of its own may hold open

log = logging.getLogger("schedo.workers")


class CannotServe(SchedoError):
    """The application cannot be imported, or its process does not work."""

    code = "cannot-serve"


class ChildTimeouts(NamedTuple):
    """How long a child may take, in seconds."""

    import_s: float = 60.0
    pulse_s: float = 0.25  # between two looks for a sign of life
    stalled_s: float = 2.0  # of silence
    grace_s: float = GRACE_S  # for a handler that was told to stop

    @property
    def start_s(self) -> float:
        """How old a lease may be when the child starts it.

        Less than stalled_s, so that what is handed back for a stalled child runs once.
        """
        return self.stalled_s / 2

    @property
    def kill_s(self) -> float:
        """When a stop is taken to be ignored; the child's own grace comes first."""
        return self.grace_s + 1.0


@dataclass(slots=True)
class _Held:
    """One lease that the child has."""

    number: int  # the how manieth it was sent
    lease: Lease
    killer: SilenceTimer | None = None


class ChildSupervisor:
    """One child process as the server sees it, and a worker as the engine sees it."""

    def __init__(
        self,
        engine: Engine,
        process: ChildHandle,
        starts: StartCounter,
        slots: int,
        patience: ChildTimeouts,
        on_gone: Callable[[ChildSupervisor, str], None],
        *,
        alone: bool = False,
    ) -> None:
        self._engine = engine
        self._process = process
        self._starts = starts
        self._leases = 0  # that it was ever sent
        self._timeouts = patience
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._offer = WorkerSpec(f"process-{process.pid}", slots, frozenset(), isolated=alone)
        self._held: dict[LeaseKey, _Held] = {}
        self._killer: SilenceTimer | None = None
        self._pulse: SilenceTimer | None = None
        self._has_pinged = False  # and the ping has no answer
        self._silence_s = 0.0  # since the ping
        self._is_known = False  # to the engine
        self._is_open = False  # gets new leases
        self._has_abandoned = False  # a handler that only the end of the process ends
        self._is_terminated = False  # the server leaves: what is unfinished goes back uncounted
        self._protocol_error = False  # what it said is not all known
        self._culprit_known = False  # it is known which attempt cost it its life
        self.has_suspects = False  # it died with several attempts, and any may have done it
        self._fault: str | None = None
        self._connection = frames.FrameConnection(
            frames.child_frames(), self._on_frame, self._on_closed
        )
        self._outbox = Batcher(frames.measure_lease, self._send_leases)
        self._answering = BackendServer(engine, self._connection.send)
        self._closed = asyncio.Event()
        self.attached: asyncio.Future[frames.Attach] = self._loop.create_future()
        self.retired = asyncio.Event()  # it takes no more work, so another must take its place
        self.gone = asyncio.Event()  # its process is no more
        self._ending = asyncio.create_task(self._await_end())

    @property
    def worker_id(self) -> str:
        return self._offer.id

    @property
    def connection(self) -> asyncio.Protocol:
        """What speaks at the server's end of the socket."""
        return self._connection

    # The engine's side.

    def start(self, lease: Lease) -> None:
        """Send the lease with the others of this turn."""
        if self.retired.is_set():  # given out before the engine heard of it
            self._engine.report(AttemptResult(lease.key, Released()))
            return
        self._leases += 1
        self._held[lease.key] = _Held(self._leases, lease)
        self._outbox.add(lease)
        if self._pulse is None:
            self._pulse = SilenceTimer(self._timeouts.pulse_s, self._check_liveness)

    def stop(self, stop: StopRequest) -> None:
        """Pass the stop on, and kill the process if that does not help."""
        held = self._held.get(stop.key)
        if held is not None and held.killer is None:
            self._outbox.flush()  # the lease goes before its stop
            self._connection.send(frames.Stops([(stop.key, stop.reason)]))
            held.killer = SilenceTimer(
                self._timeouts.kill_s, functools.partial(self._kill_for, stop.key)
            )

    def _send_leases(self, leases: list[Lease]) -> None:
        self._connection.send(frames.Leases(leases, time.monotonic() + self._timeouts.start_s))

    # The child's side.

    def _on_frame(self, frame: frames.FromChild) -> None:
        match frame:
            case frames.Result(report):
                self._end(report)
            case frames.Attach():
                self._attach(frame)
            case frames.CannotImport(text):
                self._fault = "it cannot import the application"
                self._fail_to_attach(text)
            case frames.Progressed(key, said):
                if key in self._held:
                    self._engine.note_progress(to_word(key, said))
            case frames.Abandoned():
                self._has_abandoned = True
                self.retire()
            case frames.Pong():
                self._has_pinged = False
                self._set_open(not self.retired.is_set())
            case frames.BackendRequest():
                self._answering.answer(frame)

    def _attach(self, attach: frames.Attach) -> None:
        if self.attached.done() or attach.protocol != frames.PROTOCOL:
            self._fault = f"it attached with protocol {attach.protocol}, or twice"
            self.kill()
            return
        self._offer = replace(
            self._offer, tasks=frozenset(attach.tasks), task_defaults=attach.tasks
        )
        self._set_open(True)
        self.attached.set_result(attach)

    def _fail_to_attach(self, reason: str) -> None:
        if not self.attached.done():
            self.attached.set_exception(CannotServe(reason))
            self.attached.exception()  # it is no mistake if nobody waits for it any more

    def _end(self, report: AttemptResult) -> None:
        held = self._held.pop(report.key, None)
        if held is None:
            log.debug("%s ended an attempt that it no longer held", self.worker_id)
            return
        if held.killer is not None:
            held.killer.cancel()
        self._engine.report(report)
        self._leave_if_retired()

    # Signs of life.

    def _check_liveness(self) -> None:
        self._pulse = None
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
        self._pulse = SilenceTimer(self._timeouts.pulse_s, self._check_liveness)

    def _set_open(self, is_open: bool) -> None:
        """Let the engine give it leases or not; an offer of no slots keeps what it runs."""
        if is_open != self._is_open:
            self._is_open = is_open
            self._is_known = True
            offer = self._offer if is_open else replace(self._offer, slots=0)
            self._engine.attach(offer, self)

    def _on_stalled(self) -> None:
        begun = self._starts.count
        for key in [key for key, held in self._held.items() if held.number > begun]:
            self._end(AttemptResult(key, Released()))
        if not self.retired.is_set():
            log.warning(
                "%s has not answered for %g s: a handler blocks its event loop "
                "(its stacks follow); another process takes its place",
                self.worker_id,
                self._timeouts.stalled_s,
            )
            with contextlib.suppress(OSError):
                os.kill(self._process.pid, signal.SIGUSR2)
            self.retire()

    # Leaving.

    def retire(self) -> None:
        """Give it no more work; it leaves once it has finished what it runs."""
        if not self.retired.is_set():
            self.retired.set()
            self._set_open(False)
            self._connection.send(frames.Drain())
            self._leave_if_retired()

    def terminate(self) -> None:
        """Kill it now; its attempts go back uncounted, those of at most once are lost."""
        self._is_terminated = True
        self.kill()

    def kill(self) -> None:
        """End the process and all it started."""
        self._process.signal_group(signal.SIGKILL)

    def _kill_for(self, key: LeaseKey) -> None:
        log.warning("%s ignored a stop and is killed", self.worker_id)
        self._end(AttemptResult(key, Stopped()))
        self._culprit_known = True
        self._fault = "it was killed because another attempt in it ignored a stop"
        self.kill()

    def _leave_if_retired(self) -> None:
        if not self.retired.is_set() or self._held:
            return
        if self._has_abandoned:
            self.kill()
        elif self._killer is None:  # it has been told to leave; a thread of its own may keep it
            self._killer = SilenceTimer(self._timeouts.kill_s, self.kill)

    def _on_closed(self, fault: str | None) -> None:
        if fault is not None:
            log.error("%s does not speak the protocol and is killed: %s", self.worker_id, fault)
            self._protocol_error = True
            self._fault = f"it was killed because it does not speak the protocol: {fault}"
        if not self.retired.is_set():
            self.kill()
        self._closed.set()

    async def _await_end(self) -> None:
        """Wait for the end of the process and of what it said, then let go of it."""
        await self._process.ended
        try:
            async with asyncio.timeout(_CLOSE_AFTER_S):
                await self._closed.wait()
        except TimeoutError:
            self._connection.abort()
        self.kill()  # whatever it started; before it is reaped, its group cannot be another's
        status = self._process.reap()
        message = self._fault or describe_exit(status)
        killers = (held.killer for held in self._held.values())
        for timer in (self._pulse, self._killer, *killers):
            if timer is not None:
                timer.cancel()
        self._answering.cancel()
        self._fail_to_attach(f"the child process ended before it could be used: {message}")
        for key in [key for key, held in self._held.items() if self._can_hand_back(held)]:
            self._end(AttemptResult(key, Released()))
        loss = f"{self.worker_id}: {message}"
        if len(self._held) > 1:
            self.has_suspects = True
            for key in list(self._held):
                self._end(AttemptResult(key, Lost(loss, Blame.SHARED)))
        if self._is_known:
            self._engine.detach(self.worker_id, loss)
        self._held.clear()
        self._starts.close()
        self.retired.set()
        self.gone.set()
        self._on_gone(self, message)

    def _can_hand_back(self, held: _Held) -> bool:
        """Whether an attempt of a dead child may run again as if it had never been leased."""
        if self._is_terminated or self._culprit_known:
            return not held.lease.options.at_most_once
        return held.number > self._starts.count and not self._protocol_error


def describe_exit(status: int) -> str:
    """Return how a process ended, from its exit code or minus its signal."""
    if status >= 0:
        return f"the process exited with code {status}"
    try:
        return f"the process was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"the process was killed by signal {-status}"

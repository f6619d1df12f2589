"""The wall clock and one alarm on it, good to tens of microseconds.

Linux: a timerfd on CLOCK_REALTIME, absolute, cancelled by the kernel when the clock is set,
because the timers of asyncio and uvloop have millisecond granularity (and uvloop's can fire
early). Python has os.timerfd_create only from 3.13, so it takes a few lines of ctypes. Elsewhere:
loop.call_at. The alarm is armed at most SLEEP_MAX_US ahead, so that a slowly slewed clock cannot
carry it away.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import sys
import time
from collections.abc import Callable
from typing import Protocol

SLEEP_MAX_US = 10_000_000
_STEP_MIN_US = 500_000  # a smaller difference is slewing or the two readings' distance

_TFD_TIMER_ABSTIME = 1
_TFD_TIMER_CANCEL_ON_SET = 2
_TFD_FLAGS = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)


class Clock(Protocol):
    """What the engine needs of time; instants are microseconds UTC."""

    def now(self) -> int:
        """Return the wall clock."""

    def start(self, wake: Callable[[], None], stepped: Callable[[int], None]) -> None:
        """Bind to the loop: `wake` at the armed instant, `stepped` when the clock is set."""

    def arm(self, at: int | None) -> None:
        """Ask to be woken at the instant, or (None) some time; only the last call counts."""

    def close(self) -> None:
        """Give up the alarm."""


class SystemClock:
    """The machine's clock."""

    def __init__(self) -> None:
        self._wake: Callable[[], None] = _nothing
        self._stepped: Callable[[int], None] = _ignore
        self._alarm: _TimerFd | _LoopAlarm | None = None
        self._offset_us = _wall_minus_monotonic_us()

    def now(self) -> int:
        """Return the wall clock; a step is told of first, or what is armed now would move too."""
        wall_ns = time.time_ns()
        offset = (wall_ns - time.monotonic_ns()) // 1000
        delta, self._offset_us = offset - self._offset_us, offset
        if abs(delta) >= _STEP_MIN_US:
            self._stepped(delta)
        return wall_ns // 1000

    def start(self, wake: Callable[[], None], stepped: Callable[[int], None]) -> None:
        """Bind to the running loop."""
        self._wake, self._stepped = wake, stepped
        loop = asyncio.get_running_loop()
        self._offset_us = _wall_minus_monotonic_us()
        self._alarm = _TimerFd(loop, self._ring) if _has_timerfd() else _LoopAlarm(loop, self._ring)

    def arm(self, at: int | None) -> None:
        """Ask to be woken at the instant, or within SLEEP_MAX_US."""
        assert self._alarm is not None, "the clock was started"
        now = self.now()
        latest = now + SLEEP_MAX_US
        if at is not None and at <= latest:
            self._alarm.arm(at)
        elif not now < self._alarm.armed_at <= latest:  # else it wakes soon enough as it is
            self._alarm.arm(latest)

    def close(self) -> None:
        """Give up the alarm."""
        if self._alarm is not None:
            self._alarm.close()
            self._alarm = None

    def _ring(self) -> None:
        self.now()
        self._wake()


class _TimerFd:
    """A kernel timer that the loop watches as a file descriptor."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self.armed_at = -1
        self._fd = _create()
        loop.add_reader(self._fd, self._on_readable)

    def arm(self, at: int) -> None:
        if at != self.armed_at:
            self.armed_at = at
            # An instant in the past fires at once, but zero would disarm.
            _settime(self._fd, max(at, 1))

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _on_readable(self) -> None:
        self.armed_at = -1
        if _was_rung(self._fd):
            self._ring()


class _LoopAlarm:
    """The loop's own timer, a millisecond coarse; early wakes are re-armed by the engine."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self.armed_at = -1

    def arm(self, at: int) -> None:
        self.close()
        self.armed_at = at
        delay_us = max(0, at - time.time_ns() // 1000)
        self._handle = self._loop.call_later(delay_us / 1_000_000, self._ring)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


def _wall_minus_monotonic_us() -> int:
    return (time.time_ns() - time.monotonic_ns()) // 1000


def _nothing() -> None:
    """Stand in for the engine until the clock is started."""


def _ignore(delta_us: int) -> None:
    """Stand in for the engine until the clock is started."""


def _has_timerfd() -> bool:
    return sys.platform == "linux"


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


def _libc() -> ctypes.PyDLL:
    # PyDLL keeps the interpreter's lock over the call. These calls take a microsecond; letting the
    # lock go for them could cost milliseconds until the thread that commits gives it back.
    return ctypes.PyDLL(None, use_errno=True)


def _create() -> int:
    fd = int(_libc().timerfd_create(time.CLOCK_REALTIME, _TFD_FLAGS))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create failed")
    return fd


def _make_was_rung() -> Callable[[int], bool]:
    """Return a function that takes a timerfd's alarm and tells whether there was one."""
    if sys.platform != "linux":
        return lambda fd: False
    buffer = ctypes.create_string_buffer(8)
    read = _libc().read

    def was_rung(fd: int) -> bool:
        if read(fd, buffer, 8) == 8:
            return True
        number = ctypes.get_errno()
        if number in (errno.EAGAIN, errno.EINTR):
            return False
        if number == errno.ECANCELED:  # somebody set the clock
            return True
        raise OSError(number, "reading a timerfd failed")

    return was_rung


def _make_settime() -> Callable[[int, int], None]:
    """Return a function that arms a timerfd at an absolute instant in microseconds."""
    flags = _TFD_TIMER_ABSTIME | _TFD_TIMER_CANCEL_ON_SET
    if sys.platform != "linux":
        return lambda fd, at_us: None
    spec = _Itimerspec()
    pointer = ctypes.byref(spec)
    call = _libc().timerfd_settime

    def settime(fd: int, at_us: int) -> None:
        spec.value.seconds, microseconds = divmod(at_us, 1_000_000)
        spec.value.nanoseconds = microseconds * 1000
        if call(fd, flags, pointer, None) != 0:
            number = ctypes.get_errno()
            if number != errno.ECANCELED:  # the clock was set before: armed all the same
                raise OSError(number, "timerfd_settime failed")

    return settime


_settime = _make_settime()
_was_rung = _make_was_rung()

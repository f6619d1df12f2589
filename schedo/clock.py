"""The wall clock and one alarm on it, good to tens of microseconds.

The machine counts the time since its start evenly; how far the wall clock is ahead of that is the
base. When somebody sets the clock, `now` goes on as if nothing had happened until the engine
follows the step, so everything that happens in between goes by one and the same clock.

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
import hashlib
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

SLEEP_MAX_US = 10_000_000
# A smaller difference is slewing or the two readings' distance: it counts as time that passes.
STEP_MIN_US = 500_000

_TFD_TIMER_ABSTIME = 1
_TFD_TIMER_CANCEL_ON_SET = 2
_TFD_FLAGS = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)


class Clock(Protocol):
    """What the engine needs of time; instants are microseconds UTC."""

    @property
    def boot(self) -> int:
        """Names the start of the machine since which it counts the time."""

    @property
    def base_us(self) -> int:
        """The wall clock minus the time since the boot, as far as steps were followed."""

    def now(self) -> int:
        """Return the wall clock, as far as its steps were followed."""

    def step_us(self) -> int:
        """Return by how much the clock was set and not yet followed, or 0."""

    def follow(self, step_us: int) -> None:
        """Let `now` jump by so much of the step."""

    def start(self, wake: Callable[[], None], stepped: Callable[[], None]) -> None:
        """Bind to the loop: `wake` at the armed instant, `stepped` when the clock was set."""

    def arm(self, at: int | None) -> None:
        """Ask to be woken at the instant, or (None) some time; only the last call counts."""

    def close(self) -> None:
        """Give up the alarm."""


def elapsed_us(clock: Clock) -> int:
    """Return the time since the boot, to tell how long something takes."""
    return clock.now() - clock.base_us


class SystemClock:
    """The machine's clock."""

    def __init__(self) -> None:
        self.boot = _read_boot()
        self.base_us = (time.time_ns() - _since_boot_ns()) // 1000
        self._wake: Callable[[], None] = _nothing
        self._stepped: Callable[[], None] = _nothing
        self._alarm: _TimerFd | _LoopAlarm | None = None

    def now(self) -> int:
        """Return the wall clock; a step that was not followed is told of."""
        wall_ns, since_boot_ns = time.time_ns(), _since_boot_ns()
        base_us = (wall_ns - since_boot_ns) // 1000
        if -STEP_MIN_US < base_us - self.base_us < STEP_MIN_US:
            self.base_us = base_us
            return wall_ns // 1000
        self._stepped()
        return since_boot_ns // 1000 + self.base_us

    def step_us(self) -> int:
        """Return by how much the clock was set and not yet followed, or 0."""
        step = (time.time_ns() - _since_boot_ns()) // 1000 - self.base_us
        return step if abs(step) >= STEP_MIN_US else 0

    def follow(self, step_us: int) -> None:
        """Let `now` jump by so much of the step."""
        self.base_us += step_us

    def start(self, wake: Callable[[], None], stepped: Callable[[], None]) -> None:
        """Bind to the running loop."""
        self._wake, self._stepped = wake, stepped
        loop = asyncio.get_running_loop()
        self._alarm = _TimerFd(loop, self._ring) if _has_timerfd() else _LoopAlarm(loop, self._ring)

    def arm(self, at: int | None) -> None:
        """Ask to be woken at the instant, or within SLEEP_MAX_US."""
        assert self._alarm is not None, "the clock was started"
        now, step = self.now(), self.step_us()
        latest = now + SLEEP_MAX_US
        if at is not None and at <= latest:
            self._alarm.arm(at + step)
        elif not now + step < self._alarm.armed_at <= latest + step:  # else it wakes soon enough
            self._alarm.arm(latest + step)

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


def _nothing() -> None:
    """Stand in for the engine until the clock is started."""


# Other systems have no clock that counts while the machine sleeps.
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_since_boot_ns = partial(time.clock_gettime_ns, _BOOT_CLOCK)


def _read_boot() -> int:
    """Return a number that names this start of the machine, or this process if there is none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            text = file.read()
    except OSError:
        text = os.urandom(16)
    return int.from_bytes(hashlib.sha256(text).digest()[:7], "big") or 1


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

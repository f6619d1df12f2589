"""The wall clock and one alarm on it, exact to tens of microseconds.

The time since the machine's boot advances evenly; the base is the wall clock minus that time. When
the wall clock is set (a step), `now` continues as before until the engine follows the step, so all
events in between use one and the same clock.

On Linux the alarm is a timerfd on CLOCK_REALTIME, absolute, and the kernel cancels it when the
clock is set. The timers of asyncio and uvloop have millisecond granularity (and uvloop's can fire
early). os.timerfd_create exists only from Python 3.13 on, so ctypes calls it. Elsewhere the alarm
is loop.call_at. The alarm is armed at most SLEEP_MAX_US ahead, so that a slowly slewed clock cannot
shift it by much.
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
# A smaller difference comes from slewing or from the time between the two readings: no step.
STEP_MIN_US = 500_000
# So far a clock may drift away from the time since the boot before the store gets to know it.
DRIFT_US = STEP_MIN_US // 5

_TFD_TIMER_ABSTIME = 1
_TFD_TIMER_CANCEL_ON_SET = 2
_TFD_FLAGS = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)


class Clock(Protocol):
    """The clock of the engine; instants are microseconds UTC."""

    @property
    def boot(self) -> int:
        """A number that identifies the boot of the machine that the time is counted from."""

    @property
    def base_us(self) -> int:
        """The wall clock minus the time since the boot, without steps not yet followed."""

    def now(self) -> int:
        """Return the wall clock, without steps not yet followed."""

    def step_us(self) -> int:
        """Return the step that is not yet followed, or 0."""

    def follow(self, step_us: int) -> None:
        """Let `now` jump by this part of the step."""

    def ahead_us(self) -> int:
        """Return by how much the clock of this machine is ahead of `now`."""

    def start(self, wake: Callable[[], None], stepped: Callable[[], None]) -> None:
        """Bind to the loop; call `wake` at the armed instant, `stepped` when the clock is set."""

    def arm(self, at: int | None) -> None:
        """Set the alarm to the instant, or to SLEEP_MAX_US ahead if None; it replaces the last."""

    def close(self) -> None:
        """Release the alarm."""


def elapsed_us(clock: Clock) -> int:
    """Return the time since the boot, for measuring durations."""
    return clock.now() - clock.base_us


class SystemClock:
    """The clock of this machine."""

    def __init__(self) -> None:
        self.boot = _read_boot()
        self.base_us = (time.time_ns() - since_boot_ns()) // 1000
        self._ahead_us = 0  # how far the machine's clock is ahead of `now`, as seen last
        self._stepped: Callable[[], None] = _nothing
        self._alarm: _TimerFd | _LoopAlarm | None = None

    def now(self) -> int:
        """Return the wall clock, without steps not yet followed; report such a step."""
        wall_ns, boot_ns = time.time_ns(), since_boot_ns()
        base_us = (wall_ns - boot_ns) // 1000
        if -STEP_MIN_US < base_us - self.base_us < STEP_MIN_US:
            self.base_us, self._ahead_us = base_us, 0
            return wall_ns // 1000
        self._ahead_us = base_us - self.base_us
        self._stepped()
        return boot_ns // 1000 + self.base_us

    def step_us(self) -> int:
        """Return the step that is not yet followed, or 0."""
        step = (time.time_ns() - since_boot_ns()) // 1000 - self.base_us
        return step if abs(step) >= STEP_MIN_US else 0

    def follow(self, step_us: int) -> None:
        """Let `now` jump by this part of the step."""
        self.base_us += step_us

    def ahead_us(self) -> int:
        """Return the step that is not yet followed, or 0."""
        return self.step_us()

    def start(self, wake: Callable[[], None], stepped: Callable[[], None]) -> None:
        """Bind to the running loop."""
        self._stepped = stepped
        loop = asyncio.get_running_loop()
        self._alarm = _TimerFd(loop, wake) if _has_timerfd() else _LoopAlarm(loop, wake)

    def arm(self, at: int | None) -> None:
        """Set the alarm to the instant, or to at most SLEEP_MAX_US ahead."""
        assert self._alarm is not None, "the clock was started"
        if at is not None and at + self._ahead_us == self._alarm.armed_at:
            return
        now, ahead = self.now(), self._ahead_us
        latest = now + SLEEP_MAX_US
        if at is not None and at <= latest:
            self._alarm.arm(at + ahead)
        elif (
            not now + ahead < self._alarm.armed_at <= latest + ahead
        ):  # else it is armed well already
            self._alarm.arm(latest + ahead)

    def close(self) -> None:
        """Release the alarm."""
        if self._alarm is not None:
            self._alarm.close()
            self._alarm = None


class _TimerFd:
    """A kernel timer that the loop watches as a file descriptor."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fire: Callable[[], None]) -> None:
        self._loop = loop
        self._fire = fire
        self.armed_at = -1
        self._fd = _create()
        loop.add_reader(self._fd, self._on_readable)

    def arm(self, at: int) -> None:
        if at != self.armed_at:
            self.armed_at = at
            # An instant in the past fires at once, but the instant 0 would disarm the timer.
            _settime(self._fd, max(at, 1))

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _on_readable(self) -> None:
        self.armed_at = -1
        if _has_fired(self._fd):
            self._fire()


class _LoopAlarm:
    """The event loop's own timer, exact to a millisecond; if it fires early, it is armed again."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fire: Callable[[], None]) -> None:
        self._loop = loop
        self._fire = fire
        self._handle: asyncio.TimerHandle | None = None
        self.armed_at = -1

    def arm(self, at: int) -> None:
        self.close()
        self.armed_at = at
        delay_us = max(0, at - time.time_ns() // 1000)
        self._handle = self._loop.call_later(delay_us / 1_000_000, self._fire)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


def _nothing() -> None:
    """Do nothing; the callback until the clock is started."""


# Only Linux has CLOCK_BOOTTIME, which also counts while the machine sleeps.
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
since_boot_ns = partial(time.clock_gettime_ns, _BOOT_CLOCK)


def wall_us() -> int:
    """Return what the clock of this machine shows."""
    return time.time_ns() // 1000


def _read_boot() -> int:
    """Return a number that identifies this boot, or this process if there is no boot id."""
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
    # PyDLL keeps the interpreter's lock during the call. The calls take a microsecond; if they
    # released the lock, the committing thread could keep it for milliseconds.
    return ctypes.PyDLL(None, use_errno=True)


def _create() -> int:
    fd = int(_libc().timerfd_create(time.CLOCK_REALTIME, _TFD_FLAGS))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create failed")
    return fd


def _make_has_fired() -> Callable[[int], bool]:
    """Return a function that reads a timerfd and returns whether its alarm has fired."""
    if sys.platform != "linux":
        return lambda fd: False
    buffer = ctypes.create_string_buffer(8)
    read = _libc().read

    def has_fired(fd: int) -> bool:
        if read(fd, buffer, 8) == 8:
            return True
        number = ctypes.get_errno()
        if number in (errno.EAGAIN, errno.EINTR):
            return False
        if number == errno.ECANCELED:  # the clock was set
            return True
        raise OSError(number, "reading a timerfd failed")

    return has_fired


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
            if number != errno.ECANCELED:  # the clock was set before; the timer is armed
                raise OSError(number, "timerfd_settime failed")

    return settime


_settime = _make_settime()
_has_fired = _make_has_fired()

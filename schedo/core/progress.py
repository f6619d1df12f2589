"""Progress updates of running attempts: how they are merged, and their limits."""

from __future__ import annotations

from typing import Self

import msgspec

from schedo.core.value_limits import (
    LOG_CHARACTERS_MAX,
    NOTE_CHARACTERS_MAX,
    PARTIAL_CHARACTERS_MAX,
    fit_text,
)

_PERCENT_MAX = 100


class ProgressUpdate(msgspec.Struct, frozen=True, omit_defaults=True):
    """One update: percent (0 to 100), a message, lines for the log, the output so far.

    `stdout` and `stderr` are the ends of the streams; `stdout_bytes` and `stderr_bytes` are their
    lengths so far, so that a reader knows which part of the text is new.
    """

    percent: float | None = None
    message: str | None = None
    log: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    stdout_bytes: int | None = None
    stderr_bytes: int | None = None

    @property
    def has_output(self) -> bool:
        """Whether it has a part of a stream."""
        return self.stdout is not None or self.stderr is not None

    def without_output(self) -> Self:
        """Return the update without the streams."""
        return type(self)(self.percent, self.message, self.log)

    def then(self, later: Self) -> Self:
        """Merge a later update into this one: it replaces values, and log lines are appended."""
        log = later.log
        if log is not None and self.log is not None:
            log = f"{self.log}\n{log}"[-LOG_CHARACTERS_MAX:]
        stdout = self if later.stdout is None else later
        stderr = self if later.stderr is None else later
        return type(self)(
            self.percent if later.percent is None else later.percent,
            later.message or self.message,
            log or self.log,
            stdout.stdout,
            stderr.stderr,
            stdout.stdout_bytes,
            stderr.stderr_bytes,
        )

    def fit(self) -> Self:
        """Return the update within the limits: texts are cut, and a wrong percent is left out."""
        # The comparison excludes NaN as well.
        is_in_range = self.percent is not None and 0 <= self.percent <= _PERCENT_MAX
        return type(self)(
            self.percent if is_in_range else None,
            self.message and fit_text(self.message, NOTE_CHARACTERS_MAX),
            self.log and fit_text(self.log, LOG_CHARACTERS_MAX, keep_end=True),
            self.stdout and fit_text(self.stdout, PARTIAL_CHARACTERS_MAX, keep_end=True),
            self.stderr and fit_text(self.stderr, PARTIAL_CHARACTERS_MAX, keep_end=True),
            self.stdout_bytes,
            self.stderr_bytes,
        )

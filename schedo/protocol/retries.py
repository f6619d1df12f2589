"""Retry policies: as requests give them and as responses show them."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from msgspec import UNSET, Meta, Struct, UnsetType

from schedo.core import limits
from schedo.core.model import Retry
from schedo.core.retry import PRESETS
from schedo.errors import Invalid
from schedo.protocol import fields
from schedo.protocol.fields import Duration, DurationText, Instant, instant_or_unset, or_unset
from schedo.protocol.times import render_duration, render_instant

# read_retry checks it: there the pointer is right also inside of a task's defaults.
RetryCount = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": limits.ATTEMPTS_MAX})]
PresetName = Annotated[str, Meta(extra_json_schema={"enum": list(PRESETS)})]
Attempts = Annotated[int, Meta(ge=1, le=limits.ATTEMPTS_MAX)]


class RetryRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The retry policy of a job."""

    max_attempts: Attempts = 5
    backoff: Literal["exponential", "fixed"] = "exponential"
    initial: Duration = "2s"
    factor: Annotated[float, Meta(ge=1, le=100)] = 3.0
    max: Duration = "1h"
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.2
    until: Instant | None = None

    @classmethod
    def of(cls, retry: Retry) -> Self:
        return cls(
            max_attempts=retry.max_attempts,
            backoff="fixed" if retry.backoff == "fixed" else "exponential",
            initial=render_duration(retry.initial_us),
            factor=retry.factor,
            max=render_duration(retry.max_us),
            jitter=retry.jitter,
            until=None if retry.until_at is None else render_instant(retry.until_at),
        )

    def to_retry(self) -> Retry:
        """Return the core's form."""
        return Retry(
            max_attempts=self.max_attempts,
            backoff=self.backoff,
            initial_us=fields.read_duration("/retry/initial", self.initial),
            factor=self.factor,
            max_us=fields.read_duration("/retry/max", self.max),
            jitter=self.jitter,
            until_at=fields.read_instant_or_none("/retry/until", self.until),
        )


class RetryResponse(Struct, forbid_unknown_fields=True, kw_only=True):
    """A retry policy; a ladder has the delays of a preset, which is requested by its name."""

    max_attempts: int
    backoff: Literal["exponential", "fixed", "ladder"]
    initial: DurationText
    factor: float
    max: DurationText
    jitter: float
    ladder: list[DurationText] | UnsetType = UNSET
    until: Instant | UnsetType = UNSET
    preset: PresetName | UnsetType = UNSET

    @classmethod
    def of(cls, retry: Retry) -> Self:
        return cls(
            max_attempts=retry.max_attempts,
            backoff=retry.backoff,
            initial=render_duration(retry.initial_us),
            factor=retry.factor,
            max=render_duration(retry.max_us),
            jitter=retry.jitter,
            ladder=[render_duration(step_us) for step_us in retry.ladder_us] or UNSET,
            until=instant_or_unset(retry.until_at),
            preset=or_unset(_find_preset(retry)),
        )


def read_retry(value: RetryRequest | int | str | None) -> Retry | None:
    """Return the retry policy of a policy object, a number of attempts, or a preset's name."""
    if value is None:
        return None
    if isinstance(value, RetryRequest):
        return value.to_retry()
    if isinstance(value, int):
        if not 1 <= value <= limits.ATTEMPTS_MAX:
            raise Invalid.field("/retry", f"the attempts must be 1 to {limits.ATTEMPTS_MAX}")
        return Retry(max_attempts=value)
    preset = PRESETS.get(value)
    if preset is None:
        known = ", ".join(PRESETS)
        raise Invalid.field("/retry", f"{value[:40]!a} is no preset; the presets are {known}")
    return preset


def retry_request(retry: Retry) -> RetryRequest | str:
    """Return the name of the preset, or else the policy; a ladder exists only by name."""
    return _find_preset(retry) or RetryRequest.of(retry)


def _find_preset(retry: Retry) -> str | None:
    return next((name for name, preset in PRESETS.items() if preset == retry), None)

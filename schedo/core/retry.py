"""The delays between attempts of a failing job, and the named retry policies.

The `exponential` delay is initial times factor to the power of the earlier failures, at most max.
The `fixed` delay is initial. `ladder` is a list of delays of which the last one repeats. Jitter
then spreads the delay evenly, by the given share to either side. So a delay can exceed max by that
share.
"""

from __future__ import annotations

from schedo.core import limits
from schedo.core.limits import HOUR, MINUTE, SECOND
from schedo.core.model import ONCE, Retry

# Sidekiq waits n^4 + 15 + rand(30) * (n + 1) seconds after n earlier failures. The ladder has the
# mean of the random part. That part is half of the first delay and negligible later; the default
# jitter of 0.2 is in between.
SIDEKIQ = Retry(
    max_attempts=25,
    backoff="ladder",
    ladder_us=tuple((n**4 + 15 + 15 * (n + 1)) * SECOND for n in range(25)),
)

# The ladder of Standard Webhooks, without its first delay of 0, which is the first attempt.
WEBHOOK = Retry(
    max_attempts=10,
    backoff="ladder",
    ladder_us=(
        5 * SECOND,
        5 * MINUTE,
        30 * MINUTE,
        2 * HOUR,
        5 * HOUR,
        10 * HOUR,
        14 * HOUR,
        20 * HOUR,
        24 * HOUR,
    ),
)

PRESETS: dict[str, Retry] = {"none": ONCE, "sidekiq": SIDEKIQ, "webhook": WEBHOOK}


def delay_us(retry: Retry, failures: int, random: float) -> int:
    """Return the delay after the given number of failures (1 or more); random is in [0, 1)."""
    assert failures >= 1, "a delay follows a failure"
    if retry.backoff == "fixed":
        delay: float = retry.initial_us
    elif retry.backoff == "ladder":
        delay = retry.ladder_us[min(failures, len(retry.ladder_us)) - 1] if retry.ladder_us else 0
    else:
        delay = _exponential(retry, failures)
    delay *= 1 + retry.jitter * (2 * random - 1)
    return max(0, min(round(delay), limits.DURATION_MAX))


def _exponential(retry: Retry, failures: int) -> float:
    try:
        return min(retry.initial_us * retry.factor ** (failures - 1), retry.max_us)
    except OverflowError:  # a power that exceeds a float exceeds any maximum
        return retry.max_us

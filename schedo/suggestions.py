"""The hint of an error about an unknown name: the known name that was probably meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable

# What other schedulers call these fields: APScheduler, Celery, Sidekiq, Oban, River, systemd.
_SYNONYMS = {
    **dict.fromkeys(("timezone", "time_zone", "zone"), "tz"),
    **dict.fromkeys(("args", "arguments", "kwargs", "data", "params"), "payload"),
    **dict.fromkeys(("at", "eta", "scheduled_at", "run_date"), "run_at"),
    **dict.fromkeys(("countdown", "in", "wait", "schedule_in"), "delay"),
    **dict.fromkeys(("attempts", "max_attempts", "max_retries", "retries"), "retry"),
    **dict.fromkeys(("job", "kind", "function", "func", "worker", "type"), "task"),
    **dict.fromkeys(("expression", "crontab", "schedule"), "cron"),
    **dict.fromkeys(("interval", "seconds"), "every"),
    **dict.fromkeys(("time_limit", "runtime_max"), "timeout"),
}
_CHARACTERS_MAX = 64  # of a name that is compared: longer ones are no misspelt names


def suggest(name: str, known: Iterable[str], write: Callable[[str], str] = str) -> str:
    """Return "; did you mean NAME?", or "" if no known name is a synonym of it or similar to it.

    write: how the user writes a known name, if not as it is.
    """
    from difflib import get_close_matches  # imported here, because only a wrong name needs it

    names = set(known)
    meant = {word: field for word, field in _SYNONYMS.items() if field in names}
    meant |= {each: each for each in names}
    similar = get_close_matches(name[:_CHARACTERS_MAX], sorted(meant), n=1)
    return f"; did you mean {write(meant[similar[0]])}?" if similar else ""

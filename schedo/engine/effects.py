"""Whether a request may have changed something when the store fails.

The error of the store knows nothing of the request, and a client may repeat a submit without a key
only if the first one has certainly had no effect. So the web side watches each request, and what
sends a command to the engine, or a change to another server, notes that in the request's context.
"""

from __future__ import annotations

from contextvars import ContextVar


class Effects:
    """What a request may have done."""

    __slots__ = ("has_any",)

    def __init__(self) -> None:
        self.has_any = False


_effects: ContextVar[Effects | None] = ContextVar("schedo_effects", default=None)


def watch_effects() -> Effects:
    """Return the effects of this context, which from now on is that of a request."""
    effects = Effects()
    _effects.set(effects)
    return effects


def note_effect() -> None:
    """Note that the request of this context, if it is one, may change something from now on."""
    effects = _effects.get()
    if effects is not None:
        effects.has_any = True

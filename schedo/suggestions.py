"""The hint of an error about an unknown name: the known name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable

_CHARACTERS_MAX = 64  # of a name that is compared: longer ones are no misspelt names


def suggest(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean NAME?" with the most similar known name, or "" if there is none."""
    from difflib import get_close_matches  # imported here, because only a wrong name needs it

    similar = get_close_matches(name[:_CHARACTERS_MAX], list(known), n=1)
    return f"; did you mean {similar[0]}?" if similar else ""

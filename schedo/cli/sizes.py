"""Numbers of bytes in units."""

from __future__ import annotations

_UNITS = ((1 << 40, "TB"), (1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB"))


def render_size(count: int) -> str:
    """Return a number of bytes in the largest unit that fits: "1.5 MB"."""
    for size, unit in _UNITS:
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"

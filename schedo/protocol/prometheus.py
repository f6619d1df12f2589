"""Metrics as text: the Prometheus exposition format 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

_LABEL_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_HELP_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n"})


class Sample(NamedTuple):
    """One line: a value, labels as `render_labels` gives them, a suffix to the family's name."""

    value: float
    labels: str = ""
    suffix: str = ""


class Family(NamedTuple):
    """One metric and all its samples."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: Sequence[Sample]


def render_exposition(families: Iterable[Family]) -> bytes:
    """Return the families as a page; one without samples is left out."""
    lines: list[str] = []
    for name, kind, text, samples in families:
        if samples:
            lines.append(f"# HELP {name} {text.translate(_HELP_ESCAPES)}")
            lines.append(f"# TYPE {name} {kind}")
        for value, labels, suffix in samples:
            braced = f"{{{labels}}}" if labels else ""
            lines.append(f"{name}{suffix}{braced} {_render_value(value)}")
    lines.append("")
    return "\n".join(lines).encode()


def render_labels(**labels: str) -> str:
    """Return labels as the text between the braces."""
    return ",".join(f'{name}="{text.translate(_LABEL_ESCAPES)}"' for name, text in labels.items())


def histogram_samples(
    bounds: tuple[float, ...], counts: Sequence[int], total: float, labels: str = ""
) -> list[Sample]:
    """Return a histogram's lines; `counts` are each bucket's own, the last unbounded."""
    prefix = f"{labels}," if labels else ""
    samples = []
    running = 0
    for bound, count in zip(_render_bounds(bounds), counts, strict=True):
        running += count
        samples.append(Sample(running, prefix + bound, "_bucket"))
    return [*samples, Sample(total, labels, "_sum"), Sample(running, labels, "_count")]


@lru_cache(maxsize=8)
def _render_bounds(bounds: tuple[float, ...]) -> list[str]:
    return [f'le="{_render_value(bound)}"' for bound in bounds] + ['le="+Inf"']


def _render_value(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return f"{value:.6f}".rstrip("0").rstrip(".")  # microseconds are as fine as anything here

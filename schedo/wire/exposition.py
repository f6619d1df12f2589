"""Metrics as text: the Prometheus exposition format 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

_LABEL_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_HELP_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n"})


class Sample(NamedTuple):
    """One line: a suffix to the family's name, labels, and a value."""

    value: float
    labels: Mapping[str, str] = {}
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
            lines.extend(
                f"{name}{suffix}{_render_labels(labels)} {_render_value(value)}"
                for value, labels, suffix in samples
            )
    lines.append("")
    return "\n".join(lines).encode()


def histogram_samples(
    bounds: Sequence[float],
    counts: Sequence[int],
    total: float,
    labels: Mapping[str, str] | None = None,
) -> list[Sample]:
    """Return a histogram's lines; `counts` are each bucket's own, the last without bound."""
    labels = labels or {}
    samples = []
    running = 0
    for bound, count in zip((*bounds, float("inf")), counts, strict=True):
        running += count
        samples.append(Sample(running, {**labels, "le": _render_value(bound)}, "_bucket"))
    return [*samples, Sample(total, labels, "_sum"), Sample(running, labels, "_count")]


def _render_labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{value.translate(_LABEL_ESCAPES)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def _render_value(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    if isinstance(value, int):
        return str(value)
    return f"{value:.6f}".rstrip("0").rstrip(".")  # microseconds are as fine as anything here

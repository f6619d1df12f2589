"""Reads a server's /metrics page (the Prometheus text format)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from schedo.client.errors import NotSchedo

_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)\Z")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)",?')
_ESCAPED = re.compile(r"\\(.)")

Labels = tuple[tuple[str, str], ...]  # by name


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram, or the difference between two readings of it."""

    bounds: tuple[float, ...]  # the last is infinite
    counts: tuple[float, ...]  # of each bucket alone
    total: float

    @property
    def count(self) -> float:
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    def since(self, earlier: Buckets) -> Buckets:
        """Return the observations since the earlier reading, or all if the server is a new one."""
        if earlier.bounds != self.bounds:
            return self
        counts = tuple(now - then for now, then in zip(self.counts, earlier.counts, strict=True))
        if min(counts, default=0) < 0:
            return self
        return Buckets(self.bounds, counts, self.total - earlier.total)

    def quantile(self, share: float) -> float | None:
        """Return a quantile such as 0.99; values are taken as evenly spread within a bucket."""
        rank = share * self.count
        if not rank:
            return None
        below, lower = 0.0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if count and below + count >= rank:
                if bound == float("inf"):
                    return bound
                return lower + (bound - lower) * (rank - below) / count
            below, lower = below + count, bound
        return float("inf")


class Scrape:
    """One reading of /metrics."""

    def __init__(self, samples: Mapping[tuple[str, Labels], float]) -> None:
        self._by_name: dict[str, dict[Labels, float]] = {}
        for (name, labels), value in samples.items():
            self._by_name.setdefault(name, {})[labels] = value

    def value(self, name: str, **labels: str) -> float:
        """Return the value of a sample; 0 if the page does not have it."""
        return self._by_name.get(name, {}).get(tuple(sorted(labels.items())), 0.0)

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Return a metric's samples by the value of one label, summed over all other labels."""
        found: dict[str, float] = {}
        for labels, value in self._by_name.get(name, {}).items():
            key = dict(labels).get(label)
            if key is not None:
                found[key] = found.get(key, 0.0) + value
        return found

    def buckets(self, name: str, **labels: str) -> Buckets:
        """Return a histogram; it is empty if the page does not have it."""
        wanted = set(labels.items())
        pairs = sorted(
            (float(dict(found)["le"]), value)
            for found, value in self._by_name.get(f"{name}_bucket", {}).items()
            if wanted == {pair for pair in found if pair[0] != "le"}
        )
        below = [0.0, *(value for _, value in pairs)]
        counts = tuple(value - below[index] for index, (_, value) in enumerate(pairs))
        return Buckets(tuple(b for b, _ in pairs), counts, self.value(f"{name}_sum", **labels))


def parse_metrics(body: bytes) -> Scrape:
    """Return the samples of a page; raise NotSchedo for a malformed one."""
    samples: dict[tuple[str, Labels], float] = {}
    try:
        for line in body.decode().splitlines():
            if line and not line.startswith("#"):
                name, labels, value = _parse_line(line)
                samples[name, labels] = value
    except ValueError as error:
        raise NotSchedo.because(f"its page of metrics is malformed: {error}") from None
    return Scrape(samples)


def _parse_line(line: str) -> tuple[str, Labels, float]:
    found = _LINE.match(line)
    if found is None:
        raise ValueError(f"{line[:60]!r} is not a sample")
    name, labels, value = found.groups()
    return name, tuple(sorted(parse_labels(labels or ""))), float(value)


def parse_labels(text: str) -> list[tuple[str, str]]:
    """Return the labels of a sample, given the text between its braces."""
    return [(key, _ESCAPED.sub(_unescape, value)) for key, value in _LABEL.findall(text)]


def _unescape(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]

"""The part of /metrics about expectations; the first ones have series of their own."""

from __future__ import annotations

from collections.abc import Sequence

from schedo.core.expectations import Expectation, ExpectationState
from schedo.core.limits import SCHEDULES_MEASURED_MAX
from schedo.protocol.prometheus import Family, Sample, render_labels


def render_expectations(expectations: Sequence[Expectation]) -> list[Family]:
    """Return the families; there are no series without an expectation."""
    if not expectations:
        return []
    states = [
        Sample(sum(each.state is state for each in expectations), render_labels(state=state.value))
        for state in ExpectationState
    ]
    shown = [
        (each, _labels(each))
        for each in sorted(expectations, key=lambda each: each.id)[:SCHEDULES_MEASURED_MAX]
    ]
    return [
        Family("schedo_expectations", "gauge", "Expectations by state.", states),
        Family(
            "schedo_expectation_missed",
            "gauge",
            "Whether the expectation is missed now.",
            [Sample(int(each.state is ExpectationState.MISSED), label) for each, label in shown],
        ),
        Family(
            "schedo_expectation_misses_total",
            "counter",
            "Limits that have passed, since the expectation was created.",
            [Sample(each.missed, label) for each, label in shown],
        ),
    ]


def _labels(expectation: Expectation) -> str:
    kind = "schedule" if expectation.of_schedule else "named"
    return render_labels(expectation=expectation.name, kind=kind)

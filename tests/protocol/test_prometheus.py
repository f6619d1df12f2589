"""The Prometheus text format, as we write it and as its own parser reads it."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from schedo.protocol.prometheus import (
    Family,
    Sample,
    histogram_samples,
    render_exposition,
    render_labels,
)


def test_a_page_has_help_and_type_before_the_samples() -> None:
    families = [
        Family("jobs_total", "counter", "Jobs.", [Sample(7, render_labels(queue="a")), Sample(0)]),
        Family("lag_seconds", "gauge", "Lag.", [Sample(0.000_25)]),
        Family("nothing", "gauge", "Left out.", []),
    ]

    assert render_exposition(families).decode().splitlines() == [
        "# HELP jobs_total Jobs.",
        "# TYPE jobs_total counter",
        'jobs_total{queue="a"} 7',
        "jobs_total 0",
        "# HELP lag_seconds Lag.",
        "# TYPE lag_seconds gauge",
        "lag_seconds 0.00025",
    ]


def test_a_page_ends_with_a_newline() -> None:
    assert render_exposition([Family("a", "gauge", "A.", [Sample(1)])]).endswith(b"\na 1\n")


def test_a_histogram_counts_the_values_up_to_each_bound() -> None:
    samples = histogram_samples((0.00005, 1.0), (3, 0, 2), 21.5, render_labels(queue="a"))

    page = render_exposition([Family("t_seconds", "histogram", "T.", samples)]).decode()
    assert page.splitlines()[2:] == [
        't_seconds_bucket{queue="a",le="0.00005"} 3',
        't_seconds_bucket{queue="a",le="1"} 3',
        't_seconds_bucket{queue="a",le="+Inf"} 5',
        't_seconds_sum{queue="a"} 21.5',
        't_seconds_count{queue="a"} 5',
    ]


def test_a_label_can_have_any_text() -> None:
    odd = 'a"b\\c\nd{e="f"} 1'
    samples = [Sample(1, render_labels(q=odd))]
    page = render_exposition([Family("a", "gauge", "One\ntwo \\ three.", samples)])

    (family,) = text_string_to_metric_families(page.decode())

    assert family.samples[0].labels == {"q": odd}
    assert family.documentation == "One\ntwo \\ three."

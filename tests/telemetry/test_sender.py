"""The queue of the telemetry and its thread, and what they do about bugs of a sampler."""

from __future__ import annotations

import logging
import socket

import pytest

from schedo.core.changes import Changes
from schedo.core.model import Decision, DecisionRecord
from schedo.telemetry.sender import Sender
from schedo.telemetry.service import Telemetry
from schedo.telemetry.settings import TelemetrySettings
from schedo.testing.clock import VirtualClock
from tests.telemetry.collector import collecting
from tests.web.placing import make_lease

DECISIONS = Changes(decisions=[DecisionRecord(1, at, at, Decision.MISSED) for at in range(6)])


def make_telemetry(url: str, monkeypatch: pytest.MonkeyPatch, **settings: float) -> Telemetry:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    known = {"sends_metrics": False, "delay_s": 0.01, **settings}
    return Telemetry(TelemetrySettings(**known), VirtualClock(0))  # type: ignore[arg-type]


def sender_of(telemetry: Telemetry) -> Sender:
    return telemetry._sender


def test_what_does_not_fit_into_the_queue_is_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with collecting() as collector:
        telemetry = make_telemetry(collector.url, monkeypatch, waiting_max=8)
        for _ in range(3):
            telemetry.durable(telemetry.note(DECISIONS, []), 10)
        assert telemetry.dropped == 10

        sender_of(telemetry).start()
        collector.wait(lambda: len(collector.spans) == 8)
        telemetry.durable(telemetry.note(DECISIONS, []), 10)
        collector.wait(lambda: len(collector.spans) == 14)

        assert sender_of(telemetry).stop(10)
        assert telemetry.dropped == 10


def test_a_large_commit_is_sent_in_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        telemetry = make_telemetry(collector.url, monkeypatch, batch_max=2)
        sender_of(telemetry).start()
        telemetry.durable(telemetry.note(DECISIONS, []), 10)

        collector.wait(lambda: len(collector.spans) == 6)

        assert sender_of(telemetry).stop(10)
        assert collector.requests == 3


class Broken:
    """A sampler, which can be a plugin, that has a bug."""

    def should_sample(self, *args: object, **kwargs: object) -> None:
        raise RuntimeError("no such rule")


def test_a_sampler_with_a_bug_stops_no_job_and_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("opentelemetry.sdk.trace.sampling._get_from_env_or_default", Broken)
    leases = [make_lease()]
    with collecting() as collector, caplog.at_level(logging.ERROR, "schedo"):
        telemetry = make_telemetry(collector.url, monkeypatch)
        assert telemetry.mark(leases) == leases
        assert telemetry.mark(leases) == leases
        sender_of(telemetry).start()
        telemetry.durable(telemetry.note(DECISIONS, []), 10)
        telemetry.durable(telemetry.note(DECISIONS, []), 10)

        assert sender_of(telemetry).stop(10)
        assert telemetry.dropped == 12

    assert [record.message.partition(";")[0] for record in caplog.records] == [
        "attempts have no trace context",
        "spans or metrics cannot be made",
    ]


def test_a_telemetry_of_metrics_only_marks_and_notes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with collecting() as collector:
        telemetry = make_telemetry(
            collector.url, monkeypatch, sends_traces=False, sends_metrics=True
        )
        leases = [make_lease()]

        assert telemetry.mark(leases) is leases
        assert telemetry.note(DECISIONS, []) == []


def test_a_collector_that_is_away_is_told_with_its_address_and_without_its_secrets(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1.5")
        telemetry = make_telemetry(f"http://user:secret@{address}/key-123", monkeypatch)
        sender_of(telemetry).start()
        telemetry.durable(telemetry.note(DECISIONS, []), 10)
        with caplog.at_level(logging.WARNING):
            assert sender_of(telemetry).stop(10)

    (record,) = (each for each in caplog.records if "does not take spans" in each.getMessage())
    message = record.getMessage()
    assert message.startswith(f"the OpenTelemetry collector at http://{address} does not take")
    assert "Connection refused" in message
    assert "secret" not in caplog.text
    assert "key-123" not in caplog.text
    assert telemetry.dropped == 6

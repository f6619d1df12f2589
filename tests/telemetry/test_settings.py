"""OpenTelemetry's variables: what a server reads of them, and what it refuses."""

from __future__ import annotations

import importlib.util

import pytest

from schedo.config import Config
from schedo.config_checks import check_config
from schedo.errors import Invalid
from schedo.telemetry.settings import TelemetrySettings, read_settings


def test_without_a_variable_the_defaults_apply() -> None:
    assert read_settings({}) == TelemetrySettings()


def test_the_variables_of_opentelemetry_are_read() -> None:
    environ = {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_BSP_MAX_QUEUE_SIZE": "100",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "10",
        "OTEL_BSP_SCHEDULE_DELAY": "250",
        "OTEL_METRIC_EXPORT_INTERVAL": "1500",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "https://user:pass@otel.example.org/base",
    }

    assert read_settings(environ) == TelemetrySettings(True, False, 100, 10, 0.25, 1.5)


def test_a_disabled_sdk_sends_nothing() -> None:
    settings = read_settings({"OTEL_SDK_DISABLED": "true"})

    assert (settings.sends_traces, settings.sends_metrics) == (False, False)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "schedo sends OTLP by http/protobuf only"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "http/protobuf only"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", "write a URL such as"),
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://x:port", "write a URL such as"),
        ("OTEL_TRACES_EXPORTER", "jaeger", "it is otlp or none"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "a number from 1"),
        ("OTEL_BSP_SCHEDULE_DELAY", "5s", "a number from 1"),
    ],
)
def test_a_bad_variable_is_refused_by_its_name(name: str, value: str, message: str) -> None:
    with pytest.raises(Invalid, match=f"{name}.*{message}"):
        read_settings({name: value})


def test_a_url_with_a_password_is_not_shown() -> None:
    with pytest.raises(Invalid) as caught:
        read_settings({"OTEL_EXPORTER_OTLP_ENDPOINT": "ftp://user:secret@host"})

    assert "secret" not in str(caught.value)


def test_a_missing_extra_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(Invalid, match=r"pip install 'schedo\[otel\]'"):
        check_config(Config(otel=True))
    check_config(Config())

"""The settings of the telemetry: OpenTelemetry's own variables, read once and checked.

Those of the exporter itself (headers, certificates, compression, timeouts) and of the sampler are
read by OpenTelemetry. See https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from schedo.errors import Invalid
from schedo.program import how_to_install

_PREFIX = "OTEL_EXPORTER_OTLP"
_PROTOCOL = "http/protobuf"
_DEFAULT_URL = "http://localhost:4318"
_MODULE = "opentelemetry.exporter.otlp.proto.http"
_MILLISECONDS = 0.001


class TelemetrySettings(NamedTuple):
    """What is sent, and how much may wait."""

    sends_traces: bool = True
    sends_metrics: bool = True
    waiting_max: int = 8_192  # spans that may wait until they are sent
    batch_max: int = 512  # spans of one request
    delay_s: float = 5.0  # how long spans wait for others
    interval_s: float = 60.0  # between two readings of the metrics


def read_settings(environ: Mapping[str, str]) -> TelemetrySettings:
    """Return the settings; raise Invalid, which names the variable or the missing package."""
    for signal in ("", "_TRACES", "_METRICS"):
        _check_protocol(environ, f"{_PREFIX}{signal}_PROTOCOL")
        _check_url(environ, f"{_PREFIX}{signal}_ENDPOINT")
    default = TelemetrySettings()
    is_disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    settings = TelemetrySettings(
        _is_sent(environ, "OTEL_TRACES_EXPORTER") and not is_disabled,
        _is_sent(environ, "OTEL_METRICS_EXPORTER") and not is_disabled,
        _read_number(environ, "OTEL_BSP_MAX_QUEUE_SIZE", default.waiting_max),
        _read_number(environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", default.batch_max),
        _read_seconds(environ, "OTEL_BSP_SCHEDULE_DELAY", default.delay_s),
        _read_seconds(environ, "OTEL_METRIC_EXPORT_INTERVAL", default.interval_s),
    )
    if not _is_installed():
        raise Invalid(
            "otel: OpenTelemetry is not installed beside schedo; install the extra with:"
            f" {how_to_install('otel')}"
        )
    return settings


def read_address(environ: Mapping[str, str], signal: str) -> str:
    """Return where TRACES or METRICS are sent, for logs: without a password and a path."""
    names = (f"{_PREFIX}_{signal}_ENDPOINT", f"{_PREFIX}_ENDPOINT")
    url = next(filter(None, (environ.get(name, "").strip() for name in names)), _DEFAULT_URL)
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec(_MODULE) is not None
    except ModuleNotFoundError:  # of a package above it
        return False


def _check_protocol(environ: Mapping[str, str], name: str) -> None:
    value = environ.get(name, "").strip()
    if value not in ("", _PROTOCOL):
        raise Invalid(f"environment {name} = {value!r}: schedo sends OTLP by {_PROTOCOL} only")


def _check_url(environ: Mapping[str, str], name: str) -> None:
    value = environ.get(name, "").strip()
    if not value:
        return
    try:
        parts = urlsplit(value)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        is_url = False
    if not is_url:  # it is not shown, because it may contain a password
        raise Invalid(f"environment {name}: write a URL such as http://127.0.0.1:4318")


def _is_sent(environ: Mapping[str, str], name: str) -> bool:
    value = environ.get(name, "").strip().lower()
    if value not in ("", "otlp", "none"):
        raise Invalid(f"environment {name} = {value!r}: it is otlp or none")
    return value != "none"


def _read_number(environ: Mapping[str, str], name: str, default: int) -> int:
    value = environ.get(name, "").strip()
    if not value:
        return default
    if not value.isdecimal() or not 0 < int(value) <= 10_000_000:
        raise Invalid(f"environment {name} = {value!r}: it is a number from 1 to 10000000")
    return int(value)


def _read_seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    return _read_number(environ, name, round(default / _MILLISECONDS)) * _MILLISECONDS

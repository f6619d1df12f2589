"""The table of all settings: files, variables and options of `schedo serve` follow from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from schedo.core import limits
from schedo.setting_values import (
    read_app,
    read_choice,
    read_duration,
    read_host,
    read_host_name,
    read_list_of,
    read_mode,
    read_number,
    read_objective,
    read_public_url,
    read_switch,
    read_target,
    read_text,
    read_url,
)

CONCURRENCY_MAX = 10_000
PROCESSES_MAX = 1_024


class Setting(NamedTuple):
    """One key: the parser of its value (which raises ValueError) and its help text."""

    parse: Callable[[object], Any]
    help: str
    metavar: str = "TEXT"
    field: str = ""  # the name in Config, if it differs
    may_be_secret: bool = False  # errors do not show such a value


SETTINGS: dict[str, Setting] = {
    "app": Setting(
        read_app, "Run the tasks of this Schedo object in child processes.", "MODULE:NAME"
    ),
    "store": Setting(
        read_text, "SQLite file that holds all jobs and schedules, or a postgresql:// URL.", "FILE"
    ),
    "host": Setting(
        read_host,
        "Address to listen on; any but loopback requires a token. unix:/PATH is a Unix socket.",
        "HOST",
    ),
    "port": Setting(read_number(0, 65_535), "Port to listen on; 0 means any free port.", "PORT"),
    "grpc_port": Setting(
        read_number(0, 65_535),
        "Port for gRPC, on the same address; needs the extra schedo[grpc]; 0 means any free port.",
        "PORT",
    ),
    "socket_mode": Setting(
        read_mode, "Permissions of the Unix socket, such as 0660 for its group.", "MODE"
    ),
    "concurrency": Setting(
        read_number(1, CONCURRENCY_MAX),
        "How many shell and http jobs run at once, and how many jobs of the app's tasks.",
        "N",
    ),
    "async_concurrency": Setting(
        read_number(0, CONCURRENCY_MAX),
        "How many async tasks of the app run at once, besides its plain functions; 0: concurrency"
        " counts both, as it does where only concurrency is set.",
        "N",
    ),
    "processes": Setting(
        read_number(1, PROCESSES_MAX), "Number of child processes for the app's tasks.", "N"
    ),
    "allow_shell": Setting(read_switch, "Allow jobs to run commands on this machine.", "BOOL"),
    "strict": Setting(
        read_switch,
        "Refuse jobs and schedules whose task no application and no worker has offered.",
        "BOOL",
    ),
    "output_dir": Setting(
        read_text, "Directory in which to also store the complete output of commands.", "DIR"
    ),
    "token_file": Setting(
        read_text, "File with a token that clients must send; its role is admin.", "FILE"
    ),
    "tokens": Setting(
        read_text,
        "File with a line 'TOKEN role=viewer|operator|admin|worker|beat name=x' for each token;"
        " queues=a,b and tasks=x restrict an operator or a worker; schedules=yes lets a worker put"
        " the schedules of its app.",
        "FILE",
    ),
    "worker_tokens": Setting(
        read_text,
        "File with a line 'TOKEN queues=a,b tasks=x' for each token whose role is worker; --tokens"
        " does the same and more.",
        "FILE",
    ),
    "tls_cert": Setting(
        read_text,
        "PEM file with the certificate of this server and of the CAs between; the port then speaks"
        " HTTPS.",
        "FILE",
    ),
    "tls_key": Setting(read_text, "PEM file with the key of the certificate.", "FILE"),
    "log_format": Setting(
        read_choice("text", "json"), "Format of log lines: text or json.", "FORMAT"
    ),
    "log_level": Setting(
        read_choice("debug", "info", "warning", "error"),
        "Lowest level to log: debug, info, warning or error.",
        "LEVEL",
    ),
    "drain_grace": Setting(
        read_duration,
        "How long running jobs may take to finish after SIGTERM.",
        "DURATION",
        "drain_grace_us",
    ),
    "allowed_hosts": Setting(
        read_list_of(read_host_name), "Additional host name to accept in the Host header.", "NAME"
    ),
    "anonymous": Setting(
        read_choice("viewer"), "Role of clients without a token or a login: viewer.", "ROLE"
    ),
    "hide_payload_from": Setting(
        read_choice("viewer"), "Role that sees no payloads of jobs: viewer.", "ROLE"
    ),
    "public_url": Setting(
        read_public_url,
        "URL by which browsers reach the server through a proxy, such as"
        " https://ops.example.org/schedo.",
        "URL",
    ),
    "webhook_allow": Setting(
        read_list_of(read_target),
        "Private host[:port] or CIDR block that http jobs may call.",
        "TARGET",
    ),
    "webhook_secrets_file": Setting(
        read_text,
        'TOML file of webhook secrets, such as orders = "whsec_..."; http jobs use them by name.',
        "FILE",
    ),
    "heartbeat_url": Setting(
        read_url,
        "URL to call while the server is ready, so that a monitor notices when it is not.",
        "URL",
        may_be_secret=True,
    ),
    "heartbeat_interval": Setting(
        read_duration,
        "The time between two such calls; at least 1s.",
        "DURATION",
        "heartbeat_interval_us",
    ),
    "lateness_objective": Setting(
        read_objective,
        "How late 99.9 % of the jobs may start: a bound of the histograms, such as 5ms or 10ms.",
        "DURATION",
        "lateness_objective_us",
    ),
    "otel": Setting(
        read_switch,
        "Send traces and metrics to an OpenTelemetry collector, at OTEL_EXPORTER_OTLP_ENDPOINT.",
        "BOOL",
    ),
    "standby": Setting(
        read_switch,
        "While another server has the store, wait beside it, and take its place when it ends.",
        "BOOL",
    ),
    "kill_stuck": Setting(
        read_duration,
        "As a standby, kill a server that has not answered for this long; at least 1s; 0s: never.",
        "DURATION",
        "kill_stuck_us",
    ),
    "store_read": Setting(
        read_text,
        "URL of a standby of the database of the store, which answers lists and searches while it"
        " is at most 5 s behind.",
        "URL",
    ),
    "advertise": Setting(
        read_url,
        "URL by which the other servers on the same database reach this one; by default the"
        " address on which it listens.",
        "URL",
    ),
    "failover_timeout": Setting(
        read_duration,
        "How long this server may be silent before the others on the same database take its jobs"
        " over; at least 200ms.",
        "DURATION",
        "failover_timeout_us",
    ),
    "retention.completed": Setting(
        read_duration, "How long completed jobs are kept.", "DURATION", "completed_us"
    ),
    "retention.failed": Setting(
        read_duration, "How long failed jobs are kept.", "DURATION", "failed_us"
    ),
    "retention.cancelled": Setting(
        read_duration, "How long cancelled and expired jobs are kept.", "DURATION", "cancelled_us"
    ),
    "retention.schedule_runs": Setting(
        read_number(0, limits.RUNS_KEPT_MAX),
        "How many of the last runs of each schedule are kept for longer.",
        "N",
        "schedule_runs",
    ),
}

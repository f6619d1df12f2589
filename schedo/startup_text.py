"""What a server prints when it is ready: its address, its store, and a first command to paste."""

from __future__ import annotations

import logging

import schedo
from schedo.config import Config
from schedo.config_checks import needs_token
from schedo.log_format import JsonFormatter
from schedo.setting_values import unix_path
from schedo.store import without_password


def print_address(
    config: Config, port: int, grpc_address: str | None = None, *, is_new_store: bool
) -> None:
    """Print it to stdout; with the log format JSON as one record, for programs that read both."""
    address = describe_address(config, port)
    new = ", which is new and empty" if is_new_store else ""
    store = without_password(config.store)
    ready = f"schedo {schedo.__version__} listens on {address}; its jobs are in {store}{new}"
    if grpc_address is not None:
        ready += f"; gRPC listens on {grpc_address}"
    if config.log_format == "json":
        record = {"name": "schedo", "levelno": logging.INFO, "levelname": "INFO", "msg": ready}
        lines = [JsonFormatter().format(logging.makeLogRecord(record))]
    else:
        lines = [ready, *_hints(config, address)]
    print("\n".join(lines), flush=True)


def describe_address(config: Config, port: int) -> str:
    """Return the URL of the server as its clients use it, or the address of its Unix socket."""
    if unix_path(config.host) is not None:
        return config.host
    host = f"[{config.host}]" if ":" in config.host else config.host
    scheme = "http" if config.tls_cert is None else "https"
    return f"{scheme}://{host}:{port}"


def _hints(config: Config, address: str) -> list[str]:
    hints = []
    path = unix_path(config.host)
    url = address if path is None else f"--unix-socket {path} http://localhost"
    job = '{"task":"shell","payload":{"command":"echo hello"},"delay":"5s"}'
    if not config.allow_shell:
        hints.append("shell jobs are off; --allow-shell turns them on")
        job = '{"task":"http","payload":{"url":"https://example.org/"},"delay":"5s"}'
    token = ""
    if needs_token(config):
        token = f' -H "authorization: Bearer $(cat {config.token_file or "TOKEN_FILE"})"'
    return [
        *hints,
        f"try: curl {url}/v1/jobs{token} -H 'content-type: application/json' -d '{job}'",
    ]

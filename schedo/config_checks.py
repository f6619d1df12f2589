"""The checks of a whole configuration, before a server starts with it."""

from __future__ import annotations

import ipaddress
import os

from schedo.config import Config
from schedo.core import limits
from schedo.errors import Invalid
from schedo.program import how_to_install
from schedo.setting_values import unix_path
from schedo.store import is_postgres, read_path

FAILOVER_TIMEOUT_MIN_US = 200_000  # two heartbeats
IN_MEMORY = (":memory:", "memory:")
_STRENGTHS = {"flag": 2, "environment": 1}


def check_config(config: Config) -> None:
    """Raise Invalid if a server must not start with this configuration."""
    if config.heartbeat_interval_us < limits.SECOND:
        source = config.sources.get("heartbeat_interval", "default")
        raise Invalid(f"heartbeat_interval ({source}): it must be at least 1s")
    if 0 < config.kill_stuck_us < limits.SECOND:
        source = config.sources.get("kill_stuck", "default")
        raise Invalid(f"kill_stuck ({source}): it must be at least 1s, or 0s for never")
    if config.standby and config.store in IN_MEMORY:
        source = config.sources.get("standby", "default")
        raise Invalid(
            f"standby ({source}): only one process can have a store that is kept in memory; give a"
            " file with --store"
        )
    if config.standby and is_postgres(config.store):
        source = config.sources.get("standby", "default")
        raise Invalid(
            f"standby ({source}): a standby waits for the lock of a file; with a store in"
            " PostgreSQL, start another server: the two share the work, and each takes over the"
            " jobs of the other one when that dies"
        )
    _check_store(config)
    _check_cluster(config)
    if config.otel:
        from schedo.telemetry.settings import read_settings

        read_settings(os.environ)
    _check_tls(config)
    if config.anonymous is not None and not needs_token(config):
        source = config.sources.get("anonymous", "default")
        raise Invalid(
            f"anonymous ({source}): without a token, every client may do everything; put tokens in"
            " a file and add --tokens"
        )
    _check_grpc(config)
    _check_unix_socket(config)
    check_reach(config, config.host, config.sources.get("host", "default"))


def check_reach(config: Config, host: str, source: str) -> None:
    """Raise Invalid if other machines reach the host and no client needs a token."""
    if not needs_token(config) and not is_loopback(host):
        raise Invalid(
            f"host = {host!r} ({source}): the server would accept jobs from other machines"
            " without a token; either put a token in a file"
            " (umask 077; openssl rand -hex 32 > schedo.token) and add --token-file schedo.token,"
            " or listen on 127.0.0.1"
        )


def _check_unix_socket(config: Config) -> None:
    """Raise Invalid for a port, or the mode of a socket, that the host would leave unused.

    One in a file is no mistake if the command line or the environment chooses the host.
    """
    host, port, mode = (config.sources.get(key, "") for key in ("host", "port", "socket_mode"))
    is_unix = unix_path(config.host) is not None
    if not is_unix and mode and _strength(mode) >= _strength(host):
        raise Invalid(
            f"socket_mode ({mode}): only a Unix socket has a mode, and the host is {config.host};"
            " give --host unix:/PATH as well, or leave the mode out"
        )
    if is_unix and port and _strength(port) >= _strength(host):
        raise Invalid(
            f"port ({port}): a Unix socket ({config.host}) has no port; leave one of the two out"
        )


def _strength(source: str) -> int:
    """Return the rank of a source: an option overrides a variable, which overrides a file."""
    return _STRENGTHS.get(source.partition(" ")[0], 0)


def _check_store(config: Config) -> None:
    """Raise Invalid if the store is neither a file nor in PostgreSQL, and name its setting."""
    try:
        if not is_postgres(config.store):
            read_path(config.store)
    except Invalid as error:
        source = config.sources.get("store", "default")
        raise Invalid(f"store ({source}): {error.problems[0].detail}") from error


def _check_cluster(config: Config) -> None:
    """Raise Invalid if a setting of servers that share a database does not fit."""
    for name in ("advertise", "failover_timeout", "store_read"):
        if name in config.sources and not is_postgres(config.store):
            raise Invalid(
                f"{name} ({config.sources[name]}): only servers that share a database in PostgreSQL"
                f" have it, and the store is {config.store}"
            )
    if config.store_read is not None and not is_postgres(config.store_read):
        raise Invalid(
            f"store_read ({config.sources['store_read']}): give the URL of a standby,"
            " postgresql://…"
        )
    if config.failover_timeout_us < FAILOVER_TIMEOUT_MIN_US:
        source = config.sources.get("failover_timeout", "default")
        raise Invalid(f"failover_timeout ({source}): it must be at least 200ms")


def _check_tls(config: Config) -> None:
    if config.tls_cert is not None and unix_path(config.host) is not None:
        source = config.sources.get("tls_cert", "default")
        raise Invalid(f"tls_cert ({source}): a Unix socket ({config.host}) has no TLS")
    for given, missing in (("tls_cert", "tls_key"), ("tls_key", "tls_cert")):
        if getattr(config, given) is not None and getattr(config, missing) is None:
            source = config.sources.get(given, "default")
            raise Invalid(f"{given} ({source}): TLS also needs {missing}")


def _check_grpc(config: Config) -> None:
    """Raise Invalid if the packages of the extra are missing, or the port is that of HTTP."""
    if config.grpc_port is None:
        return
    from importlib.util import find_spec  # only a server with gRPC needs it

    source = config.sources.get("grpc_port", "default")
    for name in ("h2", "google", "google.protobuf", "google.rpc"):
        if find_spec(name) is None:
            raise Invalid(
                f"grpc_port ({source}): gRPC needs packages that are not installed; install them"
                f" with: {how_to_install('grpc')}"
            )
    if config.grpc_port == config.port != 0:
        raise Invalid(f"grpc_port ({source}): port {config.port} is that of HTTP; give another one")


def needs_token(config: Config) -> bool:
    """Return whether clients must send a token; worker tokens alone leave the rest open."""
    return config.token is not None or config.tokens is not None


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host; unknown names count as reachable."""
    if unix_path(host) is not None:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"

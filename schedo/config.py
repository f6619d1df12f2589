"""The server's configuration: one frozen object, read once, with the source of each value.

Later sources override earlier ones: defaults, /etc/schedo/schedo.toml,
$XDG_CONFIG_HOME/schedo/schedo.toml, ./schedo.toml, SCHEDO_… variables, flags. The table in
setting_table.py lists every key once; the files, the environment (`retention.failed` is
SCHEDO_RETENTION__FAILED) and the options of `schedo serve` follow from it. An unknown key or a bad
value is an error that names the key and the source. The token is not a key: it comes from a file,
or from SCHEDO_TOKEN, which is removed from the environment once read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from schedo.client.tokens import check_token, read_token
from schedo.core import limits
from schedo.core.lateness import OBJECTIVE_US
from schedo.errors import Invalid
from schedo.log_format import LogFormat
from schedo.protocol.public_url import PublicUrl
from schedo.protocol.times import render_duration
from schedo.setting_table import SETTINGS
from schedo.store import without_password
from schedo.store.base import Retention
from schedo.suggestions import suggest

PREFIX = "SCHEDO_"

# Kubernetes kills a pod 30 s after SIGTERM. Like Sidekiq, schedo keeps 5 s of that in reserve.
DRAIN_GRACE_US = 25 * limits.SECOND

HEARTBEAT_US = limits.MINUTE

# Variables that the server ignores: those of other commands, of the jobs that schedo runs, and the
# path of the configuration file.
_OTHERS = (
    "URL TOKEN CA_CERT CONFIG JOB_ID ATTEMPT EPOCH QUEUE SCHEDULED_FOR MARK WORKER_NAME"
    " WORKER_TASKS WORKER_QUEUES WORKER_SLOTS WORKER_LABELS WORKER_RESOURCES WORKER_SESSION_TIMEOUT"
    " WORKER_READY_FILE DEBUGGABLE"
)
_OTHER_VARIABLES = frozenset(PREFIX + name for name in _OTHERS.split())


class Secret:
    """A text that does not appear in any repr, log or traceback."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the text."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(********)"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one server."""

    app: str | None = None  # "myapp:app"
    store: str = "./data/schedo.db"
    host: str = "127.0.0.1"
    port: int = 8080  # 0: any free port
    socket_mode: str = "0600"  # octal, of a Unix socket
    grpc_port: int | None = None  # None: no gRPC; 0: any free port
    concurrency: int = 16
    async_concurrency: int = 1_000  # 0: async tasks of the app share `concurrency` with the others
    processes: int = msgspec.field(default_factory=lambda: _count_processors())
    allow_shell: bool = False
    strict: bool = False
    output_dir: str | None = None
    token_file: str | None = None
    token: Secret | None = None
    tokens: str | None = None
    worker_tokens: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    log_format: LogFormat = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    drain_grace_us: int = DRAIN_GRACE_US
    allowed_hosts: tuple[str, ...] = ()
    anonymous: Literal["viewer"] | None = None
    hide_payload_from: Literal["viewer"] | None = None
    public_url: PublicUrl | None = None
    webhook_allow: tuple[str, ...] = ()
    webhook_secrets_file: str | None = None
    heartbeat_url: str | None = None
    heartbeat_interval_us: int = HEARTBEAT_US
    lateness_objective_us: int = OBJECTIVE_US
    otel: bool = False
    standby: bool = False
    kill_stuck_us: int = 0  # 0: never
    advertise: str | None = None
    store_read: str | None = None
    failover_timeout_us: int = limits.FAILOVER_TIMEOUT_US
    retention: Retention = Retention()
    sources: dict[str, str] = {}  # the source of each setting that is not the default


def _count_processors() -> int:
    if hasattr(os, "sched_getaffinity"):  # what this process may use; Linux only
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Found(NamedTuple):
    value: object
    source: str


def variable(key: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + key.upper().replace(".", "__")


def option(key: str) -> str:
    """Return the option of `schedo serve` for a setting."""
    return "--" + key.replace("_", "-").replace(".", "-")


def default_paths(environ: Mapping[str, str]) -> list[Path]:
    """Return the paths of schedo.toml; later files override earlier ones."""
    home = environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return [Path("/etc/schedo/schedo.toml"), Path(home, "schedo/schedo.toml"), Path("schedo.toml")]


def load_config(
    flags: Mapping[str, object] | None = None,
    environ: MutableMapping[str, str] | None = None,
    paths: Sequence[Path] | None = None,
    must_exist: bool = False,
) -> Config:
    """Read the whole configuration; raise Invalid, which names the key, the value and the source.

    This removes SCHEDO_TOKEN from environ. Files that do not exist are ignored, unless must_exist.
    """
    environ = os.environ if environ is None else environ
    found: dict[str, _Found] = {}
    for path in default_paths(environ) if paths is None else paths:
        found.update(_read_file(path, must_exist))
    found.update(_read_environment(environ))
    for key, value in (flags or {}).items():
        if value is not None:
            found[key] = _Found(value, f"flag {option(key)}")
    if "concurrency" in found:  # who sets one number bounds all handlers by it
        found.setdefault("async_concurrency", _Found(0, found["concurrency"].source))
    token, token_source = _choose_token(found, environ.pop("SCHEDO_TOKEN", None))
    config = _build(found)
    sources = {key: source for key, (_, source) in found.items()}
    if token is not None:
        sources["token"] = token_source
    return msgspec.structs.replace(config, token=token, sources=sources)


def _read_file(path: Path, must_exist: bool) -> Iterator[tuple[str, _Found]]:
    try:
        text = path.read_text("utf-8-sig")  # editors of Windows begin a file with a mark
        import tomllib  # a server without a file does not need it

        tree = tomllib.loads(text)
    except FileNotFoundError:
        if must_exist:
            raise Invalid(f"the configuration file {path} does not exist") from None
        return
    except (OSError, ValueError) as error:
        raise Invalid(f"cannot read {path}: {error}") from error
    for key, value in _flatten(tree, ""):
        yield _check_key(key, str(path)), _Found(value, str(path))


def _flatten(tree: dict[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _read_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, _Found]]:
    for name, value in environ.items():
        if not name.startswith(PREFIX) or name in _OTHER_VARIABLES or _is_service_link(name, value):
            continue
        key = name.removeprefix(PREFIX).lower().replace("__", ".")
        source = f"environment {name}"
        yield _check_key(key, source, variable), _Found(value, source)


def _is_service_link(name: str, value: str) -> bool:
    # For a service "schedo" Kubernetes sets SCHEDO_PORT=tcp://… and SCHEDO_SERVICE_HOST in pods.
    if name.startswith(("SCHEDO_SERVICE_", "SCHEDO_PORT_")):
        return True
    return name == "SCHEDO_PORT" and value.startswith(("tcp://", "udp://"))


def _check_key(key: str, source: str, write: Callable[[str], str] = str) -> str:
    """Return the key if there is such a setting; write: how its source writes a key."""
    if key in SETTINGS:
        return key
    if key == "token":
        raise Invalid(
            f"{source} must not contain the token: put it in a file of its own and set token_file"
        )
    hint = suggest(key, SETTINGS, write) or f"; the keys are {', '.join(SETTINGS)}"
    raise Invalid(f"unknown key {key} ({source}){hint}")


def _build(found: Mapping[str, _Found]) -> Config:
    values: dict[str, Any] = {}
    retention: dict[str, int] = {}
    for key, (value, source) in found.items():
        setting = SETTINGS[key]
        try:
            parsed = setting.parse(value)
        except ValueError as error:
            shown = key if setting.may_be_secret else f"{key} = {value!r}"
            raise Invalid(f"{shown} ({source}): {error}") from error
        group = retention if key.startswith("retention.") else values
        group[setting.field or key] = parsed
    return Config(**values, retention=Retention(**retention))


def _choose_token(
    found: dict[str, _Found], from_environment: str | None
) -> tuple[Secret | None, str]:
    """Return the token and its source; a flag overrides the variable, which overrides files."""
    file = found.get("token_file")
    if from_environment is not None and (file is None or not file.source.startswith("flag")):
        found.pop("token_file", None)
        return Secret(
            check_token(from_environment, "environment SCHEDO_TOKEN")
        ), "environment SCHEDO_TOKEN"
    if file is None:
        return None, ""
    return Secret(read_token(str(file.value))), f"file {file.value}"


def describe_config(config: Config) -> Iterator[tuple[str, object, str]]:
    """Yield the key, the value as plain data and the source of each setting; mask the token."""
    for key, setting in SETTINGS.items():
        owner = config.retention if key.startswith("retention.") else config
        value = getattr(owner, setting.field or key)
        shown = render_duration(value) if setting.metavar == "DURATION" else value
        shown = str(shown) if isinstance(shown, PublicUrl) else shown
        if key in ("store", "store_read") and shown is not None:
            shown = without_password(str(shown))
        yield (
            key,
            list(shown) if isinstance(shown, tuple) else shown,
            config.sources.get(key, "default"),
        )
    yield "token", "********" if config.token else None, config.sources.get("token", "default")

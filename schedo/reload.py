"""The reload of the settings by SIGHUP: what changes at once, and what needs a restart.

Every setting is read again from its source. What cannot change in a running server stays as it is,
and the log says which settings these are. A bad file changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from schedo.config import Config, describe_config
from schedo.config_checks import check_config
from schedo.errors import SchedoError
from schedo.setting_table import SETTINGS

log = logging.getLogger("schedo")

# The settings that a running server can change; "token" is the text in the token file.
RELOADED = frozenset(
    {
        *(
            "token",
            "token_file",
            "tokens",
            "worker_tokens",
            "tls_cert",
            "tls_key",
            "allowed_hosts",
            "anonymous",
            "hide_payload_from",
            "strict",
            "log_level",
            "drain_grace",
            "lateness_objective",
        ),
        *(key for key in SETTINGS if key.startswith("retention.")),
    }
)


class Reload:
    """The settings of a running process; `run` reads them again.

    read: reads all settings; apply: uses the new settings and returns the names of files whose
    content has changed. Both raise SchedoError, and have changed nothing then.
    """

    def __init__(
        self, config: Config, read: Callable[[], Config], apply: Callable[[Config], list[str]]
    ) -> None:
        self.config = config
        self._read = read
        self._apply = apply

    def run(self) -> None:
        """Read the settings again, use those that can change, and log what has changed."""
        try:
            new = self._read()
            merged = merge(self.config, new)
            check_config(merged)
            contents = self._apply(merged)
        except (SchedoError, OSError) as error:
            log.error("reload: %s; the settings stay as they are", error)
            return
        changed = find_changes(self.config, new)
        log_reload(
            sorted({*contents, *(changed & RELOADED)}),
            sorted(changed - RELOADED),
        )
        self.config = merged


def log_reload(changed: list[str], kept: list[str]) -> None:
    """Log the names of the settings that have changed, and of those that wait for a restart."""
    log.info("reload: %s", f"changed {', '.join(changed)}" if changed else "nothing has changed")
    if kept:
        log.warning("reload: a restart is needed to change %s", ", ".join(kept))


def find_changes(old: Config, new: Config) -> set[str]:
    """Return the keys of the settings that differ."""
    after = _values(new)
    return {key for key, value in _values(old).items() if value != after[key]}


def merge(old: Config, new: Config) -> Config:
    """Return the old settings with the new values of those that a running server can change."""
    fields: dict[str, Any] = {"retention": new.retention, "token": new.token}
    for key in RELOADED - {"token"}:
        name = SETTINGS[key].field or key
        if not key.startswith("retention."):
            fields[name] = getattr(new, name)
    return msgspec.structs.replace(old, **fields)


def _values(config: Config) -> dict[str, object]:
    values = {key: value for key, value, _ in describe_config(config)}
    values["token"] = config.token and config.token.reveal()
    return values

"""What a reload of the settings changes, and what it keeps until a restart."""

from __future__ import annotations

import logging

import msgspec
import pytest

from schedo.config import Config, Secret
from schedo.errors import Invalid
from schedo.reload import RELOADED, Reload, merge
from schedo.setting_table import SETTINGS
from schedo.store.base import Retention

OLD = Config(token=Secret("first-0123456789abcdef"), processes=1)


def changed(**fields: object) -> Config:
    return msgspec.structs.replace(OLD, **fields)


def reload(new: Config, contents: list[str] | None = None) -> tuple[Reload, list[Config]]:
    used: list[Config] = []

    def use(config: Config) -> list[str]:
        used.append(config)
        return contents or []

    made = Reload(OLD, lambda: new, use)
    made.run()
    return made, used


@pytest.fixture(autouse=True)
def _record(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "schedo")


def test_every_reloaded_setting_exists() -> None:
    assert set(SETTINGS) | {"token"} >= RELOADED


def test_settings_that_can_change_are_used(caplog: pytest.LogCaptureFixture) -> None:
    new = changed(
        token=Secret("second-0123456789abcdef"),
        drain_grace_us=1,
        retention=Retention(failed_us=60_000_000),
    )

    made, used = reload(new)

    assert used == [new]
    assert made.config == new
    assert "changed drain_grace, retention.failed, token" in caplog.text


def test_other_settings_wait_for_a_restart(caplog: pytest.LogCaptureFixture) -> None:
    made, used = reload(changed(port=9, concurrency=3, log_level="error"))

    assert used == [changed(log_level="error")]
    assert made.config == used[0]
    assert "changed log_level" in caplog.text
    assert "a restart is needed to change concurrency, port" in caplog.text


def test_a_changed_file_of_worker_tokens_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    reload(OLD, ["worker_tokens"])

    assert "changed worker_tokens" in caplog.text


def test_a_reload_that_would_open_the_server_to_all_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    old = changed(host="0.0.0.0")
    made = Reload(old, lambda: msgspec.structs.replace(old, token=None), lambda config: [])

    made.run()

    assert made.config == old
    assert "the settings stay as they are" in caplog.text


def test_a_bad_setting_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def read() -> Config:
        raise Invalid("port = 'x': expected a number")

    made = Reload(OLD, read, lambda config: [])

    made.run()

    assert made.config is OLD
    assert "port = 'x': expected a number; the settings stay as they are" in caplog.text


def test_the_settings_of_the_restart_are_kept_by_a_merge() -> None:
    assert merge(OLD, changed(store="other.db", app="a:b")) == OLD

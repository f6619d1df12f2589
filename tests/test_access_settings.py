"""The settings that decide who may read and change what, and under which address."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from schedo.config import Config, Secret, describe_config, load_config
from schedo.config_checks import check_config
from schedo.errors import Invalid
from schedo.server.settings import read_web_settings

TOKEN = "0123456789abcdef0123"


def load(token: Secret | None = None, **flags: object) -> Config:
    return msgspec.structs.replace(load_config(flags, {}, []), token=token)


def test_anonymous_viewers_need_tokens_beside_them() -> None:
    with pytest.raises(Invalid, match="every client may do everything"):
        check_config(load(anonymous="viewer"))

    check_config(load(token=Secret(TOKEN), anonymous="viewer"))


def test_a_public_url_is_read_and_shown() -> None:
    config = load(public_url="https://Ops.example.org/schedo/")

    assert "https://ops.example.org/schedo" in [value for _, value, _ in describe_config(config)]


@pytest.mark.parametrize("prefix", ["v1", "ui", "jobs", "metrics", "docs"])
def test_a_public_url_does_not_hide_an_address_of_the_server(prefix: str) -> None:
    with pytest.raises(Invalid, match=f"/{prefix} is an address of the server itself"):
        read_web_settings(load(public_url=f"https://x.example/{prefix}/y"))


def test_the_settings_of_viewers_reach_their_tokens(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(
        "viewer-0123456789abc role=viewer name=v\nadmin-0123456789abcd role=admin name=a"
    )
    file.chmod(0o600)

    config = load(tokens=str(file), anonymous="viewer", hide_payload_from="viewer")
    settings = read_web_settings(config)

    assert [each.hides_payloads for each in settings.tokens.values()] == [True, False]
    assert settings.anyone is not None
    assert (settings.anyone.name, settings.anyone.hides_payloads) == ("anonymous", True)

"""The certificate of a server and its key: what cannot be used is named before anything changes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from schedo.config import Config, load_config
from schedo.config_checks import check_config
from schedo.errors import Invalid
from schedo.server.settings import read_web_settings
from schedo.server.tls import read_tls
from tests.certificates import Authority, Pair


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Authority(tmp_path_factory.mktemp("tls")).issue("server")


def refusal(cert: Path, key: Path) -> str:
    with pytest.raises(Invalid) as refused:
        read_tls(str(cert), str(key))
    return str(refused.value)


@pytest.mark.parametrize(("given", "missing"), [("tls_cert", "tls_key"), ("tls_key", "tls_cert")])
def test_a_certificate_and_a_key_need_each_other(given: str, missing: str) -> None:
    with pytest.raises(Invalid, match=rf"^{given} \(flag .*\): TLS also needs {missing}$"):
        check_config(load_config({given: "file.pem"}, {}, []))


def test_a_missing_file_is_named_by_its_setting(pair: Pair, tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"

    assert refusal(missing, pair.key).startswith(f"tls_cert = '{missing}': cannot be read: No such")
    assert refusal(pair.cert, missing).startswith(f"tls_key = '{missing}': cannot be read: No such")


def test_a_file_without_pem_is_named_by_its_setting(pair: Pair) -> None:
    assert "contains no certificate" in refusal(pair.key, pair.key)
    assert "contains no private key" in refusal(pair.cert, pair.cert)


def test_a_damaged_certificate_is_refused(pair: Pair, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.pem"
    damaged.write_text(pair.cert.read_text()[:100] + pair.cert.read_text()[140:])

    assert refusal(damaged, pair.key).startswith(f"tls_cert = '{damaged}', tls_key")


def test_a_key_of_another_certificate_is_refused(pair: Pair, tmp_path: Path) -> None:
    other = Authority(tmp_path).issue("other")

    assert "it is not the key of the first certificate in" in refusal(pair.cert, other.key)


def test_a_key_with_a_passphrase_is_refused_instead_of_asking_for_it(
    pair: Pair, tmp_path: Path
) -> None:
    locked = tmp_path / "locked.key"
    command = ["openssl", "pkey", "-in", str(pair.key), "-aes256", "-passout", "pass:a"]
    subprocess.run([*command, "-out", str(locked)], check=True, capture_output=True)
    locked.chmod(0o600)

    assert "the key has a passphrase" in refusal(pair.cert, locked)


def test_a_key_that_every_user_can_write_is_refused(pair: Pair, tmp_path: Path) -> None:
    loose = tmp_path / "loose.key"
    loose.write_text(pair.key.read_text())
    loose.chmod(0o602)

    assert "every user of this machine can write it" in refusal(pair.cert, loose)


@pytest.mark.parametrize(
    ("public_url", "has_tls", "is_secure"),
    [
        (None, False, False),
        (None, True, True),
        ("http://ops.example.org", True, False),
        ("https://ops.example.org", False, True),
    ],
)
def test_a_cookie_is_secure_if_browsers_reach_the_server_by_tls(
    pair: Pair, public_url: str | None, has_tls: bool, is_secure: bool
) -> None:
    config = load_config({} if public_url is None else {"public_url": public_url}, {}, [])
    if has_tls:
        config = msgspec.structs.replace(config, tls_cert=str(pair.cert), tls_key=str(pair.key))

    assert read_web_settings(config).is_secure is is_secure


def test_a_server_without_the_settings_has_no_tls() -> None:
    assert read_web_settings(Config(processes=1)).tls is None

"""The setting of the gRPC port."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from schedo.config import load_config
from schedo.config_checks import check_config
from schedo.errors import Invalid


@pytest.mark.parametrize("missing", ["h2", "google.protobuf", "google.rpc"])
def test_a_missing_package_of_the_extra_is_an_error_with_the_command(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    find: Any = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else find(name)
    )

    check_config(load_config({}, {}, []))
    with pytest.raises(Invalid, match=r"^grpc_port \(flag --grpc-port\): .* pip install 'schedo"):
        check_config(load_config({"grpc_port": "0"}, {}, []))


def test_http_and_grpc_need_two_ports() -> None:
    check_config(load_config({"port": "0", "grpc_port": "0"}, {}, []))
    with pytest.raises(Invalid, match="port 9090 is that of HTTP"):
        check_config(load_config({"port": "9090", "grpc_port": "9090"}, {}, []))

"""The ports of the Helm chart: TLS with a certificate, and gRPC where it is wanted."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import pytest

from tests.deploy.charts import (
    EVERYTHING,
    POSTGRES,
    SQLITE,
    load,
    pods,
    render,
    server_of,
    skip_without_helm,
    variables,
)


@pytest.fixture(autouse=True)
def helm(capsys: pytest.CaptureFixture[str]) -> None:
    skip_without_helm(capsys)


def test_with_a_certificate_everyone_speaks_tls() -> None:
    objects = render(EVERYTHING)
    server = server_of(objects)
    [(spec, worker)] = [pair for pair in pods(objects) if pair[1]["name"] == "worker"]

    assert {name: variables(server)[f"SCHEDO_TLS_{name}"] for name in ("CERT", "KEY")} == {
        "CERT": "/run/secrets/tls/tls.crt",
        "KEY": "/run/secrets/tls/tls.key",
    }
    probes = [server[name]["httpGet"] for name in server if name.endswith("Probe")]
    assert {probe["scheme"] for probe in probes} == {"HTTPS"}
    assert variables(server)["SCHEDO_URL"] == "https://localhost:8080"
    assert variables(worker)["SCHEDO_URL"] == "https://schedo:8080"
    assert variables(worker)["SCHEDO_CA_CERT"] == "/run/secrets/tls/ca.crt"
    [of_tls] = [each["secret"] for each in spec["volumes"] if each["name"] == "tls"]
    assert [each["key"] for each in of_tls["items"]] == ["ca.crt"]  # and not the key
    [endpoint] = objects["ServiceMonitor", "schedo"]["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["tlsConfig"]["serverName"]) == ("https", "schedo")


def test_a_certificate_of_a_public_authority_needs_no_ca() -> None:
    objects = render({**EVERYTHING, "tls": {"secret": "schedo-tls", "hasCa": False}})

    assert "ca.crt" not in json.dumps(list(objects.values()))
    assert variables(server_of(objects))["SCHEDO_URL"].startswith("https://")


def test_without_a_certificate_everyone_speaks_http() -> None:
    objects = render(SQLITE)
    server = server_of(objects)

    assert "SCHEDO_TLS_CERT" not in variables(server)
    assert server["livenessProbe"]["httpGet"]["scheme"] == "HTTP"
    assert variables(server)["SCHEDO_URL"] == "http://127.0.0.1:8080"


@pytest.mark.parametrize(("tls", "scheme"), [("", "http"), ("schedo-tls", "https")])
def test_servers_of_a_database_reach_each_other_by_the_names_of_their_pods(
    tls: str, scheme: str
) -> None:
    objects = render({**POSTGRES, "tls": {"secret": tls}, "networkPolicy": {"from": []}})
    server = objects["StatefulSet", "schedo"]["spec"]
    service = objects["Service", server["serviceName"]]["spec"]
    container = server_of(objects)
    [port] = [each for each in container["ports"] if each["name"] == "http"]
    labels = server["template"]["metadata"]["labels"].items()

    url = urlsplit(variables(container)["SCHEDO_ADVERTISE"])
    assert (url.scheme, url.port) == (scheme, port["containerPort"])
    assert url.hostname == f"schedo-0.{server['serviceName']}.ops.svc"
    [name] = [each for each in container["env"] if each["name"] == "POD_NAME"]
    assert name["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    names = [each["name"] for each in container["env"]]
    # What a variable takes from another one must be above it.
    assert container["env"].index(name) < names.index("SCHEDO_ADVERTISE")
    # The name of a pod is known before it is ready, and it may connect to the others.
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    assert service["selector"].items() <= labels
    [rule] = objects["NetworkPolicy", "schedo"]["spec"]["ingress"]
    assert any(each["podSelector"]["matchLabels"].items() <= labels for each in rule["from"])


def test_a_server_with_a_file_has_no_others_to_reach() -> None:
    assert "SCHEDO_ADVERTISE" not in variables(server_of(render(SQLITE)))


def test_grpc_has_a_port_where_it_is_wanted_and_nowhere_else() -> None:
    with_it, without = render(EVERYTHING), render(SQLITE)
    port = variables(server_of(with_it))["SCHEDO_GRPC_PORT"]

    assert {each["name"]: each["containerPort"] for each in server_of(with_it)["ports"]} == {
        "http": 8080,
        "grpc": int(port),
    }
    for name in ("schedo", "schedo-servers"):
        ports = with_it["Service", name]["spec"]["ports"]
        assert {each["targetPort"]: each["port"] for each in ports} == {"http": 8080, "grpc": 9090}
    [rule] = with_it["NetworkPolicy", "schedo"]["spec"]["ingress"]
    assert rule["ports"] == [{"port": "http"}, {"port": "grpc"}]
    assert "grpc" not in json.dumps(list(without.values())).lower()


def test_http_and_grpc_need_two_ports_of_the_service() -> None:
    with pytest.raises(load("helm_python").HelmError, match=r"service\.grpcPort: it is"):
        render({"service": {"port": 9090, "grpcPort": 9090}})

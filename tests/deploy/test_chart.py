"""The Helm chart: Helm renders it, Kubernetes knows every object, and schedo every flag.

Helm and the schemas come with the development environment on Linux (x86-64). Elsewhere the tests
are skipped loudly. No test needs a cluster.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from schedo.client.tokens import check_token
from schedo.config import load_config
from schedo.protocol.operations import OPERATIONS
from schedo.protocol.roles import Role
from schedo.web.permissions import parse_tokens
from tests.deploy.charts import (
    CASES,
    CHART,
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
from tests.deploy.commands import accept
from tests.e2e.server import serving
from tests.sources import ROOT

ADAPTER = ROOT / "deploy" / "helm" / "prometheus-adapter.yaml"
KUBERNETES = ("1.27", "1.37")  # the oldest of Chart.yaml, and the newest that is known
NOT_OF_KUBERNETES = {"ServiceMonitor"}


@pytest.fixture(autouse=True)
def helm(capsys: pytest.CaptureFixture[str]) -> None:
    skip_without_helm(capsys)


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_helm_finds_nothing_to_complain_about(values: dict[str, Any]) -> None:
    report = load("helm_python").lint(CHART, values, strict=True)

    worse_than_advice = [each for each in report["messages"] if each["severity"] > 1]
    assert (report["errors"], worse_than_advice) == ([], [])


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_each_object_is_one_of_kubernetes(values: dict[str, Any], version: str) -> None:
    validate = load("kubernetes_validate").validate
    objects = render(values)

    for (kind, _), each in objects.items():
        if kind not in NOT_OF_KUBERNETES:
            validate(each, version, strict=True)
    assert {"StatefulSet", "Service", "Deployment", "NetworkPolicy"} <= {
        kind for kind, _ in objects
    }


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_schedo_knows_the_commands_and_the_settings(values: dict[str, Any]) -> None:
    for _, container in pods(render(values)):
        accept(container["args"])
        if container["name"] == "server":
            settings = {
                name: value
                for name, value in variables(container).items()
                if name.startswith("SCHEDO_") and "TOKEN" not in name
            }
            if any(
                each["name"] == "SCHEDO_STORE" and "value" not in each for each in container["env"]
            ):
                settings["SCHEDO_STORE"] = POSTGRES["store"]  # from the Secret
            load_config({}, settings, paths=[])


def test_the_settings_arrive_as_they_were_given() -> None:
    config = load_config(
        {},
        {
            name: value
            for name, value in variables(server_of(render(EVERYTHING))).items()
            if name.startswith("SCHEDO_") and "TOKEN" not in name
        },
        paths=[],
    )
    many = variables(server_of(render(POSTGRES)))

    assert config.allow_shell
    assert config.allowed_hosts == ("a.example", "b.example")
    assert str(config.public_url) == "https://ops.example.org/schedo"
    assert many["SCHEDO_CONCURRENCY"] == "10000"
    assert many["SCHEDO_RETENTION__COMPLETED"] == "7d"


def test_the_probes_ask_for_paths_that_need_no_token() -> None:
    open_paths = {operation.path for operation in OPERATIONS if operation.role is None}
    container = server_of(render(SQLITE))
    probes = {name: container[name]["httpGet"] for name in container if name.endswith("Probe")}
    port = container["ports"][0]

    assert {name: get["path"] for name, get in probes.items()} == {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }
    assert {get["path"] for get in probes.values()} <= open_paths
    assert {get["port"] for get in probes.values()} == {port["name"]}
    args = container["args"]
    assert args[args.index("--port") + 1] == str(port["containerPort"])


def test_a_worker_is_ready_when_it_has_made_its_file() -> None:
    [worker] = [each for _, each in pods(render(SQLITE)) if each["name"] == "worker"]
    *test, file = worker["readinessProbe"]["exec"]["command"]

    assert test == ["test", "-e"]
    assert f"--ready-file={file}" in worker["args"]
    assert str(Path(file).parent) in [each["mountPath"] for each in worker["volumeMounts"]]


def test_a_file_has_one_server_and_a_volume() -> None:
    objects = render(SQLITE)
    [server] = [each for (kind, _), each in objects.items() if kind == "StatefulSet"]

    assert server["spec"]["replicas"] == 1
    [claim] = server["spec"]["volumeClaimTemplates"]
    folder = {each["name"]: each["mountPath"] for each in server_of(objects)["volumeMounts"]}
    store = variables(server_of(objects))["SCHEDO_STORE"]
    assert Path(store).parent == Path(folder[claim["metadata"]["name"]])


def test_a_database_has_several_servers_and_its_url_is_a_secret() -> None:
    objects = render(POSTGRES)
    server = objects["StatefulSet", "schedo"]["spec"]

    assert server["replicas"] == 3
    assert "volumeClaimTemplates" not in server
    [source] = [each for each in server_of(objects)["env"] if each["name"] == "SCHEDO_STORE"]
    reference = source["valueFrom"]["secretKeyRef"]
    assert objects["Secret", reference["name"]]["stringData"][reference["key"]] == POSTGRES["store"]
    assert "secret@db" not in json.dumps(server)
    assert objects["PodDisruptionBudget", "schedo"]["spec"]["maxUnavailable"] == 1


def test_secrets_of_the_users_are_used_instead() -> None:
    objects = render({"existingTokenSecret": "mine", "existingStoreSecret": "theirs"})

    assert [name for kind, name in objects if kind == "Secret"] == []
    assert "theirs" in json.dumps(server_of(objects))
    volumes = [each for spec, _ in pods(objects) for each in spec["volumes"] if "secret" in each]
    assert [each["secret"]["secretName"] for each in volumes] == ["mine", "mine"]


def test_the_tokens_are_those_that_the_server_reads() -> None:
    secret = render(SQLITE)["Secret", "schedo-tokens"]["stringData"]

    tokens = parse_tokens(secret["tokens"], "tokens", "the Secret", check_token)
    assert [each.role for each in tokens.values()] == [Role.WORKER, Role.VIEWER]
    assert [each.may_declare for each in tokens.values()] == [True, False]
    lines = [line.split()[0] for line in secret["tokens"].splitlines()]
    assert lines == [secret["worker"], secret["viewer"]]
    assert check_token(secret["admin"], "the Secret") not in lines


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_no_pod_has_rights_that_it_does_not_need(values: dict[str, Any]) -> None:
    for spec, container in pods(render(values)):
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["automountServiceAccountToken"] is False
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_a_service_with_the_name_of_schedo_sets_no_settings() -> None:
    # Kubernetes would set SCHEDO_PORT=tcp://10.0.0.1:8080, which the server would refuse.
    assert [spec["enableServiceLinks"] for spec, _ in pods(render(SQLITE))] == [False, False]


@pytest.mark.parametrize("seconds", [0, 25, 600])
def test_a_pod_has_more_time_than_its_drain(seconds: int) -> None:
    part = {"drainGraceSeconds": seconds}

    for spec, container in pods(render({"server": part, "worker": part})):
        assert spec["terminationGracePeriodSeconds"] > seconds + 3
        assert f"{seconds}s" in re.split("[ =]", " ".join(container["args"]))


def test_the_workers_reach_the_server_by_its_service() -> None:
    objects = render({"service": {"port": 80}}, name="ops")
    [worker] = [container for _, container in pods(objects) if container["name"] == "worker"]
    service = objects["Service", "ops-schedo"]

    assert variables(worker)["SCHEDO_URL"] == "http://ops-schedo:80"
    labels = objects["StatefulSet", "ops-schedo"]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["spec"]["ports"][0]["targetPort"] == "http"
    policy = objects["NetworkPolicy", "ops-schedo"]["spec"]
    peers = [peer["podSelector"] for rule in policy["ingress"] for peer in rule["from"]]
    worker_labels = objects["Deployment", "ops-schedo-worker"]["spec"]["selector"]
    assert worker_labels in peers


def test_the_autoscaler_asks_for_the_metric_that_the_adapter_makes() -> None:
    objects = render(EVERYTHING)
    scaler = objects["HorizontalPodAutoscaler", "schedo-worker"]["spec"]
    [metric] = scaler["metrics"]
    [rule] = yaml.safe_load(ADAPTER.read_text())["rules"]["external"]

    assert metric["external"]["metric"]["name"] == rule["name"]["as"]
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "40"}
    [expression] = metric["external"]["metric"]["selector"]["matchExpressions"]
    assert (expression["key"], expression["values"]) == ("queue", ["mail", "sms"])
    target = scaler["scaleTargetRef"]
    deployment = objects[target["kind"], target["name"]]["spec"]
    assert "replicas" not in deployment
    assert "--queues=mail,sms" in deployment["template"]["spec"]["containers"][0]["args"]


def test_without_a_number_a_pod_is_for_as_many_jobs_as_it_has_slots() -> None:
    values = {"worker": {"slots": 7, "autoscaling": {"enabled": True}}}
    scaler = render(values)["HorizontalPodAutoscaler", "schedo-worker"]["spec"]

    assert scaler["metrics"][0]["external"]["target"]["averageValue"] == "7"


@pytest.mark.e2e
def test_the_metric_counts_the_jobs_that_are_due_or_run(tmp_path: Path) -> None:
    [rule] = yaml.safe_load(ADAPTER.read_text())["rules"]["external"]
    series = re.findall(
        r'(schedo_\w+){<<.LabelMatchers>>(?:,state="(\w+)")?}', rule["metricsQuery"]
    )

    with serving(tmp_path) as server:
        for delay in ("0s", "0s", "1h"):
            server.submit(task="unknown", payload={}, delay=delay, queue="mail")
        with urllib.request.urlopen(f"{server.url}/metrics") as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))

    samples = [sample for family in families for sample in family.samples]
    found = {
        name: sum(
            sample.value
            for sample in samples
            if sample.name == name
            and sample.labels["queue"] == "mail"
            and state in ("", sample.labels.get("state"))
        )
        for name, state in series
    }
    assert found == {"schedo_queue_waiting_jobs": 2, "schedo_queue_running_jobs": 0}


def test_prometheus_reads_the_metrics_with_the_viewers_token() -> None:
    objects = render(EVERYTHING)
    [endpoint] = objects["ServiceMonitor", "schedo"]["spec"]["endpoints"]
    key = endpoint["authorization"]["credentials"]

    assert endpoint["path"] in {operation.path for operation in OPERATIONS}
    assert key["key"] in objects["Secret", key["name"]]["stringData"]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"server": {"replicas": 3}}, "/server/replicas"),
        ({"store": "mysql://db/schedo"}, "/store"),
        ({"worker": {"slots": 0}}, "/worker/slots"),
        ({"worker": {"slots": "many"}}, "/worker/slots"),
        ({"worker": {"app": "my app"}}, "/worker/app"),
        ({"server": {"settings": {"Allow-Shell": True}}}, "Allow-Shell"),
        ({"server": {"persistence": {"size": "big"}}}, "/server/persistence/size"),
        ({"ingress": {"enabled": True}}, "/ingress/host"),
        ({"service": {"port": 70_000}}, "/service/port"),
        ({"wroker": {}}, "wroker"),
    ],
)
def test_a_bad_value_is_refused_with_the_name_of_its_field(
    values: dict[str, Any], field: str
) -> None:
    with pytest.raises(load("helm_python").HelmValuesError, match=re.escape(field)):
        render(values)


def test_every_value_has_a_rule() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    assert list(missing_rules(values, schema)) == []
    render(values)


def missing_rules(values: dict[str, Any], schema: dict[str, Any], at: str = "") -> Iterator[str]:
    """Yield the values that the schema does not name."""
    for key, value in values.items():
        rule = schema.get("properties", {}).get(key)
        if rule is None:
            yield f"{at}/{key}"
        elif isinstance(value, dict) and "properties" in rule:
            yield from missing_rules(value, rule, f"{at}/{key}")

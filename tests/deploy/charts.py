"""The Helm chart as Helm renders it, and the values with which the tests render it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
import yaml

from tests.sources import ROOT

CHART = ROOT / "deploy" / "helm" / "schedo"

SQLITE: dict[str, Any] = {}
POSTGRES: dict[str, Any] = {
    "store": "postgresql://schedo:secret@db/schedo",
    "server": {"replicas": 3, "settings": {"retention.completed": "7d", "concurrency": 10_000}},
}
EVERYTHING = {
    "server": {
        "settings": {"allow_shell": True, "allowed_hosts": ["a.example", "b.example"]},
        "persistence": {"storageClassName": "fast"},
        "nodeSelector": {"disk": "local"},
        "podAnnotations": {"a": "b"},
    },
    "imagePullSecrets": [{"name": "registry"}],
    "worker": {
        "image": {"repository": "example.org/app", "tag": "7"},
        "app": "myapp:app",
        "queues": ["mail", "sms"],
        "labels": {"gpu": "a100"},
        "allowShell": True,
        "extraArgs": ["--resource=cpu=4"],
        "env": [{"name": "PGHOST", "value": "db"}],
        "autoscaling": {"enabled": True, "jobsPerPod": 40},
        "podAnnotations": {"a": "b"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    },
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "host": "ops.example.org",
        "path": "/schedo",
        "tlsSecret": "ops-tls",
        "annotations": {"nginx.ingress.kubernetes.io/proxy-buffering": "off"},
    },
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "service": {"grpcPort": 9090},
    "tls": {"secret": "schedo-tls"},
}
CASES = {"sqlite": SQLITE, "postgresql": POSTGRES, "everything": EVERYTHING}
Objects = dict[tuple[str, str], dict[str, Any]]


def skip_without_helm(capsys: pytest.CaptureFixture[str]) -> None:
    """Skip the test loudly where Helm and the schemas do not come with the environment."""
    missing = [name for name in ("helm_python", "kubernetes_validate") if find_spec(name) is None]
    if missing:
        with capsys.disabled():
            print(f"\nNOT TESTED: deploy/helm, because there is no {' and no '.join(missing)}")
        pytest.skip(f"there is no {missing}")


def load(name: str) -> Any:
    """Import a module that is not on every machine."""
    return import_module(name)


def render(values: dict[str, Any], name: str = "schedo") -> Objects:
    """Return the objects of a release, by kind and name."""
    with load("helm_python").Chart.load(CHART) as chart:
        chart.validate_schema(values)
        texts = chart.render(values, name=name, namespace="ops")
    objects = [
        each
        for path, text in texts.items()
        if path.endswith(".yaml")
        for each in yaml.safe_load_all(text)
        if each is not None
    ]
    found = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    assert len(found) == len(objects)
    return found


def pods(objects: Objects) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each template of pods, with its only container."""
    for (kind, _), each in objects.items():
        if kind in ("StatefulSet", "Deployment"):
            spec = each["spec"]["template"]["spec"]
            [container] = spec["containers"]
            yield spec, container


def server_of(objects: Objects) -> dict[str, Any]:
    [(_, container)] = [pair for pair in pods(objects) if pair[1]["name"] == "server"]
    return container


def variables(container: dict[str, Any]) -> dict[str, str]:
    """Return the variables of a container with a value in the chart, as in the first pod."""
    values = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    return {name: text.replace("$(POD_NAME)", "schedo-0") for name, text in values.items()}

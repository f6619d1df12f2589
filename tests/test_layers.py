"""Imports point down, the core is pure, and there is no import cycle."""

from __future__ import annotations

import ast
import sys
from graphlib import CycleError, TopologicalSorter

from tests.sources import Source, listed, schedo_imports, sources

# Highest first. A module imports its own part and the parts of any lower row: never a higher row,
# never another part of its own row. A part is the first name below `schedo`; "" is the package.
LAYERS = (
    ("__main__",),
    ("cli", "health", "testing"),
    ("serve",),
    ("grpc", "cluster"),
    ("web", "worker", "handover", "telemetry"),
    ("tasks", "client"),
    ("engine", "protocol"),
    ("store", "clock", "virtual_clock", "logs"),
    ("core",),
    (
        "descriptors",
        "errors",
        "garbage",
        "log_format",
        "hardening",
        "child_process",
        "left_sockets",
        "silence_timer",
        "loops",
        "program",
        "suggestions",
        "trace_context",
        "version",
    ),
)
# These modules are the composition root; they count as one part.
COMPOSITION = dict.fromkeys(
    (
        *("", "app", "config", "config_checks", "reload", "server", "setting_table"),
        *("setting_values", "startup_text", "systemd"),
    ),
    "serve",
)

OUTSIDE_FOR_CORE = {"msgspec", "cronsim", "orjson"}
# fmt: off
NOT_FOR_CORE = {
    "asyncio", "concurrent", "ctypes", "http", "io", "logging", "multiprocessing", "os", "pathlib",
    "random", "secrets", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess",
    "tempfile", "threading", "time", "urllib", "uuid",
}
# fmt: on
# Any thread may arm the timers, so the core may use a lock, but nothing else of threading.
ALLOWED_IN_CORE = {("schedo.core.timers", "threading", "Lock")}

CONTRACT = "schedo.tasks.runner"


def part(module: str) -> str:
    name = [*module.split("."), ""][1]
    return COMPOSITION.get(name, name)


def row(module: str) -> int | None:
    return next((number for number, parts in enumerate(LAYERS) if part(module) in parts), None)


def may_import(importer: str, imported: str) -> bool:
    own, other = row(importer), row(imported)
    return part(importer) == part(imported) or (
        own is not None and other is not None and own < other
    )


def test_every_module_belongs_to_a_layer() -> None:
    findings = [source.at(1) for source in sources("schedo") if row(source.name) is None]

    assert not findings, listed(findings)


def test_imports_point_down() -> None:
    findings = [
        f"{source.at(imported.line)} {source.name} imports {target}"
        for source in sources("schedo")
        for target, imported in schedo_imports(source)
        if not may_import(source.name, target)
    ]

    assert not findings, listed(findings)


def test_the_core_imports_nothing_with_side_effects() -> None:
    findings = [
        f"{source.at(imported.line)} imports {imported.module} {imported.name}"
        for source in sources("schedo")
        if part(source.name) == "core"
        for imported in source.imports()
        if not is_pure(source, imported.module, imported.name)
    ]

    assert not findings, listed(findings)


def is_pure(source: Source, module: str, name: str) -> bool:
    root = module.split(".")[0]
    if (source.name, module, name) in ALLOWED_IN_CORE or root == "schedo":
        return True
    return root in OUTSIDE_FOR_CORE or (
        root in sys.stdlib_module_names and root not in NOT_FOR_CORE
    )


def test_the_core_never_reads_a_clock_through_datetime() -> None:
    findings = [
        f"{source.at(node.lineno)} calls {ast.unparse(node)}"
        for source in sources("schedo")
        if part(source.name) == "core"
        for node in source.nodes
        if isinstance(node, ast.Attribute) and node.attr in {"now", "utcnow", "today"}
        if ast.unparse(node.value).split(".")[-1] in {"datetime", "date"}
    ]

    assert not findings, listed(findings)


def test_the_runner_contract_imports_only_leases_and_progress() -> None:
    (contract,) = (source for source in sources("schedo") if source.name == CONTRACT)

    needed = {target for target, _ in schedo_imports(contract)}
    assert needed == {"schedo.core.leases", "schedo.tasks.progress"}


def test_no_store_imports_another_one() -> None:
    """What they share is in the modules of schedo.store itself."""
    findings = [
        f"{source.at(imported.line)} {source.name} imports {target}"
        for source in sources("schedo")
        for target, imported in schedo_imports(source)
        if len({database(source.name), database(target)} - {""}) > 1
    ]

    assert not findings, listed(findings)


def database(module: str) -> str:
    """Return the database of a module of a store; "" for any other module."""
    package, _, rest = module.partition("schedo.store.")
    name, _, inner = rest.partition(".")
    return "" if package or not inner else name


def test_there_is_no_import_cycle() -> None:
    imports = {
        source.name: {
            target
            for target, imported in schedo_imports(source)
            if not imported.only_for_types and target != source.name
        }
        for source in sources("schedo")
    }

    circle = None
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        circle = " -> ".join(error.args[1])
    assert circle is None

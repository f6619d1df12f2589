"""The rules of this project that a machine can check. Each test lists all its findings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from schedo.core.built_in import BUILT_IN
from tests.sources import ROOT, Source, listed, schedo_imports, sources

MOST_LINES_IN_MODULE = 400
MOST_LINES_IN_FUNCTION = 60

NOT_IN_TESTS = {
    "time.sleep": "sleeps",
    "asyncio.sleep": "sleeps",
    "time.time": "reads the wall clock",
    "time.time_ns": "reads the wall clock",
    "datetime.now": "reads the wall clock",
    "datetime.utcnow": "reads the wall clock",
    "datetime.today": "reads the wall clock",
    "date.today": "reads the wall clock",
    "unittest.mock": "replaces the code under test; write a fake",
}

LAST_PARTS = {name.rpartition(".")[2] for name in NOT_IN_TESTS}

# Modules that no other module imports: programs, child processes and a health check run them.
ENTRY_POINTS = {
    "schedo",
    "schedo.__main__",
    "schedo.health",
    "schedo.protocol.openapi",
    "schedo.testing.pytest_plugin",
    "schedo.worker.process.child",
}

# The addresses are split, because this test also reads its own source.
REGISTRIES = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("hosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("crates", "io"),
        ("rubygems", "org"),
        ("golang", "org"),
    )
)
# fmt: off
TEXT_ENDINGS = {
    ".py", ".md", ".toml", ".txt", ".cfg", ".ini", ".sql", ".html", ".css", ".js", ".json", ".yaml",
    ".yml", ".sh", ".go", ".spec", ".tpl", ".service", ".socket",
}
IN_THE_PACKAGE = {
    ".py", ".sql", ".html", ".css", ".js", ".json", ".svg", ".txt", ".typed", ".proto", ".pyi",
}
# fmt: on
TEXT_NAMES = {"Makefile", "Dockerfile", "LICENSE", "run", ".gitignore", ".dockerignore"}
TEXT_FOLDERS = (".ci", "bench", "deploy", "docs", "requirements", "schedo", "tests")


def python_files() -> Iterator[Source]:
    return chain(sources("schedo"), sources("tests"), sources("bench"))


def text_files() -> Iterator[Path]:
    inside = (path for folder in TEXT_FOLDERS for path in (ROOT / folder).rglob("*"))
    for path in sorted(chain(ROOT.iterdir(), inside)):
        if path.is_file() and (path.suffix in TEXT_ENDINGS or path.name in TEXT_NAMES):
            yield path


def functions(source: Source) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_no_test_sleeps_or_reads_the_wall_clock() -> None:
    findings = [
        finding
        for source in sources("tests")
        if not source.name.startswith("tests.e2e")
        for finding in waits_and_clocks(source)
    ]

    assert not findings, listed(findings)


def waits_and_clocks(source: Source) -> Iterator[str]:
    for imported in source.imports():
        for name in (imported.module, f"{imported.module}.{imported.name}"):
            if name in NOT_IN_TESTS:
                yield f"{source.at(imported.line)} {name} {NOT_IN_TESTS[name]}"
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and node.attr in LAST_PARTS:
            name = ".".join(ast.unparse(node).split(".")[-2:])
            if name in NOT_IN_TESTS:
                yield f"{source.at(node.lineno)} {name} {NOT_IN_TESTS[name]}"


def test_every_test_folder_is_a_package() -> None:
    findings = sorted(
        str(folder.relative_to(ROOT))
        for folder in {source.path.parent for source in sources("tests")}
        if not (folder / "__init__.py").exists()
    )

    assert not findings, listed(findings)


def test_the_package_has_only_files_of_known_kinds() -> None:
    files = (path for path in (ROOT / "schedo").rglob("*") if path.is_file())
    findings = sorted(
        str(path.relative_to(ROOT))
        for path in files
        if path.suffix not in IN_THE_PACKAGE and path.parent.name != "__pycache__"
    )

    assert not findings, listed(findings)


def test_no_module_is_too_long() -> None:
    findings = [
        f"{source.at(1)} has {lines} lines"
        for source in python_files()
        if (lines := len(source.text.splitlines())) > MOST_LINES_IN_MODULE
    ]

    assert not findings, listed(findings)


def test_no_function_is_too_long() -> None:
    findings = [
        f"{source.at(function.lineno)} {function.name} has {lines} lines"
        for source in python_files()
        for function in functions(source)
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > MOST_LINES_IN_FUNCTION
    ]

    assert not findings, listed(findings)


def test_every_module_has_a_docstring_that_names_its_subject() -> None:
    findings = [
        source.at(1)
        for source in python_files()
        if source.text.strip() and not ast.get_docstring(source.tree)
    ]

    assert not findings, listed(findings)


def test_every_module_is_used() -> None:
    # The commands' modules are imported by name, from strings such as "package.module:name".
    used = ENTRY_POINTS | {
        name
        for source in sources("schedo")
        for name in chain(
            (target for target, _ in schedo_imports(source) if target != source.name),
            (text.partition(":")[0] for text in source.strings() if text.startswith("schedo.")),
        )
    }
    used |= {f"schedo.tasks.{name}.task" for name in BUILT_IN}  # loaded by tasks/built_in.py
    # Modules of schedo.testing are made for tests, so it is enough that a test imports them.
    used |= {target for source in sources("tests") for target, _ in schedo_imports(source)} & {
        source.name for source in sources("schedo/testing")
    }
    findings = [
        f"{source.at(1)} no module imports {source.name}"
        for source in sources("schedo")
        if source.name not in used and source.path.name != "__init__.py"
    ]

    assert not findings, listed(findings)


def test_no_file_names_a_package_registry() -> None:
    findings = [
        f"{path.relative_to(ROOT)}:{number} names {registry}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for registry in REGISTRIES
        if registry in line
    ]

    assert not findings, listed(findings)


def test_the_pinned_requirements_hold_no_address() -> None:
    findings = [
        f"{path.name}:{number} {line.strip()}"
        for path in sorted((ROOT / "requirements").glob("*.txt"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if "://" in line or line.startswith("--") or " @ " in line
    ]

    assert not findings, listed(findings)

"""The parsed source files of the project, for the tests of layers, tidiness and words."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Import(NamedTuple):
    """One imported name: `from a import b` is ("a", "b"), `import a.b` is ("a.b", "")."""

    module: str
    name: str
    line: int
    only_for_types: bool


@dataclass(frozen=True)
class Source:
    """One Python file; `name` is its dotted module name."""

    path: Path
    name: str

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        gc.disable()  # trees have no garbage, and collecting among them takes most of the time
        try:
            return ast.parse(self.text)
        finally:
            gc.enable()

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree."""
        found = tuple(ast.walk(self.tree))
        gc.freeze()  # they live as long as the tests, and no collection needs to look at them
        return found

    def at(self, line: int) -> str:
        """Return where this is, as an editor can open it."""
        return f"{self.path.relative_to(ROOT)}:{line}"

    def imports(self) -> Iterator[Import]:
        """Yield what this file imports, at the top or inside a function."""
        for_types = {
            id(node)
            for block in self.nodes
            if isinstance(block, ast.If) and ast.unparse(block.test).endswith("TYPE_CHECKING")
            for statement in block.body
            for node in ast.walk(statement)
        }
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(alias.name, "", node.lineno, id(node) in for_types)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    module = node.module or ""
                    yield Import(module, alias.name, node.lineno, id(node) in for_types)

    def strings(self) -> Iterator[str]:
        """Yield the text of every string constant."""
        for node in self.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


@cache
def sources(folder: str) -> tuple[Source, ...]:
    """Return every Python file under a top-level folder, in order."""
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found.append(Source(path, ".".join(parts[:-1] if parts[-1] == "__init__" else parts)))
    return tuple(found)


def schedo_imports(source: Source) -> Iterator[tuple[str, Import]]:
    """Yield each import of a schedo module with the module's full name.

    `from schedo.core import limits` names the module schedo.core.limits, not the package.
    """
    modules = {module.name for module in sources("schedo")}
    for imported in source.imports():
        whole = f"{imported.module}.{imported.name}"
        target = whole if whole in modules else imported.module
        if target.split(".")[0] == "schedo":
            yield target, imported


def listed(findings: list[str]) -> str:
    """Return all findings at once, one a line."""
    return f"{len(findings)} findings:\n" + "\n".join(findings)

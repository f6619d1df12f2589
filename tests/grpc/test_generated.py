"""The generated code is that of schedo.proto, made by the pinned generator."""

from __future__ import annotations

from pathlib import Path

from tests.grpc.generate import MADE, ROOT, generate


def test_the_generated_code_is_up_to_date(tmp_path: Path) -> None:
    generate(tmp_path)

    for made in MADE:
        assert made.read_text() == (tmp_path / made.relative_to(ROOT)).read_text(), "make proto"

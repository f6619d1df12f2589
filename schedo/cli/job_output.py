"""What commands wrote, given back: as it was into a file or pipe, made safe on a terminal."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterable
from typing import IO

import click

from schedo.cli.escapes import escape
from schedo.client.messages import Record


def write_outputs(outputs: Iterable[Record], *, is_raw: bool = False) -> None:
    """Write each stream to the one of the same name; an http body counts as stdout."""
    for output in outputs:
        is_error = output["stream"] == "stderr"
        target = sys.stderr if is_error else sys.stdout
        _write(output, target, is_raw or not target.isatty())
        if output.get("truncated"):
            size = output["total_bytes"]
            click.echo(
                f"schedo: {output['stream']} had {size} bytes; its middle was not kept", err=True
            )


def _write(output: Record, target: IO[str], is_plain: bool) -> None:
    if is_plain:
        click.echo(read_bytes(output), file=target, nl=False)
    else:
        click.echo(escape(output["text"], keep="\n\t"), file=target, nl=False)


def read_bytes(output: Record) -> bytes:
    """Return what was kept of a stream, byte for byte."""
    if output.get("encoding") == "base64":
        return base64.b64decode(output["base64"])
    return str(output["text"]).encode()


def latest_attempt(outputs: Iterable[Record]) -> list[Record]:
    """Return the outputs of the last attempt that wrote something."""
    listed = list(outputs)
    last = max((output["attempt"] for output in listed), default=0)
    return [output for output in listed if output["attempt"] == last]

"""Writes the output of jobs: unchanged to a file or a pipe, escaped to a terminal."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterable
from typing import IO

import click

from schedo.cli.escapes import escape
from schedo.client.messages import Record


def write_outputs(outputs: Iterable[Record], *, is_raw: bool = False) -> None:
    """Write each stream to the stream of the same name; an http body goes to stdout."""
    for output in outputs:
        write_output(output, is_raw=is_raw)


def write_output(output: Record, *, is_raw: bool = False) -> None:
    """Write one stream; a note on stderr says if its middle is missing."""
    target = sys.stderr if output["stream"] == "stderr" else sys.stdout
    _write(output, target, is_raw or not target.isatty())
    if output.get("truncated"):
        size = output["total_bytes"]
        click.echo(
            f"schedo: {output['stream']} was {size} bytes long; its middle was not stored",
            err=True,
        )


def _write(output: Record, target: IO[str], is_plain: bool) -> None:
    if is_plain:
        click.echo(read_bytes(output), file=target, nl=False)
    else:
        click.echo(escape(output["text"], keep="\n\t"), file=target, nl=False)


def read_bytes(output: Record) -> bytes:
    """Return the stored bytes of a stream."""
    if output.get("encoding") == "base64":
        return base64.b64decode(output["base64"])
    return str(output["text"]).encode()


def latest_attempt(outputs: Iterable[Record]) -> list[Record]:
    """Return the outputs of the last attempt that has any."""
    listed = list(outputs)
    last = max((output["attempt"] for output in listed), default=0)
    return [output for output in listed if output["attempt"] == last]

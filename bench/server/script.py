"""What the scripts share: options, figures with their floors, and how both are printed."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from bench.server.evidence import NotDone


class Figure(NamedTuple):
    """One measured value, and the least or the most there could be."""

    what: str
    value: float
    unit: str  # "us", "s", "/s", "bytes" or "count"
    floor: float | None = None
    floor_what: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times its floor the figure is."""
        return self.value / self.floor if self.floor else None


@dataclass
class Results:
    """What a script found; a figure is shown as soon as it is there."""

    is_quiet: bool = False
    figures: list[Figure] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)

    def add(
        self,
        what: str,
        value: float,
        unit: str,
        floor: float | None = None,
        floor_what: str = "",
    ) -> None:
        """Note a figure."""
        figure = Figure(what, value, unit, floor, floor_what)
        self.figures.append(figure)
        if not self.is_quiet:
            print(render_figure(figure), flush=True)

    def check(self, sentence: str) -> None:
        """Note that something was proven."""
        self.checks.append(sentence)
        if not self.is_quiet:
            print(f"    checked: {sentence}", flush=True)


def render_value(value: float, unit: str) -> str:
    """Return a value with three digits that count."""
    if unit == "us":
        if value >= 1_000_000:
            return f"{value / 1_000_000:.2f} s"
        return f"{value / 1000:.1f} ms" if value >= 10_000 else f"{value:.0f} us"
    if unit == "s":
        return f"{value * 1000:.0f} ms" if value < 10 else f"{value:.1f} s"
    if unit == "bytes":
        return f"{value / 1_000_000:.1f} MB"
    return f"{value:,.0f}{'/s' if unit == '/s' else ''}"


def render_figure(figure: Figure) -> str:
    """Return one line."""
    line = f"{figure.what:<66} {render_value(figure.value, figure.unit):>11}"
    if figure.floor and figure.ratio is not None:
        floor = f"{figure.floor_what} {render_value(figure.floor, figure.unit)}"
        line += f"   {figure.ratio:6.2f} x {floor}"
    return line


def positive(text: str) -> int:
    """Read a whole number from 1 on."""
    return _read_number(text, 1)


def positive_numbers(text: str) -> list[int]:
    """Read "100,1000" or "100 1000", each from 1 on."""
    return _read_numbers(text, 1)


def whole_numbers(text: str) -> list[int]:
    """Read "0,1000" or "0 1000", each from 0 on."""
    return _read_numbers(text, 0)


def _read_numbers(text: str, least: int) -> list[int]:
    numbers = [_read_number(word, least) for word in text.replace(",", " ").split()]
    if not numbers:
        raise argparse.ArgumentTypeError("give at least one number")
    return [*dict.fromkeys(numbers)]  # each has a place of its own, so none comes twice


def _read_number(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < least:
        raise argparse.ArgumentTypeError(f"{text} is less than {least}")
    return number


def _directory(text: str) -> str:
    if not os.path.isdir(text) or not os.access(text, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f"{text!r} is not a directory to write in")
    return text


Measure = Callable[[argparse.Namespace, Path, Results], None]


class Option(NamedTuple):
    """An option of a script with its default, and the one for --quick."""

    name: str
    default: object
    quick: object
    help: str
    read: Callable[[str], object] = positive


def run_script(doc: str, measure: Measure, options: Iterable[Option] = ()) -> None:
    """Read the options, measure in a fresh directory, print; exit 1 if work was not done."""
    known = list(options)
    arguments = _parse(doc, known, sys.argv[1:])
    _take_signals()
    results = Results(is_quiet=arguments.json)
    error: str | None = None
    try:
        with tempfile.TemporaryDirectory(prefix="schedo-bench-", dir=arguments.directory) as name:
            measure(arguments, Path(name), results)
    except NotDone as reason:
        error = str(reason)
    except KeyboardInterrupt:
        error = "interrupted"
    if arguments.json:
        answer = {
            "command": shlex.join(["python", "-m", _module_name(), *sys.argv[1:]]),
            "figures": [figure._asdict() for figure in results.figures],
            "checks": results.checks,
            "error": error,
        }
        print(json.dumps(answer, indent=1))
    if error:
        sys.exit(f"not done: {error}")


def _take_signals() -> None:
    """Let SIGTERM end the script as Ctrl-C does: its server and its files go on the way out.

    asyncio cancels what runs in its loop; an exception that was raised in there could come in the
    middle of a turn of the engine, and closing that would wait for ever.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # some shells have it ignored
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)


def _module_name() -> str:
    spec = sys.modules["__main__"].__spec__
    return spec.name if spec else sys.argv[0]


def _parse(doc: str, options: Sequence[Option], words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that it works")
    parser.add_argument(
        "--directory", type=_directory, help="where the store's file is made; default: TMPDIR"
    )
    for option in options:
        text = f"{option.help} (default {option.default}; quick {option.quick})"
        parser.add_argument(f"--{option.name}", type=option.read, help=text)
    arguments = parser.parse_args(words)
    for option in options:
        key = option.name.replace("-", "_")
        if getattr(arguments, key) is None:
            default = option.quick if arguments.quick else option.default
            read = option.read(default) if isinstance(default, str) else default
            setattr(arguments, key, read)
    return arguments

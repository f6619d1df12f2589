"""The command line of the scripts: options, figures with their floors, and printing."""

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
    """A measured value with its floor."""

    what: str
    value: float
    unit: str  # "us", "s", "/s", "bytes", "share" or "count"
    floor: float | None = None
    floor_what: str = ""

    @property
    def ratio(self) -> float | None:
        """The value divided by its floor."""
        return self.value / self.floor if self.floor else None


@dataclass
class Results:
    """The results of a script; each figure is printed as soon as it is known."""

    is_quiet: bool = False
    figures: list[Figure] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(
        self,
        what: str,
        value: float,
        unit: str,
        floor: float | None = None,
        floor_what: str = "",
    ) -> None:
        """Add a figure, and print it."""
        figure = Figure(what, value, unit, floor, floor_what)
        self.figures.append(figure)
        if not self.is_quiet:
            print(render_figure(figure), flush=True)

    def check(self, sentence: str) -> None:
        """Add a sentence about a check that succeeded, and print it."""
        self.checks.append(sentence)
        if not self.is_quiet:
            print(f"    checked: {sentence}", flush=True)

    def note(self, sentence: str) -> None:
        """Add a sentence about how the figures came about, and print it."""
        self.notes.append(sentence)
        if not self.is_quiet:
            print(f"    {sentence}", flush=True)


def render_value(value: float, unit: str) -> str:
    """Return the value with about three significant digits."""
    if unit == "us":
        if value >= 1_000_000:
            return f"{value / 1_000_000:.2f} s"
        return f"{value / 1000:.1f} ms" if value >= 10_000 else f"{value:.0f} us"
    if unit == "s":
        return f"{value * 1000:.0f} ms" if value < 10 else f"{value:.1f} s"
    if unit == "bytes":
        return f"{value / 1_000_000:.1f} MB" if value >= 1_000_000 else f"{value / 1000:.1f} kB"
    if unit == "share":
        return f"{value:.1%}"
    return f"{value:,.0f}{'/s' if unit == '/s' else ''}"


def render_figure(figure: Figure) -> str:
    """Return the figure as one line of text."""
    line = f"{figure.what:<66} {render_value(figure.value, figure.unit):>11}"
    if figure.floor and figure.ratio is not None:
        floor = f"{figure.floor_what} {render_value(figure.floor, figure.unit)}"
        line += f"   {figure.ratio:6.2f} x {floor}"
    return line


def positive(text: str) -> int:
    """Parse a whole number of at least 1."""
    return _read_number(text, 1)


def positive_numbers(text: str) -> list[int]:
    """Parse a list such as "100,1000" or "100 1000" of numbers of at least 1."""
    return _read_numbers(text, 1)


def whole_numbers(text: str) -> list[int]:
    """Parse a list such as "0,1000" or "0 1000" of numbers of at least 0."""
    return _read_numbers(text, 0)


def _read_numbers(text: str, least: int) -> list[int]:
    numbers = [_read_number(word, least) for word in text.replace(",", " ").split()]
    if not numbers:
        raise argparse.ArgumentTypeError("give at least one number")
    return [*dict.fromkeys(numbers)]  # without duplicates


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
    """An option of a script, with its default and the default of --quick."""

    name: str
    default: object
    quick: object
    help: str
    read: Callable[[str], object] = positive


def run_script(doc: str, measure: Measure, options: Iterable[Option] = ()) -> None:
    """Parse the options, measure in a new directory and print; exit with 1 if work was not done."""
    known = list(options)
    arguments = _parse(doc, known, sys.argv[1:])
    _handle_signals()
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
            "notes": results.notes,
            "error": error,
        }
        print(json.dumps(answer, indent=1))
    if error:
        sys.exit(f"not done: {error}")


def _handle_signals() -> None:
    """Let SIGTERM end the script as Ctrl-C does, so that its server and files are removed.

    On SIGINT, asyncio cancels the main task. An exception raised directly in the loop could
    interrupt a turn of the engine, and closing the engine would then hang.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # some shells start it ignored
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

"""The command `headwater`."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

from headwater import references as _lookup
from headwater._log import commands as checkpoint
from headwater._version import __version__
from headwater.cli import sim
from headwater.cli.errors import format_error
from headwater.errors import HeadwaterError
from headwater.registry import is_class, registered, secrets_of
from headwater.source import signature_of
from headwater.spark import doctor
from headwater.spark.jar import verified_jar

__all__ = ["main"]

_INTERRUPTED = 130  # as shells have it for Ctrl-C
_TARGET = "NAME of a built-in source, or MODULE:NAME; MODULE is a dotted name or the path of a .py file"


class _ReaderGone(BaseException):
    """Who read what is printed has gone, as `head` does."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0 when all is well."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a console that lacks the arrow still gets the report
    try:
        given = _parser().parse_args(arguments)
        return int(given.run(given))
    except Exception as error:
        return _failed(error)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except _ReaderGone:
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headwater", description="Sources for Spark Structured Streaming.")
    parser.add_argument("--version", action="version", version=f"headwater {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    listing = commands.add_parser("list", help="list the built-in sources, and those of modules")
    listing.add_argument("modules", nargs="*", metavar="MODULE", help="a dotted name or a .py file to import")
    listing.set_defaults(run=_list)

    describe = commands.add_parser("describe", help="show all that is known of a source")
    describe.add_argument("source", help=_TARGET)
    describe.set_defaults(run=_describe)

    peek = commands.add_parser("peek", help="show the first rows of a source, without Spark")
    peek.add_argument("source", help=_TARGET)
    peek.add_argument("-n", default="10", metavar="ROWS", help="how many (default 10)")
    peek.add_argument(
        "-o", dest="options", action="append", default=[], metavar="KEY=VALUE", help="an option of the source"
    )
    peek.add_argument("--json", action="store_true", help="one JSON object per line, each as it comes")
    peek.set_defaults(run=_peek)

    checkpoint.add_to(commands, _say)
    sim.add_to(commands, _say)

    jar = commands.add_parser(
        "jar", help='print the path of the jar, for spark-submit --jars "$(headwater jar)"'
    )
    jar.set_defaults(run=_jar)
    checks = commands.add_parser("doctor", help="check that Java, Spark, Python and the jar fit together")
    checks.set_defaults(run=_examine)
    return parser


def _list(given: argparse.Namespace) -> int:
    from headwater.cli.peek import aligned

    for module in given.modules:
        _lookup.imported(module)
    rows = [
        (found.name, found.schema or "depends on its options", found.doc.partition("\n")[0])
        for found in registered()
    ]
    _say(aligned(("source", "schema", "description"), rows))
    return 0


def _describe(given: argparse.Namespace) -> int:
    found = _lookup.find(given.source)
    listed = _lookup.described(found)
    facts = {
        "schema": [listed.schema or "depends on its options"],
        "options": [option.text for option in listed.options] or ["none"],
        "resumable": [_lookup.resumes(listed)],
        "defined in": [_lookup.place(found)],
    }
    _say([listed.name, "", *([*listed.doc.splitlines(), ""] if listed.doc else [])])
    for what, lines in facts.items():
        _say(f"{label:<11} {line}" for label, line in zip([what] + [""] * len(lines), lines, strict=False))
    return 0


def _peek(given: argparse.Namespace) -> int:
    from headwater.cli.peek import aligned, columns, first_rows

    limit = _count(given.n)
    cls = _lookup.find(given.source)
    if not is_class(cls):
        name = cls.registered.name
        raise HeadwaterError(
            f"the rows of source '{name}' are made in Spark's JVM, so without Spark there are none to show",
            f"look at them in Spark, as with hw.stream(hw.session(), {name}(…)), or see: headwater describe "
            f"{name}",
        )
    source = cls(**signature_of(cls).parse(_options(given.options)))
    names, rows = columns(source), list[Sequence[Any]]()
    ascii_only = (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8")
    try:
        with closing(first_rows(source, limit)) as coming:  # type: ignore[type-var]
            for row in coming:
                rows.append(row)
                if given.json:
                    _say([json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=ascii_only)])
        failure: BaseException | None = None
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        failure = error
    if not given.json and (rows or failure is None):
        _say(aligned(names, rows))
    if isinstance(failure, KeyboardInterrupt):
        return _INTERRUPTED
    if failure is not None:
        return _failed(failure, secrets_of(source), f"{source!r}: ")
    if len(rows) < limit:
        _complain(f"{source!r} ended after {len(rows)} row{'s' if len(rows) != 1 else ''}")
    return 0


def _options(written: Iterable[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for text in written:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise HeadwaterError("an option after -o is not of the form KEY=VALUE", "write -o length=8")
        if key in options:
            raise HeadwaterError(f"option '{key}' is given twice", f"keep one -o {key}=…")
        options[key] = value
    return options


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise HeadwaterError(f"-n is '{text}', it must be a whole number from 1", "write -n 10, for instance")
    return int(text)


def _jar(given: argparse.Namespace) -> int:
    print(verified_jar())
    return 0


def _examine(given: argparse.Namespace) -> int:
    failures = 0
    for finding in doctor.examine():
        print(finding, flush=True)
        failures += not finding.ok
    return min(failures, 1)


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        try:
            print(line.rstrip(), flush=True)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python still flushes
            raise _ReaderGone from None


def _complain(text: str) -> None:
    print(f"headwater: {text}", file=sys.stderr)


def _failed(error: BaseException, secrets: Sequence[str] = (), of: str = "") -> int:
    """An author's error is told with its traceback, ours in a line; a bug of ours as Python does it."""
    text = format_error(error, secrets)
    if text is None:
        raise error
    if "\n" in text:
        print(text, file=sys.stderr)
    else:
        _complain(of + text)
    return 1

"""The `headwater` command: its arguments, and the commands that are a few lines long."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing, nullcontext
from typing import Any

from headwater import references
from headwater._version import __version__
from headwater.cli import checkpoint, sim
from headwater.cli.errors import format_error
from headwater.cli.output import OutputClosed, print_error, print_lines, print_message, waiting
from headwater.cli.tables import format_table
from headwater.errors import HeadwaterError
from headwater.plugins import plugins
from headwater.registry import Registered, describe, is_class, name_of, registered, secrets_of
from headwater.spark import doctor
from headwater.spark.jar import verified_jar
from headwater.spark.placeholder import without_spark

__all__ = ["main"]

_INTERRUPTED = 130  # the exit status of shells after Ctrl-C
_REFERENCE = (
    "NAME of a source, MODULE:NAME, or a URI such as sse+https://host/path; MODULE is a dotted name or the "
    "path of a .py file, which suffices if the file has one source; ?OPTION=VALUE&… sets options"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; the exit status is 0 if it succeeds."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a console without the arrow still gets the report
    try:
        args = _parser().parse_args(arguments)
        return int(args.run(args))
    except Exception as error:
        return _print_failure(error)
    except KeyboardInterrupt:
        return _print_interrupted()
    except OutputClosed:
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headwater", description="Sources for Spark Structured Streaming.")
    parser.add_argument("--version", action="version", version=f"headwater {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    list_parser = commands.add_parser(
        "list", help="list the built-in sources, plugins, and the sources of modules"
    )
    list_parser.add_argument(
        "modules", nargs="*", metavar="MODULE", help="a dotted name or a .py file to import"
    )
    list_parser.set_defaults(run=_list)

    describe_parser = commands.add_parser(
        "describe", help="show schema, options and documentation of a source"
    )
    describe_parser.add_argument("source", help=_REFERENCE)
    describe_parser.set_defaults(run=_describe)

    peek_parser = commands.add_parser("peek", help="show the first rows of a source, without Spark")
    peek_parser.add_argument("source", help=_REFERENCE)
    peek_parser.add_argument("-n", default="10", metavar="ROWS", help="number of rows (default 10)")
    peek_parser.add_argument(
        "-o", dest="options", action="append", default=[], metavar="KEY=VALUE", help="an option of the source"
    )
    peek_parser.add_argument("--json", action="store_true", help="print each row at once, as a JSON object")
    peek_parser.set_defaults(run=_peek)

    checkpoint.add_to(commands)
    sim.add_to(commands)

    jar_parser = commands.add_parser(
        "jar", help='print the path of the jar, for spark-submit --jars "$(headwater jar)"'
    )
    jar_parser.set_defaults(run=_jar)

    doctor_parser = commands.add_parser(
        "doctor", help="check that Java, Spark, Python and the jar fit together"
    )
    doctor_parser.set_defaults(run=_doctor)
    return parser


def _list(args: argparse.Namespace) -> int:
    for module in args.modules:
        with without_spark():
            imported = references.import_module(module)
        if imported.note is not None:
            print_error(f"{module}: {imported.note}")
    rows = [
        (source.name, source.schema or "depends on its options", source.doc.partition("\n")[0])
        for source in registered()
    ]
    known = {name.lower() for name, *_ in rows}
    rows += [
        (plugin.name, "not loaded", f"{plugin.place}, a plugin of {plugin.package}")
        for plugin in plugins()
        if plugin.name.lower() not in known
    ]
    print_lines(format_table(("source", "schema", "description"), sorted(rows)))
    return 0


def _describe(args: argparse.Namespace) -> int:
    source = _resolve(args.source).source
    entry = describe(source)
    sections = {
        "schema": [entry.schema or "depends on its options"],
        "options": [option.text for option in entry.options] or ["none"],
        "resumable": [_resumable(entry)],
        "defined in": [references.definition_place(source)],
    }
    print_lines([entry.name, "", *([*entry.doc.splitlines(), ""] if entry.doc else [])])
    for title, lines in sections.items():
        print_lines(
            f"{label:<11} {line}" for label, line in zip([title] + [""] * len(lines), lines, strict=False)
        )
    return 0


def _resolve(reference: str) -> references.Resolved:
    with without_spark():
        return references.resolve(reference)


def _resumable(entry: Registered) -> str:
    if entry.partitioned:
        return "yes, each partition resumes at its own offset"
    return "yes, it resumes after its last cursor" if entry.resumable else "no"


def _peek(args: argparse.Namespace) -> int:
    from headwater.cli.peek import binary_as_base64, binary_as_text, column_names, first_rows

    limit = _row_limit(args.n)
    resolved = _resolve(args.source)
    if not is_class(resolved.source):
        name = name_of(resolved.source)
        raise HeadwaterError(
            f"the rows of source '{name}' are made in Spark's JVM, so there are none to show without Spark",
            f"read it in Spark with hw.stream(hw.session(), {name}(…)), or run headwater describe {name}",
        )
    source = resolved.configured(_parse_options(args.options))
    names, rows = column_names(source), list[Sequence[Any]]()
    binary = binary_as_base64 if args.json else binary_as_text
    is_silent = not (args.json and sys.stdout.isatty())  # rows that come one by one show progress themselves
    failure: BaseException | None = None
    try:
        with (
            waiting(lambda: f"{len(rows)} of {limit} rows") if is_silent else nullcontext(),
            closing(first_rows(source, limit, binary)) as iterator,  # type: ignore[type-var]
        ):
            for row in iterator:
                rows.append(row)
                if args.json:
                    print_lines([_to_json(dict(zip(names, row, strict=True)))])
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        failure = error
    if not args.json and (rows or failure is None):
        print_lines(format_table(names, rows))
    if isinstance(failure, KeyboardInterrupt):
        return _print_interrupted()
    if failure is not None:
        return _print_failure(failure, secrets_of(source), f"{source!r}: ")
    if len(rows) < limit:
        print_error(f"{source!r} ended after {len(rows)} row{'s' if len(rows) != 1 else ''}")
    return 0


def _to_json(row: dict[str, Any]) -> str:
    """Characters that are not printable, or that the output cannot show, are escaped."""
    ascii_only = (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8")
    text = json.dumps(row, ensure_ascii=ascii_only)
    return (
        text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
    )


def _parse_options(pairs: Iterable[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise HeadwaterError("an option after -o is not of the form KEY=VALUE", "write -o length=8")
        if key in options:
            raise HeadwaterError(f"option '{key}' is set twice", f"keep one -o {key}=…")
        options[key] = value
    return options


def _row_limit(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise HeadwaterError(f"-n is '{text}', it must be an integer from 1", "write -n 10, for example")
    return int(text)


def _jar(args: argparse.Namespace) -> int:
    print_lines([str(verified_jar())])
    return 0


def _doctor(args: argparse.Namespace) -> int:
    failures = 0
    for result in doctor.run_checks(lambda: waiting(lambda: "starting Spark")):
        print_lines([str(result)])
        failures += not result.ok
    return min(failures, 1)


def _print_interrupted() -> int:
    print_error("interrupted")
    return _INTERRUPTED


def _print_failure(error: BaseException, secrets: Sequence[str] = (), prefix: str = "") -> int:
    """An error of the author's code is printed with its traceback, one of headwater's on a line."""
    text = format_error(error, secrets)
    if text is None:
        raise error  # a bug of headwater: Python prints the whole traceback
    if "\n" in text:
        print_message(text)
    else:
        print_error(prefix + text)
    return 1

"""The command `headwater`."""

import argparse
import io
import sys
from collections.abc import Sequence

from headwater._errors import HeadwaterError
from headwater._spark import doctor
from headwater._spark.jar import verified_jar
from headwater._version import __version__

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0 when all is well."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a console that lacks the arrow still gets the report
    command = _parser().parse_args(arguments).command
    return _jar() if command == "jar" else _examine()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headwater", description="Sources for Spark Structured Streaming.")
    parser.add_argument("--version", action="version", version=f"headwater {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    commands.add_parser("jar", help='print the path of the jar, for spark-submit --jars "$(headwater jar)"')
    commands.add_parser("doctor", help="check that Java, Spark, Python and the jar fit together")
    return parser


def _jar() -> int:
    try:
        print(verified_jar())
    except HeadwaterError as error:
        print(f"headwater: {error}", file=sys.stderr)
        return 1
    return 0


def _examine() -> int:
    failures = 0
    for finding in doctor.examine():
        print(finding, flush=True)
        failures += not finding.ok
    return min(failures, 1)

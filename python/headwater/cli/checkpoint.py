"""`headwater checkpoint`: shows and verifies the checkpoint of a query.

It runs in a JVM of its own, without Spark: the jar has the only reader of the log's format.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from headwater.cli.output import print_lines, print_message, waiting
from headwater.spark.jar import spark_home, usable_java, verified_jar

__all__ = ["add_to"]

_MAIN = "headwater.log.CheckpointTool"

# For a JVM that lives for a second: no time is spent on making it fast. And no output but the report.
_JVM_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Dlog4j2.level=OFF",
    "-Dlog4j2.statusLoggerLevel=OFF",
    "-Dlog4j2.configurationFactory=org.apache.logging.log4j.core.config.DefaultConfigurationFactory",
)

# Opened first: with a local path the other 250 jars are never opened.
_FIRST_JARS = ("scala-library-*", "jackson-*", "spark-sql_*", "spark-sql-api_*")


def add_to(commands: Any) -> None:
    """Adds the command to argparse's subparsers."""
    checkpoint = commands.add_parser("checkpoint", help="inspect the checkpoint of a query")
    verbs = checkpoint.add_subparsers(dest="verb", required=True, metavar="verb")
    for verb, about in (
        ("show", "show which rows of each source are in its log, and where Spark stands"),
        ("verify", "check every byte of the logs; exit status 1 if any is damaged"),
    ):
        parser = verbs.add_parser(verb, help=about, description=f"{about[0].upper()}{about[1:]}.")
        parser.add_argument(
            "path",
            metavar="PATH",
            help="the checkpointLocation of the query: on a local disk, or a URI of any Hadoop file system",
        )
        parser.add_argument("--json", action="store_true", help="one JSON object, with nothing shortened")
        parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    command = [
        usable_java().program,
        *_JVM_OPTIONS,
        "-cp",
        os.pathsep.join(_class_path()),
        _MAIN,
        options.verb,
        "json" if options.json else "text",
        options.path,
    ]
    with waiting(lambda: f"reading {options.path}"):
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=_environment(),
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    if result.stderr:
        print_message(result.stderr.rstrip("\n"))
    print_lines(result.stdout.split("\n")[:-1])
    status = result.returncode
    return status if status >= 0 else 128 - status  # as shells have it for a process that a signal has ended


def _class_path() -> Iterator[str]:
    """The jar, then what Spark's own launcher has on its class path."""
    jars = spark_home() / "jars"
    yield str(verified_jar())
    for pattern in _FIRST_JARS:
        yield from map(str, sorted(jars.glob(f"{pattern}.jar")))
    yield str(jars / "*")
    for variable in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH"):
        if os.environ.get(variable):
            yield os.environ[variable]


def _environment() -> dict[str, str]:
    """Java takes the encoding of file names from the locale, which need not be the one that Python uses."""
    if sys.getfilesystemencoding() != "utf-8":
        return dict(os.environ)
    return {**os.environ, "LC_ALL": "C.UTF-8"}

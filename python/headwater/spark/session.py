"""`session`: a SparkSession with headwater's jar.

Spark fixes the class path when its JVM starts, so the jar must be in `spark.jars` by then. Users set
`spark.jars` in several places, and Spark uses only one of them: the jar is appended to that one.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.spark.attach import attach
from headwater.spark.jar import spark_home, usable_java, verified_jar
from headwater.spark.placeholder import placeholder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["session"]

_lock = threading.RLock()


def session(builder: SparkSession.Builder | None = None) -> SparkSession:
    """A session with headwater: the running one, or a new one from `builder`.

    The packaged jar is appended to the `spark.jars` in effect, which may be set in the builder, in
    PYSPARK_SUBMIT_ARGS or in spark-defaults.conf. If Spark's JVM already runs (another session, spark-submit)
    or the session belongs to a Spark Connect server, the jar is attached afterwards. The workers of a new
    local session run this Python, unless PYSPARK_PYTHON or `spark.pyspark.python` is set.

    >>> import headwater as hw
    >>> from pyspark.sql import SparkSession
    >>> spark = hw.session(SparkSession.builder.master("local[2]"))
    >>> print(spark.readStream.format("random_alpha").option("len", 5).load().columns)
    ['timestamp', 'value']
    """
    from pyspark.sql import SparkSession

    instead = placeholder()
    if instead is not None:
        return instead
    if builder is None:
        builder = SparkSession.builder
    with _lock:
        with _jar_in_spark_jars(builder), _python_of_new_context():
            spark = builder.getOrCreate()
        return attach(spark)


_SUBMIT_ARGS = "PYSPARK_SUBMIT_ARGS"
_JARS = "spark.jars"
_WORKER_PYTHON, _WORKER_PYTHON_CONF = "PYSPARK_PYTHON", "spark.pyspark.python"


@contextmanager
def _jar_in_spark_jars(builder: SparkSession.Builder) -> Iterator[None]:
    """Appends the jar to `spark.jars` while the builder starts a JVM, after a check for a usable Java.

    Does nothing if a JVM already runs, whose class path is fixed, or for a Connect server on another machine.
    """
    from headwater.spark.py4j import jvm_started

    options: dict[str, str] = builder._options
    remote = options.get("spark.remote", os.environ.get("SPARK_REMOTE", ""))
    if jvm_started() or remote.startswith("sc://"):
        yield
        return
    if not (_conf_dir() / "spark-env.sh").is_file():  # may choose another Java for Spark
        usable_java()
    jar = str(verified_jar())
    previous = os.environ.get(_SUBMIT_ARGS)
    args = "pyspark-shell" if previous is None else previous
    jars = submit_jars(args) or options.get(_JARS) or default_jars(args, _conf_dir())
    if _JARS in options:  # the SparkContext prefers the builder's list to the one its JVM was started with
        builder.config(_JARS, append_jar(options[_JARS], jar))
    os.environ[_SUBMIT_ARGS] = with_jars(args, append_jar(jars, jar))
    try:
        yield
    finally:
        if previous is None:
            del os.environ[_SUBMIT_ARGS]
        else:
            os.environ[_SUBMIT_ARGS] = previous


def _conf_dir() -> Path:
    return Path(os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf")


@contextmanager
def _python_of_new_context() -> Iterator[None]:
    """If a local Spark starts in this block and its workers' Python is not configured, they run this Python.

    PySpark itself would use the `python3` on the PATH, which is often another one.
    """
    from pyspark import SparkContext

    previous = SparkContext._active_spark_context
    yield
    context = SparkContext._active_spark_context
    if context is None or context is previous or not str(context.master).startswith("local"):
        return
    if _WORKER_PYTHON not in os.environ and not context.getConf().contains(_WORKER_PYTHON_CONF):
        os.environ[_WORKER_PYTHON] = context.pythonExec = sys.executable


# The `spark.jars` in effect

_FLAGS = {  # options of spark-submit without a value
    "--help",
    "-h",
    "--supervise",
    "--usage-error",
    "--verbose",
    "-v",
    "--version",
    "--load-spark-defaults",
}


def append_jar(jars: str | None, jar: str) -> str:
    """The comma-separated list with `jar` appended, unless it is already there."""
    listed = [entry.strip() for entry in (jars or "").split(",") if entry.strip()]
    return ",".join(listed if jar in listed else [*listed, jar])


def submit_jars(args: str) -> str | None:
    """The `spark.jars` that submit arguments set with `--jars` or else `--conf`; the last of each wins."""
    jars = conf = None
    for option, value, *_ in _submit_options(shlex.split(args)):
        if option == "--jars":
            jars = value
        elif option in ("--conf", "-c") and value.partition("=")[0].strip() == _JARS:
            conf = value.partition("=")[2].strip()
    return conf if jars is None else jars


def with_jars(args: str, jars: str) -> str:
    """The submit arguments with `--jars` set to that list, replacing any they have."""
    tokens = shlex.split(args)
    for option, _, index, width in reversed(list(_submit_options(tokens))):
        if option == "--jars":
            del tokens[index : index + width]
    return shlex.join(["--jars", jars, *tokens])


def default_jars(args: str, conf_dir: Path) -> str | None:
    """`spark.jars` in the properties files that spark-submit reads."""
    options = list(_submit_options(shlex.split(args)))
    base = [value for option, value, *_ in options if option == "--properties-file"][-1:]
    extra = [value for option, value, *_ in options if option == "--extra-properties-file"]
    files = [Path(name) for name in (*reversed(extra), *base)]  # a later extra file wins over an earlier one
    if not base or "--load-spark-defaults" in shlex.split(args):
        files.append(conf_dir / "spark-defaults.conf")
    for file in files:
        if file.is_file():
            jars = read_properties(file.read_text(encoding="utf-8")).get(_JARS)
            if jars is not None:
                return jars
    return None


def read_properties(text: str) -> dict[str, str]:
    """Parses a Java properties file: `=`, `:` or blanks separate, `\\` continues a line and escapes."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        match = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line)
        if match:
            properties[_unescape(match[1])] = _unescape(match[2]).strip(" \t\f")
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones; a line that ends in `\\` is joined with the next."""
    lines = (line.lstrip(" \t\f") for line in re.split(r"\r\n|\r|\n", text))
    for line in lines:
        if line.startswith(("#", "!")) or line == "\\":  # a continuation of nothing: Java skips it
            continue
        whole = line
        while (len(whole) - len(whole.rstrip("\\"))) % 2:
            whole = whole[:-1] + next(lines, "")
        if whole:
            yield whole


def _unescape(text: str) -> str:
    named = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

    def character(match: re.Match[str]) -> str:
        return chr(int(match[1][1:], 16)) if len(match[1]) == 5 else named.get(match[1], match[1])

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", character, text)


def _submit_options(tokens: list[str]) -> Iterator[tuple[str, str, int, int]]:
    """Each option with a value, as (option, value, index, number of tokens), up to the first other token."""
    index = 0
    while index < len(tokens) and tokens[index].startswith("-"):
        token = tokens[index]
        joined = re.fullmatch(r"(--[^=]+)=(.+)", token)
        if joined:
            yield joined[1], joined[2], index, 1
            index += 1
        elif token in _FLAGS or index + 1 == len(tokens):
            index += 1
        else:
            yield token, tokens[index + 1], index, 2
            index += 2

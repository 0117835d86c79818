"""`session`: a SparkSession with headwater's jar in it."""

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
from headwater.spark.jar import usable_java, verified_jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "append_jar",
    "default_jars",
    "jar_in_spark_jars",
    "python_of_new_context",
    "read_properties",
    "session",
    "submit_jars",
    "with_jars",
]

_SWITCHES = {
    "--help",
    "-h",
    "--supervise",
    "--usage-error",
    "--verbose",
    "-v",
    "--version",
    "--load-spark-defaults",
}
_JARS = "spark.jars"


def append_jar(jars: str | None, jar: str) -> str:
    """The comma-separated list with `jar` at its end, once."""
    listed = [entry.strip() for entry in (jars or "").split(",") if entry.strip()]
    return ",".join(listed if jar in listed else [*listed, jar])


def submit_jars(args: str) -> str | None:
    """The `spark.jars` that submit arguments set, by `--jars` or else by `--conf`; the last of each wins."""
    jars = conf = None
    for option, value, *_ in _options(shlex.split(args)):
        if option == "--jars":
            jars = value
        elif option in ("--conf", "-c") and value.partition("=")[0].strip() == _JARS:
            conf = value.partition("=")[2].strip()
    return conf if jars is None else jars


def with_jars(args: str, jars: str) -> str:
    """The submit arguments with `--jars` set to that list, in place of any that they have."""
    tokens = shlex.split(args)
    for option, _, index, width in reversed(list(_options(tokens))):
        if option == "--jars":
            del tokens[index : index + width]
    return shlex.join(["--jars", jars, *tokens])


def default_jars(args: str, conf_dir: Path) -> str | None:
    """`spark.jars` of the properties files that spark-submit would read."""
    options = list(_options(shlex.split(args)))
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
    """A Java properties file: `=`, `:` or blanks divide, `\\` joins lines and escapes."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line)
        if match:
            found[_unescape(match[1])] = _unescape(match[2]).strip(" \t\f")
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines but for comments and blank ones, each with those joined on that a `\\` at its end asks for."""
    lines = (line.lstrip(" \t\f") for line in re.split(r"\r\n|\r|\n", text))
    for line in lines:
        if line.startswith(("#", "!")) or line == "\\":  # nothing yet to go on with: Java starts afresh
            continue
        whole = line
        while (len(whole) - len(whole.rstrip("\\"))) % 2:
            whole = whole[:-1] + next(lines, "")
        if whole:
            yield whole


def _unescape(text: str) -> str:
    named = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

    def one(match: re.Match[str]) -> str:
        return chr(int(match[1][1:], 16)) if len(match[1]) == 5 else named.get(match[1], match[1])

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", one, text)


def _options(tokens: list[str]) -> Iterator[tuple[str, str, int, int]]:
    """Each option with a value, as (option, value, index, how many tokens), up to the first that is none."""
    index = 0
    while index < len(tokens) and tokens[index].startswith("-"):
        token = tokens[index]
        joined = re.fullmatch(r"(--[^=]+)=(.+)", token)
        if joined:
            yield joined[1], joined[2], index, 1
            index += 1
        elif token in _SWITCHES or index + 1 == len(tokens):
            index += 1
        else:
            yield token, tokens[index + 1], index, 2
            index += 2


_SUBMIT_ARGS = "PYSPARK_SUBMIT_ARGS"


@contextmanager
def jar_in_spark_jars(builder: SparkSession.Builder) -> Iterator[None]:
    """Append the jar to `spark.jars` while the builder starts a JVM, once there is a Java to start it with.

    Does nothing where a JVM runs already, whose class path is fixed, nor for a Connect server elsewhere.
    """
    from headwater.spark.py4j import jvm_started

    options: dict[str, str] = builder._options
    remote = options.get("spark.remote", os.environ.get("SPARK_REMOTE", ""))
    if jvm_started() or remote.startswith("sc://"):
        yield
        return
    if not (_conf_dir() / "spark-env.sh").is_file():  # which may choose another Java for Spark
        usable_java()
    jar = str(verified_jar())
    set_before = os.environ.get(_SUBMIT_ARGS)
    args = "pyspark-shell" if set_before is None else set_before
    jars = submit_jars(args) or options.get("spark.jars") or default_jars(args, _conf_dir())
    if (
        "spark.jars" in options
    ):  # the SparkContext takes the builder's list over what its JVM was started with
        builder.config("spark.jars", append_jar(options["spark.jars"], jar))
    os.environ[_SUBMIT_ARGS] = with_jars(args, append_jar(jars, jar))
    try:
        yield
    finally:
        if set_before is None:
            del os.environ[_SUBMIT_ARGS]
        else:
            os.environ[_SUBMIT_ARGS] = set_before


def _conf_dir() -> Path:
    from pyspark.find_spark_home import _find_spark_home

    return Path(os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home()) / "conf")


_VARIABLE, _SETTING = "PYSPARK_PYTHON", "spark.pyspark.python"


@contextmanager
def python_of_new_context() -> Iterator[None]:
    """Where a local Spark is started meanwhile, and nobody has said which Python its workers run: this one.

    PySpark itself would take the `python3` of the PATH, which is often another.
    """
    from pyspark import SparkContext

    before = SparkContext._active_spark_context
    yield
    context = SparkContext._active_spark_context
    if context is None or context is before or not str(context.master).startswith("local"):
        return
    if _VARIABLE not in os.environ and not context.getConf().contains(_SETTING):
        os.environ[_VARIABLE] = context.pythonExec = sys.executable


_lock = threading.RLock()


def session(builder: SparkSession.Builder | None = None) -> SparkSession:
    """A session with headwater in it: the one that runs, or a new one made by `builder`.

    The packaged jar is appended to the `spark.jars` that is in force, whether that stands in the builder, in
    PYSPARK_SUBMIT_ARGS or in spark-defaults.conf. Where Spark's JVM already runs (another session,
    spark-submit) and where the session is a Spark Connect server's, it is attached afterwards. The workers of
    a new local session run this Python, unless PYSPARK_PYTHON or `spark.pyspark.python` says otherwise.

    >>> import headwater as hw
    >>> from pyspark.sql import SparkSession
    >>> spark = hw.session(SparkSession.builder.master("local[2]"))
    >>> print(spark.readStream.format("random_alpha").option("len", 5).load().columns)
    ['timestamp', 'value']
    """
    from pyspark.sql import SparkSession

    if builder is None:
        builder = SparkSession.builder
    with _lock:
        with jar_in_spark_jars(builder), python_of_new_context():
            spark = builder.getOrCreate()
        return attach(spark)

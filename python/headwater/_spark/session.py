"""A SparkSession that knows headwater's formats: a new one (`session`), or a running one (`attach`)."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING
from weakref import WeakSet

from headwater._errors import HeadwaterError
from headwater._spark.jar import verified_jar
from headwater._spark.launch import jar_in_spark_jars
from headwater._spark.workers import python_of_new_context
from headwater._version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["attach", "is_classic", "session"]

_log = logging.getLogger("headwater")
_lock = threading.RLock()
_attached: WeakSet[SparkSession] = WeakSet()


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


def attach(spark: SparkSession) -> SparkSession:
    """Bring headwater into a running session, classic or Connect, and return that session.

    Does nothing where the jar is there already, but for checking that it is of this package's version.
    Otherwise a classic session gets it on the driver, for every thread, and on the executors, and a Connect
    session gets it as an artifact. Any number of calls, from any thread.

    >>> import headwater as hw
    >>> print(hw.attach(spark) is spark)
    True
    """
    kind = type(spark).__module__
    if not kind.startswith("pyspark.sql."):
        raise TypeError(f"attach() takes a SparkSession, not {spark!r} of type {type(spark).__qualname__}")
    with _lock:
        _check_running(spark)
        if spark not in _attached:
            _check_spark(spark.version)
            origin = _attach_classic(spark) if is_classic(spark) else _attach_connect(spark)
            _check_format(spark, origin)
            if is_classic(spark):
                _join(spark)
            _attached.add(spark)
    return spark


def is_classic(spark: SparkSession) -> bool:
    """Whether the session's JVM is driven by this process, and not by a Connect server."""
    return not type(spark).__module__.startswith("pyspark.sql.connect.")


def _join(spark: SparkSession) -> None:
    from headwater._spark import crossing
    from headwater._spark.bridge import Driver

    crossing.join(Driver(spark))


def _check_running(spark: SparkSession) -> None:
    from headwater._spark.bridge import is_stopped

    if is_stopped(spark):
        raise HeadwaterError("this session is stopped", "make a new one, for instance with hw.session()")


def _check_spark(version: str) -> None:
    major, _, rest = version.partition(".")
    if major != "4":
        raise HeadwaterError(
            f"Spark {version} is not supported: headwater runs on Spark 4.0 to 4.3",
            "install one of them, for instance with `pip install 'pyspark>=4.0,<4.4'`",
        )
    if int(rest.partition(".")[0]) > 3:
        _log.warning("Spark %s is newer than the lines headwater was tested on, 4.0 to 4.3", version)


def _attach_classic(spark: SparkSession) -> str:
    from headwater._spark.bridge import Driver

    driver = Driver(spark)
    if driver.scala_version.rpartition(".")[0] != "2.13":
        raise HeadwaterError(
            f"this Spark runs on Scala {driver.scala_version}, and headwater's jar is built for 2.13",
            "use a Spark 4 build, for instance the one in `pip install 'pyspark>=4.0,<4.4'`",
        )
    found = driver.jar_version()
    if found is None:
        jar = verified_jar()
        driver.add_jar(jar)
        found = driver.jar_version()
        if found is None:
            raise HeadwaterError(
                f"{jar} was added to the driver's class loader ({driver.loader_name}), and headwater.Version "
                "still cannot be found there",
                f"start Spark with the jar, with `--jars {jar}` or hw.session()",
            )
        _log.info("added %s to a running session", jar.name)
    origin = driver.jar_origin()
    _check_version(found, origin)
    if not driver.executors_have(origin):
        driver.add_to_executors(verified_jar())
    return origin


def _attach_connect(spark: SparkSession) -> str:
    found = _connect_version(spark)
    if found is None:
        spark.addArtifact(str(verified_jar()))
        found = _connect_version(spark)
        if found is None:
            raise HeadwaterError(
                "the Connect server took the jar as an artifact, and headwater.Version cannot be found there",
                f"start the server with `--jars {verified_jar()}`",
            )
    origin = "the Connect server"
    _check_version(found, origin)
    return origin


def _connect_version(spark: SparkSession) -> str | None:
    """The version of the jar in a Connect session: SQL is the only way there to call into the JVM."""
    from pyspark.errors import AnalysisException
    from pyspark.logger import PySparkLogger

    # PySpark logs every failed query with its whole stack, and here a failure is only the answer "no". The
    # logger has to be asked for in PySpark's own way: made by `logging`, it would lack what PySpark calls.
    log = PySparkLogger.getLogger("SQLQueryContextLogger")
    log.addFilter(_not_our_question)
    try:
        row = spark.sql("SELECT java_method('headwater.Version', 'current') AS version").first()
    except AnalysisException as error:
        if "UNEXPECTED_CLASS_TYPE" in (error.getCondition() or ""):
            return None
        raise
    finally:
        log.removeFilter(_not_our_question)
    return None if row is None else str(row["version"])


def _not_our_question(record: logging.LogRecord) -> bool:
    return "headwater.Version" not in record.getMessage()


def _check_version(found: str, origin: str) -> None:
    if found != __version__:
        raise HeadwaterError(
            f"headwater for Python is {__version__}, and the jar in the session is {found} (from {origin})",
            f"`pip install headwater=={found}`, or start Spark with the jar that `headwater jar` prints",
        )


def _check_format(spark: SparkSession, origin: str) -> None:
    """A jar may be visible and yet broken: packed into another jar, it easily loses its services file."""
    try:
        columns = spark.readStream.format("random_alpha").option("len", 1).load().columns
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise HeadwaterError(
            f"headwater's classes are there (from {origin}), and the format random_alpha cannot be loaded: "
            f"{reason}",
            "if the jar was packed into another one, merge META-INF/services/"
            "org.apache.spark.sql.sources.DataSourceRegister; else use the jar that `headwater jar` prints",
        ) from error
    if columns != ["timestamp", "value"]:
        raise HeadwaterError(
            f"the format random_alpha is another one's: its columns are {columns}, not timestamp and value",
            "take the other jar that registers this name out of spark.jars",
        )

"""`attach`: adds headwater to a running session, and connects this process to the session's JVM.

The first half of this module checks the session and adds the jar. The second half keeps the connection: the
driver's JVM (`Driver`) that this process uses, and the `Host` that runs feeds for it.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakSet

from headwater import registry, trust
from headwater._version import __version__
from headwater.errors import HeadwaterError
from headwater.references import SparkNeeded
from headwater.spark.jar import verified_jar
from headwater.spark.placeholder import is_placeholder, placeholder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.runtime.host import Host
    from headwater.spark.py4j import Driver

__all__ = [
    "USE_CLASSIC",
    "attach",
    "connect",
    "current",
    "is_attached",
    "is_classic",
    "not_in_connect",
    "use_driver",
    "without_error_log",
]

_log = logging.getLogger("headwater")
_attached: WeakSet[SparkSession] = WeakSet()
_attaching = threading.RLock()


def attach(spark: SparkSession) -> SparkSession:
    """Add headwater to a running session, classic or Connect, and return that session.

    If the session has the jar already, its version must be that of this package. Otherwise a classic session
    gets the jar on the driver, for every thread, and on the executors; a Connect session gets it as an
    artifact. It may be called any number of times, from any thread.

    >>> import headwater as hw
    >>> print(hw.attach(spark) is spark)
    True
    """
    if is_placeholder(spark):
        return spark
    kind = type(spark).__module__
    if not kind.startswith("pyspark.sql."):
        raise TypeError(f"attach() takes a SparkSession, not {spark!r} of type {type(spark).__qualname__}")
    with _attaching:
        _check_running(spark)
        if spark not in _attached:
            _check_spark(spark.version)
            origin = _attach_classic(spark) if is_classic(spark) else _attach_connect(spark)
            _check_format(spark, origin)
            if is_classic(spark):
                from headwater.spark.py4j import Driver

                use_driver(Driver(spark))
            _attached.add(spark)
    return spark


def is_attached(spark: SparkSession) -> bool:
    """Whether `attach` was called with this session."""
    with _attaching:
        return spark in _attached


def is_classic(spark: SparkSession) -> bool:
    """Whether this process drives the session's JVM itself, without a Connect server."""
    return not type(spark).__module__.startswith("pyspark.sql.connect.")


def not_in_connect(name: str) -> str:
    """What is wrong if a source in Python is read in a Connect session."""
    return (
        f"source '{name}' is written in Python and runs in the driver process, but this is a Spark Connect "
        "session, whose driver is a server"
    )


USE_CLASSIC = (
    "use a classic session, as hw.session() creates without SPARK_REMOTE. Sources that run in the JVM, such "
    "as random_alpha, also work in a Connect session"
)


def _check_running(spark: SparkSession) -> None:
    from headwater.spark.py4j import is_stopped

    if is_stopped(spark):
        raise HeadwaterError("this session is stopped", "create a new one, for instance with hw.session()")


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
    from headwater.spark.py4j import Driver

    driver = Driver(spark)
    if driver.scala_version.rpartition(".")[0] != "2.13":
        raise HeadwaterError(
            f"this Spark runs on Scala {driver.scala_version}, and headwater's jar is built for 2.13",
            "use a Spark 4 build, for instance the one in `pip install 'pyspark>=4.0,<4.4'`",
        )
    version = driver.jar_version()
    if version is None:
        jar = verified_jar()
        driver.add_jar(jar)
        version = driver.jar_version()
        if version is None:
            raise HeadwaterError(
                f"{jar} was added to the driver's class loader ({driver.loader_name}), but headwater.Version "
                "cannot be found there",
                f"start Spark with the jar, with `--jars {jar}` or hw.session()",
            )
        _log.info("added %s to a running session", jar.name)
    origin = driver.jar_origin()
    _check_version(version, origin)
    if not driver.executors_have(origin):
        driver.add_to_executors(verified_jar())
    return origin


def _attach_connect(spark: SparkSession) -> str:
    version = _connect_version(spark)
    if version is None:
        spark.addArtifact(str(verified_jar()))
        version = _connect_version(spark)
        if version is None:
            raise HeadwaterError(
                "the Connect server took the jar as an artifact, but headwater.Version cannot be found there",
                f"start the server with `--jars {verified_jar()}`",
            )
    origin = "the Connect server"
    _check_version(version, origin)
    return origin


def _connect_version(spark: SparkSession) -> str | None:
    """The version of the jar in a Connect session, or None. Only SQL can call into the JVM there."""
    from pyspark.errors import AnalysisException

    try:
        with without_error_log("headwater.Version"):
            row = spark.sql("SELECT java_method('headwater.Version', 'current') AS version").first()
    except AnalysisException as error:
        if "UNEXPECTED_CLASS_TYPE" in (error.getCondition() or ""):
            return None
        raise
    return None if row is None else str(row["version"])


@contextmanager
def without_error_log(text: str) -> Iterator[None]:
    """PySpark logs every failed query with its whole stack. In this block, not those with that text.

    The logger has to be obtained from PySpark: one made by `logging` lacks methods that PySpark calls.
    """
    from pyspark.logger import PySparkLogger

    def is_wanted(record: logging.LogRecord) -> bool:
        return text not in record.getMessage()

    log = PySparkLogger.getLogger("SQLQueryContextLogger")
    log.addFilter(is_wanted)
    try:
        yield
    finally:
        log.removeFilter(is_wanted)


def _check_version(jar_version: str, origin: str) -> None:
    if jar_version != __version__:
        raise HeadwaterError(
            f"headwater for Python is {__version__}, and the jar in the session is {jar_version} (from "
            f"{origin})",
            f"`pip install headwater=={jar_version}`, or start Spark with the jar that `headwater jar` "
            "prints",
        )


def _check_format(spark: SparkSession, origin: str) -> None:
    """Load a format: a jar that is visible may be broken, if it was packed without its services file."""
    try:
        columns = spark.readStream.format("random_alpha").option("len", 1).load().columns
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise HeadwaterError(
            f"headwater's classes were found (from {origin}), but the format random_alpha cannot be loaded: "
            f"{reason}",
            "if the jar was packed into another one, merge META-INF/services/"
            "org.apache.spark.sql.sources.DataSourceRegister; otherwise use the jar that `headwater jar` "
            "prints",
        ) from error
    if columns != ["timestamp", "value"]:
        raise HeadwaterError(
            f"the format random_alpha is not headwater's: its columns are {columns}, not timestamp and value",
            "remove the other jar that registers this name from spark.jars",
        )


# The connection between this process and the driver's JVM

_lock = threading.RLock()
_driver: Driver | None = None
_host: Host | None = None


def use_driver(driver: Driver) -> None:
    """Make every Python source, defined now or later, a format of that driver's Spark."""
    global _driver, _host
    with _lock:
        if _driver is not None and _driver.is_gone:
            _host = None  # it belongs to another JVM, which may still run
        _driver = driver
        trust.use(driver.trust())
    connect()  # for the built-in sources, whose formats are in the jar
    registry.subscribe(_register)  # without our lock: who defines a source has the registry's, and takes ours
    for name in registry.all_sources():
        _register(name)
    for name in registry.plugin_names() - registry.all_sources().keys():
        try:
            _register(name)
        except ValueError as error:  # the name is taken, which is no reason not to attach
            _log.warning("format(%r) is not available: %s", name, error)


def connect() -> None:
    """Connect to the JVM, unless that is done."""
    from headwater.runtime.host import Host
    from headwater.runtime.protocol import Address

    global _host
    with _lock:
        if _driver is None or _driver.is_gone:
            if placeholder() is not None:
                raise SparkNeeded
            raise HeadwaterError(
                "no Spark session is attached", "call hw.session() or hw.attach(spark) first"
            )
        if _host is None or not _host.is_alive:
            bridge = _driver.open_bridge(unix=hasattr(socket, "AF_UNIX"))
            _host = Host(Address(bridge["address"], bridge["secret"]), _driver.worker_python)


def current() -> tuple[Driver, Host] | None:
    """The driver and the host of its feeds, if there is a session."""
    with _lock:
        return None if _driver is None or _driver.is_gone or _host is None else (_driver, _host)


def _register(name: str) -> None:
    with _lock:
        if _driver is None or _driver.is_gone:
            return  # it becomes a format when a session is attached
        connect()
        warning = _driver.register(name)
        if warning:
            _log.warning("format(%r) is not available: %s", name, warning)

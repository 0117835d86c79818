"""Calls into Spark's JVM. The only module that uses py4j and PySpark's private attributes.

Classes are loaded by name through the driver's base class loader, never as `jvm.headwater.X`. For an unknown
class py4j returns a JavaPackage, whose use fails with "'JavaPackage' object is not callable", and py4j looks
only in the class loader of the calling thread.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError
from headwater.runtime.tasks import WorkerPython
from headwater.trust import Trust

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Driver", "is_stopped", "jvm_started"]

_MUTABLE_LOADER = "org.apache.spark.util.MutableURLClassLoader"
_SECRET = re.compile(r"[0-9a-f]{64}")
_USE_OUR_JAR = "start Spark with the jar that `headwater jar` prints instead"


def jvm_started() -> bool:
    """Whether this process already has a JVM, whose class path can no longer be set by a builder."""
    from pyspark import SparkContext

    return "PYSPARK_GATEWAY_PORT" in os.environ or SparkContext._gateway is not None


def is_stopped(spark: SparkSession) -> bool:
    """A Connect session has an attribute for it; the SparkContext of a classic one has lost its JVM."""
    is_stopped: bool | None = getattr(spark, "is_stopped", None)
    return spark.sparkContext._jsc is None if is_stopped is None else is_stopped


class Driver:
    """The driver's JVM of a classic session: the jar in it, and headwater's `Bridge`."""

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        self._session: Any = spark._jsparkSession
        self._context = context
        self._gateway: Any = context._gateway
        self._jvm: Any = context._jvm
        self._loader = self._base_loader()
        self._process = os.getpid()

    @property
    def scala_version(self) -> str:
        return str(self._jvm.scala.util.Properties.versionNumberString())

    @property
    def loader_name(self) -> str:
        return str(self._loader.getClass().getName())

    def jar_version(self) -> str | None:
        """The version of the driver's jar; None if there is no jar that every thread can see."""
        version = self._version_class()
        if version is None:
            return None
        from py4j.protocol import Py4JError

        try:
            no_types = self._gateway.new_array(self._jvm.java.lang.Class, 0)
            no_args = self._gateway.new_array(self._jvm.java.lang.Object, 0)
            return str(version.getMethod("current", no_types).invoke(None, no_args))
        except Py4JError as error:
            raise HeadwaterError(
                f"headwater.Version is in the session (from {_origin(version)}) but cannot be called: "
                f"{_java_message(error)}",
                _USE_OUR_JAR,
            ) from error

    def jar_origin(self) -> str:
        """The file or folder that headwater's classes came from."""
        version = self._version_class()
        return "nowhere" if version is None else _origin(version)

    def add_jar(self, jar: Path) -> None:
        """Make the jar's classes visible in every thread of the driver."""
        from py4j.java_gateway import is_instance_of

        if not is_instance_of(self._gateway, self._loader, _MUTABLE_LOADER):
            raise HeadwaterError(
                "this session runs without headwater's jar, and the driver's class loader "
                f"({self.loader_name}) does not accept jars",
                "start Spark with the jar, with "
                f"`spark-submit --jars {jar}`, `spark.jars={jar}` in its configuration, or hw.session()",
            )
        self._loader.addURL(self._jvm.java.io.File(str(jar)).toURI().toURL())

    def executors_have(self, origin: str) -> bool:
        """Whether Spark sends the jar with that origin to executors; a new SparkContext does not yet."""
        name = origin.rpartition("/")[2]
        listed = self._context._jsc.sc().listJars()
        return any(listed.apply(i).rpartition("/")[2] == name for i in range(listed.size()))

    def add_to_executors(self, jar: Path) -> None:
        self._context._jsc.sc().addJar(str(jar))

    def open_bridge(self, unix: bool) -> dict[str, str]:
        """The `address` where the JVM listens for this process, and the `secret` to present there."""
        with _without_secrets_in_log():
            return dict(json.loads(self._bridge().open(unix)))

    def trust(self) -> Trust:
        """What options of streams may name, as the SparkContext says: no query changes its configuration."""
        conf: Any = self._context.getConf()
        return Trust.from_conf(lambda name: conf.get(name) if conf.contains(name) else None)

    def register(self, name: str) -> str:
        """Make a source available as `format(name)`. Returns "", or why only format("headwater") works."""
        from pyspark.errors import IllegalArgumentException

        try:
            return str(self._bridge().register(name, self._session))
        except IllegalArgumentException as error:
            raise ValueError(str(error)) from None

    @property
    def is_local(self) -> bool:
        """Whether tasks run in the driver's JVM."""
        return bool(self._context._jsc.sc().isLocal())

    def row_writer(self, sink: str) -> Any:
        """A ForeachWriter of Spark that hands rows to a sink of the host."""
        return self._jvm.headwater.bridge.PythonRowWriter(sink)

    def worker_python(self) -> WorkerPython:
        """The Python of Spark's workers. Read anew each time: files may have been added since."""
        context = self._context
        return WorkerPython(
            executable=str(context.pythonExec),
            version=str(context.pythonVer),
            includes=list(context._python_includes or ()),
            environment=dict(context.environment),
        )

    def status(self) -> dict[str, dict[str, Any]]:
        """By the id of a feed: the rows in its buffer, or how far its query has read partitions."""
        return dict(json.loads(self._bridge().status()))

    @property
    def is_gone(self) -> bool:
        """Whether the JVM has ended, this process has started another one, or it is a fork of another."""
        from pyspark import SparkContext

        if os.getpid() != self._process:
            return True
        process = getattr(self._gateway, "proc", None)  # None if the JVM has started this process
        has_ended = process is not None and process.poll() is not None
        return SparkContext._gateway is not self._gateway or has_ended

    def _bridge(self) -> Any:
        return self._loader.loadClass("headwater.bridge.Bridge$").getField("MODULE$").get(None)

    def _base_loader(self) -> Any:
        """The topmost loader that takes jars. One below it, as `ADD JAR` uses, belongs to one thread only."""
        from py4j.java_gateway import is_instance_of

        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        parent = loader.getParent()
        while parent is not None and is_instance_of(self._gateway, parent, _MUTABLE_LOADER):
            loader, parent = parent, parent.getParent()
        return loader

    def _version_class(self) -> Any | None:
        from py4j.protocol import Py4JJavaError

        try:
            return self._loader.loadClass("headwater.Version")
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() == "java.lang.ClassNotFoundException":
                return None
            raise HeadwaterError(
                f"headwater's jar is here, but its classes cannot be loaded: {_java_message(error)}",
                _USE_OUR_JAR,
            ) from error


@contextmanager
def _without_secrets_in_log() -> Iterator[None]:
    """py4j logs all that it sends and receives, at level DEBUG."""
    loggers = [logging.getLogger(f"py4j.{module}") for module in ("clientserver", "java_gateway")]
    for logger in loggers:
        logger.addFilter(_mask_secret)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(_mask_secret)


def _mask_secret(record: logging.LogRecord) -> bool:
    record.msg, record.args = _SECRET.sub("***", record.getMessage()), ()
    return True


def _origin(java_class: Any) -> str:
    source = java_class.getProtectionDomain().getCodeSource()
    return "an unknown place" if source is None else str(source.getLocation().getPath())


def _java_message(error: Exception) -> str:
    exception = getattr(error, "java_exception", None)
    return str(error).partition("\n")[0] if exception is None else str(exception.toString())

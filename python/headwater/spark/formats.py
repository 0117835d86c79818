"""What `spark.readStream.format(NAME).load()` raises if Spark does not know a name that may be headwater's.

Spark's own error is DATA_SOURCE_NOT_FOUND with a long Java stack, and no format can add to it. So `load` of
PySpark's stream readers is wrapped, as soon as PySpark is imported. The wrapper acts on this one error only,
and only if the name is, or resembles, the name of a source, or if headwater is not attached to the session.

A Spark Connect client does not ask the server at `load()`. The wrapper does so for names of headwater's and
similar ones. For any other name nothing changes: the error comes when the server analyses the stream.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from functools import wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

from headwater import registry
from headwater.errors import HeadwaterError
from headwater.spark.attach import USE_CLASSIC, is_attached, is_classic, not_in_connect, without_error_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["explain_unknown_formats"]

_READERS = ("pyspark.sql.streaming.readwriter", "pyspark.sql.connect.streaming.readwriter")
_NOT_FOUND = re.compile(r"\[DATA_SOURCE_NOT_FOUND\] Failed to find the data source: (\S+)\. ")


def explain_unknown_formats() -> None:
    """Wrap the stream readers of PySpark: those that are loaded now, and the others when they are."""
    for module in _READERS:
        if module in sys.modules:
            _wrap(sys.modules[module].DataStreamReader)
    if not any(isinstance(finder, _ReaderFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ReaderFinder())


class _ReaderFinder(MetaPathFinder):
    """Finds the modules of the stream readers, so that headwater need not import PySpark for them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in _READERS else None
        if spec is None or spec.loader is None:
            return None
        spec.loader = _ReaderLoader(spec.loader)
        return spec


class _ReaderLoader(Loader):
    """Loads such a module with Python's own loader, which all modules of a zip file share."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _wrap(module.DataStreamReader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _wrap(reader: Any) -> None:
    load = reader.load
    if hasattr(load, "_explains_unknown_formats"):
        return

    @wraps(load)
    def load_or_explain(self: Any, *args: Any, **kwargs: Any) -> Any:
        spark: Any = getattr(self, "_spark", None) or getattr(self, "_client", None)
        try:
            frame = load(self, *args, **kwargs)
        except Exception as error:
            explanation = _explain(spark, error)
            if explanation is None:
                raise
        else:
            explanation = _check_on_server(spark, self, frame)
            if explanation is None:
                return frame
        raise explanation  # outside of the handler, which would show the Java stack as well

    load_or_explain._explains_unknown_formats = True  # type: ignore[attr-defined]
    reader.load = load_or_explain


def _check_on_server(spark: SparkSession, reader: Any, frame: Any) -> HeadwaterError | None:
    """With Spark Connect: whether the server knows a format of headwater's. Other errors come later."""
    name: str | None = getattr(reader, "_format", None)
    if is_classic(spark) or name is None or _similar(name) is None:
        return None
    try:
        with without_error_log("DATA_SOURCE_NOT_FOUND"):
            frame.schema  # noqa: B018
    except Exception as error:
        return _explain(spark, error)
    return None


def _explain(spark: SparkSession, error: Exception) -> HeadwaterError | None:
    """None if this is another error, or about a format that has nothing to do with headwater."""
    match = _NOT_FOUND.search(str(error))
    if match is None:
        return None
    name, similar, attached = match[1], _similar(match[1]), is_attached(spark)
    if similar is None:
        return None if attached else _not_attached(f"Spark has no format '{name}'", _IMPORT)
    if similar.lower() != name.lower():
        what, remedy = (
            f"there is no format '{name}' (did you mean '{similar}'?)",
            f'write format("{similar}")',
        )
        return HeadwaterError(what, remedy) if attached else _not_attached(what, f", and {remedy}")
    if not is_classic(spark) and similar in registry.all_sources():
        return HeadwaterError(not_in_connect(similar), USE_CLASSIC)
    if attached:
        return HeadwaterError(
            f"source '{similar}' is not a format in this Spark, whose class loader takes no classes",
            f'write format("headwater").option("source", "{similar}"), or start Spark with the jar in '
            "spark.jars",
        )
    return _not_attached(f"'{similar}' is a source of headwater")


_IMPORT = ", and import the module that defines the source, if it is one of headwater's"


def _not_attached(what: str, remedy: str = "") -> HeadwaterError:
    return HeadwaterError(
        f"{what}, and headwater is not attached to this session",
        f"create the session with hw.session(), or call hw.attach(spark){remedy}",
    )


def _similar(name: str) -> str | None:
    """The source with that name, ignoring case, or else the one whose name is closest."""
    names = {source.lower(): source for source in registry.format_names()}
    matches = get_close_matches(name.lower(), names, n=1, cutoff=0.75)
    return names[matches[0]] if matches else None

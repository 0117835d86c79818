"""How a partitioned source gets to Spark's executors: its class, its options, and how it is to be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from headwater._author.partitioned import PartitionedSource
from headwater._author.registry import revealed
from headwater._author.secret import Secret
from headwater._author.source import made_of, schema_of_source
from headwater._errors import HeadwaterError
from headwater._partitioned.order import WatchOrder
from headwater._version import __version__

__all__ = ["Shipped", "reader"]


@dataclass(frozen=True)
class _Sealed:
    """A secret on its way: Secret itself refuses to be pickled, as that must not happen unawares."""

    text: str


@dataclass(frozen=True)
class Shipped:
    """What a task needs to read ranges."""

    source: type[PartitionedSource]
    options: dict[str, Any]
    shown: str
    schema: str
    fail_on_data_loss: bool
    on_error: str
    max_restarts: int
    on_bad_row: str
    batch_rows: int

    @classmethod
    def of(cls, source: PartitionedSource, order: WatchOrder) -> Shipped:
        return cls(
            source=type(source),
            options={name: _replaced(value, Secret, _sealed) for name, value in source._bound.items()},
            shown=repr(source),
            schema=schema_of_source(source).json(),
            fail_on_data_loss=order.fail_on_data_loss,
            on_error=order.order.on_error,
            max_restarts=_RESTARTS if order.max_restarts is None else order.max_restarts,
            on_bad_row=order.order.on_bad_row,
            batch_rows=order.order.batch_rows,
        )

    def make(self) -> PartitionedSource:
        """A new instance."""
        made: PartitionedSource = made_of(self.source, self._bound(), self.shown)
        return made

    def secrets(self) -> list[str]:
        """What must not be told."""
        return revealed(self._bound())

    def _bound(self) -> dict[str, Any]:
        return {name: _replaced(value, _Sealed, _opened) for name, value in self.options.items()}


_RESTARTS = 3
"""Of a read in one task, where nothing else is set: Spark runs a failed task again, too."""


def reader(source: PartitionedSource, order: WatchOrder) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What Spark runs on its executors, over batches of tasks; HeadwaterError if it cannot be sent there."""
    shipped = _pickled(source, Shipped.of(source, order))
    name, module, version = type(source)._name, type(source).__module__, __version__

    def read(tasks: Iterator[Any]) -> Iterator[Any]:
        """Sent as it is, not by name: it has to say so where headwater is missing, or is another one."""
        import sys

        try:
            from headwater import __version__ as found
        except ImportError as error:
            raise RuntimeError(
                f"source '{name}' cannot be read here: {sys.executable}, the Python of Spark's workers, has "
                f"no headwater ({error}). Install headwater=={version} for it, or set PYSPARK_PYTHON to a "
                "Python that has it, before Spark is started"
            ) from None
        if found != version:
            raise RuntimeError(
                f"source '{name}' cannot be read here: {sys.executable}, the Python of Spark's workers, has "
                f"headwater {found}, and the driver has {version}. Install headwater=={version} for it"
            )
        from headwater._partitioned.tasks import opened

        return opened(shipped, name, module).read(tasks)

    return read


def _pickled(source: PartitionedSource, shipped: Shipped) -> bytes:
    from pyspark import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(shipped)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise HeadwaterError(
            f"source '{type(source)._name}' cannot be sent to Spark's executors: {type(error).__name__}: "
            f"{error}",
            "make what cannot be pickled, such as connections and locks, in __init__ or where it is used; "
            "not in the class, nor beside it in a notebook or a program",
        ) from error
    return data


def _replaced(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return [_replaced(one, kind, change) for one in value]
    return change(value) if isinstance(value, kind) else value


def _sealed(secret: Secret) -> _Sealed:
    return _Sealed(secret._value)


def _opened(sealed: _Sealed) -> Secret:
    return Secret(sealed.text)

"""An author's own function, by name: `package.module:function`."""

import importlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from headwater._author.reading import has_array_rows
from headwater._rows.bad_rows import BadRow, Refused
from headwater._rows.records import Records
from headwater.decode._values import Given, Piece, one_by_one

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["OwnWay", "function_named"]

_NO_ROW = "the function returned None; it returns a row or a list of rows, which may be empty"


class OwnWay:
    """The function gets a record and returns a row or a list of rows; what it raises makes the record bad."""

    def __init__(self, schema: "StructType", function: Callable[[bytes], Any]) -> None:
        self.schema = schema
        self._function = function
        self._records = Records(schema.names, bare=True)
        self._array_rows = has_array_rows(schema)

    def pieces(self, records: Given) -> Iterator[Piece]:
        return map(self._one, one_by_one(records))

    def _one(self, record: bytes) -> Piece:
        try:
            found = self._function(record)
            if isinstance(found, BadRow):
                row = self._nulls() if found.row is None else self._row(found.row)
                return BadRow(found.value, found.reason, row)
            if found is None:
                raise Refused(_NO_ROW)
            many = isinstance(found, list) and not self._array_rows
            return [self._row(row) for row in (found if many else [found])]
        except MemoryError:
            raise
        except Exception as error:
            why = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
            return BadRow(record, why, self._nulls())

    def _nulls(self) -> tuple[Any, ...]:
        return (None,) * len(self._records.names)

    def _row(self, row: Any) -> tuple[Any, ...]:
        return tuple(column[0] for column in self._records.split([row]))


def function_named(name: str) -> Callable[[bytes], Any]:
    """ValueError where there is none of that name."""
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise ValueError(f"decode={name!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ValueError(f"decode={name!r} is of type {type(found).__name__}; it must be a function")
    return found  # type: ignore[no-any-return]

"""Remembers the Arrow tables that headwater itself built to a schema, so that nothing validates them again.

pyarrow's tables are immutable, so a table stays valid. They cannot carry a mark, so it is kept here. A table
that is derived from another one, for instance by `slice` or `filter`, is a new object, which is validated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["ValidatedTables"]

_tables: WeakValueDictionary[tuple[int, str], Any] = WeakValueDictionary()


class ValidatedTables:
    """The tables that are known to match one schema.

    Schemas are compared as Spark's JSON: Arrow has one type for both TIME(3) and TIME(6).
    """

    def __init__(self, schema: StructType) -> None:
        self._schema = schema.json()

    def add(self, table: pa.Table) -> pa.Table:
        _tables[id(table), self._schema] = table
        return table

    def __contains__(self, table: object) -> bool:
        return _tables.get((id(table), self._schema)) is table

"""Readers of Spark's Python Data Source API as formats, without a DataSource class for each."""

from __future__ import annotations

import sys
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

__all__ = ["register"]


def register(spark: SparkSession, reader: type[Any], ddl: str) -> str:
    """Gives the name of a format whose streams are read by `reader(options)`."""

    class Format(DataSource):
        @classmethod
        def name(cls) -> str:
            return reader.__name__

        def schema(self) -> str:
            return ddl

    if issubclass(reader, SimpleDataSourceStreamReader):

        def simple(self: DataSource, schema: StructType) -> SimpleDataSourceStreamReader:
            return reader(self.options)

        Format.simpleStreamReader = simple
    else:

        def general(self: DataSource, schema: StructType) -> DataSourceStreamReader:
            return reader(self.options)

        Format.streamReader = general

    # Spark's Python workers cannot import what only the tests have on their path.
    for module in (__name__, reader.__module__):
        cloudpickle.register_pickle_by_value(sys.modules[module])
    spark.dataSource.register(Format)
    return reader.__name__

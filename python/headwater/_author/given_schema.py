"""Spark's `.schema(…)`, for sources that take one: it is their option `schema`, as DDL."""

from __future__ import annotations

import json
from typing import Any

from headwater._author import registry
from headwater._author.ddl import to_ddl
from headwater._author.signature import OptionError, plain
from headwater._author.source import schema_of_source, signature_of

__all__ = ["options_in"]


def options_in(question: dict[str, Any]) -> dict[str, str]:
    """The options that Spark's JVM sent, and among them the schema; OptionError where that cannot be."""
    options: dict[str, str] = question["options"]
    if "schema" not in question:
        return options
    name = question["source"]
    cls = registry.class_of(name)
    takes = cls is not None and any(option.name == "schema" for option in signature_of(cls).options)
    if cls is None or not takes:
        source = registry.find(name, options)
        own = schema_of_source(source).simpleString()
        raise OptionError(
            f"Source '{type(source)._name}' has a schema of its own, {own}, and takes no other. "
            "Remove .schema(…)."
        )
    written = [option for option in options if plain(option) == "schema"]
    if written:
        raise OptionError(f"Source '{cls._name}' got .schema(…) and the option '{written[0]}': keep one")
    return {**options, "schema": _as_ddl(question["schema"])}


def _as_ddl(schema: str) -> str:
    from pyspark.sql.types import StructType

    return to_ddl(StructType.fromJson(json.loads(schema)))

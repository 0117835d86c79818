"""`kafka://broker/topics`: Spark's own connector, with the options of a reference."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headwater.errors import HeadwaterError
from headwater.options import OptionError, Secret, parse_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["is_kafka", "kafka_options", "kafka_stream"]

_SCHEME = "kafka://"
_SECRET = re.compile(r"password|secret|token|jaas|credential|keystore\.key", re.IGNORECASE)
_TOPICS = ("subscribe", "subscribepattern", "assign")


def is_kafka(reference: str) -> bool:
    return reference.lower().startswith(_SCHEME)


def kafka_options(reference: str) -> dict[str, str]:
    """The options of Spark's connector; OptionError if the reference makes no sense, or contains a secret.

    >>> kafka_options("kafka://a:9092,b:9092/orders?startingOffsets=earliest")["subscribe"]
    'orders'
    """
    address, _, query = reference[len(_SCHEME) :].partition("?")
    brokers, _, topics = address.partition("/")
    if "@" in brokers:
        raise OptionError(
            "a URI of Kafka contains a user or a password, which must not be in a reference, because logs "
            "would show it: write where it is in the query, as in ?kafka.sasl.jaas.config=file:PATH"
        )
    if not brokers:
        raise OptionError("a URI of Kafka has no broker: write kafka://host:9092/topic")
    options = {name: _value(name, value) for name, value in parse_query(query).items()}
    names = {name.lower() for name in options}
    if "kafka.bootstrap.servers" in names or (topics and names.intersection(_TOPICS)):
        raise OptionError("a URI of Kafka sets the brokers or the topics twice: keep one")
    if not topics and not names.intersection(_TOPICS):
        raise OptionError(
            "a URI of Kafka has no topics: write kafka://host:9092/topic1,topic2, or ?subscribePattern=…"
        )
    return {"kafka.bootstrap.servers": brokers, **({"subscribe": topics} if topics else {}), **options}


def kafka_stream(spark: SparkSession, reference: str) -> DataFrame:
    """Raises HeadwaterError if Spark has no Kafka connector."""
    reader = spark.readStream.format("kafka").options(**kafka_options(reference))
    try:
        return reader.load()
    except Exception as error:
        if not re.search(r"DATA_SOURCE_NOT_FOUND|Failed to find (the )?data source: kafka", str(error)):
            raise
    package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}"
    raise HeadwaterError(
        "Spark's Kafka connector is not on the class path",
        f"start Spark with it, as in spark-submit --packages {package}, or spark.jars.packages={package}",
    )


def _value(name: str, value: str) -> str:
    if not _SECRET.search(name):
        return value
    if not value.startswith(("env:", "file:")):
        raise OptionError(
            f"option '{name}' of Kafka is a secret, which must not be in a reference, because logs would "
            f"show it: write where it is, as in {name}=env:NAME or {name}=file:PATH"
        )
    return Secret(value).reveal()

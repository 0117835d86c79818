"""`kafka://broker/topics`: Spark's own connector, on Spark 4.0 with a real broker."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import JAR, ROOT, running, spark_environment
from pyspark.sql import SparkSession
from servers import _free_port

import headwater as hw
from headwater.options import OptionError
from headwater.spark.kafka import kafka_options

KAFKA = ROOT / ".tools" / "kafka"
PYTHON = ROOT / ".venvs" / "spark-4.0" / "bin" / "python"
CONNECTOR = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")


@pytest.mark.parametrize(
    ("reference", "options"),
    [
        ("kafka://a:9092/t", {"subscribe": "t"}),
        ("KAFKA://a:9092,b:9092/t,u", {"kafka.bootstrap.servers": "a:9092,b:9092", "subscribe": "t,u"}),
        ("kafka://a:9092?subscribePattern=t.*", {"subscribePattern": "t.*"}),
        ("kafka://a:9092/t?startingOffsets=earliest", {"subscribe": "t", "startingOffsets": "earliest"}),
        ("kafka://a:9092/t?kafka.group.id=g%26h", {"subscribe": "t", "kafka.group.id": "g&h"}),
    ],
)
def test_a_reference_sets_the_options_of_the_connector(reference: str, options: dict[str, str]) -> None:
    assert kafka_options(reference) == {"kafka.bootstrap.servers": "a:9092", **options}


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("kafka://me:hush@a/t", r"contains a user or a password, .*kafka\.sasl\.jaas\.config=file:PATH"),
        ("kafka://a/t?kafka.ssl.key.password=hush", r"is a secret, .*kafka\.ssl\.key\.password=env:NAME"),
        ("kafka://a/t?kafka.sasl.jaas.config=hush", "is a secret"),
        ("kafka:///t", "has no broker: write kafka://host:9092/topic"),
        ("kafka://a", "has no topics"),
        ("kafka://a/t?subscribe=u", "sets the brokers or the topics twice"),
    ],
)
def test_what_is_wrong_with_a_reference_is_said_without_a_secret(reference: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as raised:
        kafka_options(reference)
    assert "hush" not in str(raised.value)


def test_a_secret_is_given_by_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hush")
    options = kafka_options("kafka://a/t?kafka.ssl.key.password=env:KAFKA_PASSWORD")
    assert options["kafka.ssl.key.password"] == "hush"


def test_a_missing_connector_is_said_with_what_to_add(spark_session: SparkSession) -> None:
    package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark_session.version}"
    with pytest.raises(hw.HeadwaterError, match="Kafka connector is not on the class path") as raised:
        hw.stream(spark_session, "kafka://a:9092/t")
    assert package in str(raised.value)


def test_options_of_headwaters_sources_are_refused(spark_session: SparkSession) -> None:
    with pytest.raises(ValueError, match="max_rows_per_trigger is an option of headwater's sources"):
        hw.stream(spark_session, "kafka://a:9092/t", max_rows_per_trigger=5)


def _accepts(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """A broker and controller in one JVM, on loopback."""
    port, controller = _free_port(), _free_port()
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(tmp_path / "kafka"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    properties = tmp_path / "server.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    java = subprocess.run([ROOT / "project" / "require-java"], capture_output=True, text=True, check=True)
    command = [java.stdout.strip(), "-Xmx512m", "-cp", f"{KAFKA}/broker/*"]
    format_storage = [
        "kafka.tools.StorageTool",
        "format",
        "-t",
        "MkU3OEVBNTcwNTJENDM2Qg",
        "-c",
        str(properties),
    ]
    subprocess.run([*command, *format_storage], check=True, capture_output=True, timeout=240)
    with running(
        [*command, "kafka.Kafka", str(properties)], tmp_path / "kafka.log", dict(os.environ)
    ) as process:
        process.until("it listens", lambda: _accepts(port), timeout=240)  # it has no logger
        yield f"127.0.0.1:{port}"


def test_a_feed_goes_into_kafka_and_from_kafka_into_a_query(broker: str, tmp_path: Path) -> None:
    jars = [str(jar) for jar in sorted((KAFKA / "connector").glob("*.jar")) if jar.name.startswith(CONNECTOR)]
    assert len(jars) == len(CONNECTOR)
    spark_home = next(PYTHON.parent.parent.glob("lib/python3*/site-packages/pyspark"))
    env = spark_environment(
        SPARK_HOME=str(spark_home), PYSPARK_PYTHON=str(PYTHON), PYTHONPATH=str(ROOT / "python")
    )
    env.pop("SPARK_SUBMIT_OPTS")  # its class archive is that of another Spark
    submit = [
        str(spark_home / "bin" / "spark-submit"),
        "--master",
        "local[2]",
        "--jars",
        ",".join([str(JAR), *jars]),
    ]
    submit += [
        "--conf",
        "spark.ui.enabled=false",
        str(ROOT / "examples" / "kafka_both_ways.py"),
        broker,
        "rsvps",
    ]
    with running(submit, tmp_path / "example.log", env) as process:
        assert "500 RSVPs went to Kafka, and 500 came back" in process.wait(300)

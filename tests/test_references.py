"""References: strings that name a source and set its options, wherever a text can name one.

Imports a private module: what a reference means needs no Spark to be seen.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import headwater as hw
from headwater import references
from headwater.cli.main import main
from headwater.options import OptionError, parse_query
from headwater.sim import RsvpSim
from headwater.sources import mqtt, ndjson, poll, random_alpha, redis, sse, tail, webhook, websocket

MODULE = """
import headwater as hw

@hw.source("word STRING")
def ref_words(length: int = 3, count: int = 2, token: hw.Secret | None = None):
    for n in range(count):
        yield "ab"[n % 2] * length
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    file = tmp_path / "reference_feeds.py"
    file.write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield file
    sys.modules.pop("reference_feeds", None)


class RefQueue(hw.Source, name="ref_queue", schema="topic STRING", schemes=("refq", "refqs")):
    """A source as those of message queues are: the path of its URIs has a meaning of its own."""

    def __init__(
        self,
        host: str,
        topics: list[str],
        port: int = 1883,
        tls: bool = False,
        user: str | None = None,
        password: hw.Secret | None = None,
        tokens: list[hw.Secret] | None = None,
        qos: int = 0,
    ) -> None:
        self._topics = topics

    @classmethod
    def uri_options(cls, uri: SplitResult, /) -> dict[str, str]:
        if not uri.hostname:
            raise ValueError("it has no host")
        options = {"host": uri.hostname, "tls": str(uri.scheme == "refqs").lower()}
        if uri.path.strip("/"):
            options["topics"] = json.dumps([uri.path[1:]])
        if uri.username:
            options["user"] = uri.username
        return options | ({} if uri.port is None else {"port": str(uri.port)})

    def read(self) -> Iterator[str]:
        yield from self._topics


def configured(reference: str) -> Any:
    return references.resolve(reference).configured()


# What a reference means


@pytest.mark.parametrize(
    ("reference", "source"),
    [
        ("sse+https://example.org/events", sse("https://example.org/events")),
        ("SSE+HTTPS://example.org/events", sse("https://example.org/events")),
        ("sse+http://127.0.0.1:8080", sse("http://127.0.0.1:8080")),
        (
            "ndjson+https://example.org/a%20b?decode=json&schema=n%20INT&maxRetries=3",
            ndjson("https://example.org/a%20b", decode="json", schema="n INT", max_retries=3),
        ),
        ("sse?url=https%3A%2F%2Fexample.org%2F%3Fa%3D1%26b", sse("https://example.org/?a=1&b")),
        ("poll+https://example.org/api?interval=5s", poll("https://example.org/api", timedelta(seconds=5))),
        ("wss://example.org/x?sequence=n", websocket("wss://example.org/x", sequence="n")),
        ("mqtts://me@h:1/a/+/#?clientId=c", mqtt("mqtts://h:1", ["a/+/#"], client_id="c", user="me")),
        ("redis://localhost/1?match=a*", redis("redis://localhost/1", match="a*")),
        ("webhook:", webhook()),
        ("webhook://0.0.0.0:81/a?decode=binary", webhook(81, "0.0.0.0", ["/a"], decode="binary")),
        ("tail:/var/log/a%20b", tail("/var/log/a b")),
        ("tail:-", tail("-")),
        ("random_alpha?len=5", random_alpha(5)),
        ("Random_Alpha?len=5&rowsPerSecond=1", random_alpha(5, 1)),
        ("refq://h/a/#", RefQueue("h", ["a/#"])),
        ("refqs://me@h:1/+/b?qos=2", RefQueue("h", ["+/b"], 1, True, "me", None, None, 2)),
        ("refq://h?topics=a,b", RefQueue("h", ["a", "b"])),
    ],
)
def test_a_reference_is_the_source_with_its_options(reference: str, source: Any) -> None:
    assert configured(reference) == source


@pytest.mark.parametrize("reference", ["reference_feeds:ref_words", "./reference_feeds.py:ref_words"])
def test_a_source_of_a_module_or_a_file_takes_options_as_a_query(module: Path, reference: str) -> None:
    assert list(configured(f"{reference}?length=1")) == ["a", "b"]
    assert list(configured("reference_feeds.py?length=2&COUNT=1")) == ["aa"]


def test_a_source_that_this_process_has_defined_is_found_by_its_name() -> None:
    assert references.resolve("REF_queue").source is RefQueue


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("sse+https://h/p?decod=json", r"source 'sse' has no option 'decod'\. Did you mean 'decode'\?"),
        ("sse+https://h/p?since=1", r"for a URL with a query of its own, write sse\?url=…, percent-encoded$"),
        ("sse+https://h/p?url=x", "option 'url' of source 'sse' is set twice, in the reference or beside it"),
        ("refq://h/t?q_os=1&qos=1", "source 'ref_queue' got 'q_os' and 'qos', which are one option"),
        ("refq://h/t?qos=1&qos=2", "sets the option 'qos' twice: keep one"),
        ("refq://h/t?qos", "has a part that is not NAME=VALUE"),
        ("refq://h/t?=1", "has a part that is not NAME=VALUE"),
        ("refq://h/t?user=%ff", "is not in UTF-8"),
        ("refq:t", "a URI of source 'ref_queue' is not valid: it has no host"),
        ("refq://h:x/t", "a URI of source 'ref_queue' is not valid: Port could not be cast"),
        ("sse+https://h?max_rows_per_trigger=1", "maxRowsPerTrigger is an option of every source"),
        (
            "https://h/p",
            r"no source has the scheme 'https:' \(did you mean ndjson\+https: or .*sse\+https:\?\)",
        ),
        ("sse+htps://h/p", r"no source has the scheme 'sse\+htps:' \(did you mean sse\+https?:\?\)"),
        ("kafka://h/t", r"Spark's own connector reads Kafka, .*hw\.stream\(spark, \"kafka://…\"\)"),
        ("no_such_source?a=1", "there is no source 'no_such_source'; the sources are: .*, sse"),
        ("no_such_module:x", "there is no module 'no_such_module'"),
    ],
)
def test_what_is_wrong_with_a_reference_is_said(reference: str, message: str) -> None:
    with pytest.raises((OptionError, hw.HeadwaterError), match=message):
        configured(reference)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("refq://me:hush@h/t", r"contains a password, .* \?password=env:NAME or \?tokens=env:NAME$"),
        ("refq://:hush@h/t", "contains a password"),
        (
            "refq://h/t?password=hush",
            r"option 'password' of source 'ref_queue' is a secret.*password=env:NAME",
        ),
        ("refq://h/t?PASS_WORD=hush", "option 'password' of source 'ref_queue' is a secret"),
        ("refq://h/t?tokens=env:A,hush", "option 'tokens' of source 'ref_queue' is a secret"),
        ("ref_queue?password=hush", "option 'password' of source 'ref_queue' is a secret"),
        ("refq://h/t?pasword=hush", "has no option 'pasword'. Did you mean 'password'"),
        ("other://me:hush@h/t", "no source has the scheme 'other:'"),
        ("sse+https://hush@h/p", "contains a user or password, which logs would show: use option 'headers'"),
    ],
)
def test_a_secret_in_a_reference_is_refused_and_not_shown(reference: str, message: str) -> None:
    with pytest.raises((OptionError, ValueError, hw.HeadwaterError), match=message) as raised:
        configured(reference)
    assert "hush" not in str(raised.value)


def test_a_secret_is_given_by_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REF_TOKEN", "hush")
    (tmp_path / "token").write_text("hush too\n")
    source = configured(f"refq://h/t?password=env:REF_TOKEN&tokens=file:{tmp_path}/token,env:REF_TOKEN")
    assert source._bound["password"].reveal() == "hush"
    assert [token.reveal() for token in source._bound["tokens"]] == ["hush too", "hush"]


@given(st.dictionaries(st.sampled_from(["user", "password"]), st.text(), min_size=1))
def test_any_value_survives_percent_encoding(values: dict[str, str]) -> None:
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in values.items())
    assert parse_query(query, "it") == values


# Schemes


def test_a_known_scheme_wins_over_a_module_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "refq.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match="a URI of source 'ref_queue' is not valid"):
        configured("refq:ref_words")


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ("mqtt", "the scheme 'mqtt' is that of a built-in source; choose another one"),
        ("kafka", "the scheme 'kafka' has another meaning"),
        ("refq", r"both .*RefQueue and .*Other have the scheme 'refq'"),
        ("a b", "'a b' cannot be a scheme"),
        ("c", "'c' cannot be a scheme"),
    ],
)
def test_a_scheme_that_is_taken_or_malformed_is_refused(scheme: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):

        class Other(hw.Source, name="ref_other", schema="n INT", schemes=(scheme,)):
            def read(self) -> Iterator[int]:
                yield 1

    assert "ref_other" not in [source.name for source in hw.registered()]


def test_a_class_that_is_defined_again_may_change_its_schemes() -> None:
    for schemes in (("refagain", "refagains"), ("refagain",)):

        class RefAgain(hw.Source, name="ref_again", schema="n INT", schemes=schemes):
            def __init__(self, url: str) -> None:
                pass

            def read(self) -> Iterator[int]:
                yield 1

        assert configured("refagain://h").__class__ is RefAgain
    with pytest.raises(hw.HeadwaterError, match="no source has the scheme 'refagains:'"):
        configured("refagains://h")


# Where references are accepted


def test_stream_takes_a_reference(module: Path, stream: Any) -> None:
    assert stream("reference_feeds:ref_words?count=3").rows(3) == [("aaa",), ("bbb",), ("aaa",)]
    assert stream("refq://h/a/%23/#").rows(1) == [("a/%23/#",)]


def test_format_headwater_takes_a_reference(module: Path, spark_session: SparkSession) -> None:
    hw.attach(spark_session)
    reader = spark_session.readStream.format("headwater").option("source", "refq://h/x?qos=1")
    query = (
        reader.load().writeStream.format("memory").queryName("ref_format").trigger(availableNow=True).start()
    )
    try:
        assert query.awaitTermination(120)
        assert spark_session.table("ref_format").collect() == [("x",)]
        assert "ref_queue(host='h'" in query.lastProgress["sources"][0]["description"]
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("refq://me:hush@h/t", "a URI of source 'ref_queue' contains a password"),
        ("refq://h/t?qoss=hush", "source 'ref_queue' has no option 'qoss'. Did you mean 'qos'"),
        ("random_alpha?len=1", "Source 'random_alpha' runs in Spark's JVM: write format(\"random_alpha\")"),
        ("no_such_module:x", "there is no module 'no_such_module'"),
    ],
)
def test_format_headwater_says_what_is_wrong(
    spark_session: SparkSession, reference: str, message: str
) -> None:
    hw.attach(spark_session)
    with pytest.raises(
        Exception, match="(?s)^.*" + message.replace("(", r"\(").replace(")", r"\)")
    ) as raised:
        spark_session.readStream.format("headwater").option("source", reference).load()
    assert "hush" not in str(raised.value)


def test_an_option_beside_the_reference_adds_to_it_and_may_not_repeat_it(spark_session: SparkSession) -> None:
    hw.attach(spark_session)
    reader = spark_session.readStream.format("headwater").option("source", "refq://h")
    assert reader.option("topics", "a").load().columns == ["topic"]
    with pytest.raises(Exception, match="option 'host' of source 'ref_queue' is set twice"):
        reader.option("HOST", "other").load()


def test_the_commands_take_references(
    module: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["peek", "--json", "reference_feeds.py:ref_words?length=1", "-o", "count=1"]) == 0
    assert capsys.readouterr().out == '{"word": "a"}\n'
    with RsvpSim(seed=1, rate=0, count=1) as sim:
        reference = f"ndjson+{sim.url}?decode=json&schema=rsvp_id%20LONG"
        assert main(["peek", "--json", "-n", "1", reference]) == 0
        assert capsys.readouterr().out == '{"rsvp_id": 1700000000}\n'
        assert main(["describe", reference]) == 0
        assert capsys.readouterr().out.startswith("ndjson\n")
    assert main(["peek", "refq://me:hush@h/t"]) == 1
    assert main(["peek", "kafka://h/t"]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2
    assert "hush" not in errors[0]
    assert errors[1].startswith("headwater: Spark's own connector reads Kafka")

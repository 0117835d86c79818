"""Secrets that are references: how they are read, and that they appear in no message, log or page.

`headwater.registry` is imported to see which strings messages mask.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import Run
from pyspark.sql import SparkSession

import headwater as hw
from headwater import registry

Stream = Any  # a fixture that starts a RunningStream


@hw.source("length LONG")
def secret_length(token: hw.Secret, keys: list[hw.Secret] | None = None) -> Iterator[int]:
    yield len(token.reveal())
    raise RuntimeError(f"cannot log in with {token.reveal()!r}")


def test_a_variable_is_read_when_the_secret_is_revealed(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = hw.Secret("env:SECRET_TOKEN")
    monkeypatch.setenv("SECRET_TOKEN", " hush\n")
    assert secret.reveal() == " hush\n"
    monkeypatch.setenv("SECRET_TOKEN", "hush again")
    assert secret.reveal() == "hush again"
    assert repr(secret) == "Secret(***)"


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"hush", "hush"), (b"hush\n", "hush"), (b"hush\r\n", "hush"), (b" a\nb\n\n", " a\nb\n"), (b"", "")],
)
def test_a_file_is_read_without_the_line_break_at_its_end(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "token").write_bytes(content)
    assert hw.Secret(f"file:{tmp_path}/token").reveal() == text


def test_a_reference_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"hush\xff")
    (tmp_path / "large").write_bytes(b"hush" * 300_000)
    for written, message in [
        ("env:SECRET_NONE", "the environment variable 'SECRET_NONE' is not set"),
        ("env:", "variable '' is not set"),
        (f"file:{tmp_path}/none", "No such file"),
        (f"file:{tmp_path}", "Is a directory"),
        (f"file:{tmp_path}/latin", "not in UTF-8"),
        (f"file:{tmp_path}/large", "larger than 1,048,576 bytes"),
        ("file:a\0b", "null"),
    ]:
        with pytest.raises(hw.HeadwaterError) as caught:
            hw.Secret(written).reveal()
        assert f"the secret {written!r}" in str(caught.value)
        assert message in str(caught.value)
        assert "hush" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_references_are_compared_as_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    assert hw.Secret("env:SECRET_TOKEN") == hw.Secret("env:SECRET_TOKEN") != hw.Secret("hush")


def test_options_accept_references_and_lists_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    source = registry.find("secret_length", {"token": "env:SECRET_TOKEN", "keys": "env:SECRET_TOKEN,b"})
    assert source == secret_length(token="env:SECRET_TOKEN", keys=["env:SECRET_TOKEN", "b"])
    assert next(iter(source)) == 4
    assert repr(source) == "secret_length(token=***, keys=***)"


def test_all_values_a_reference_had_are_masked_but_not_the_reference(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    written = {"token": f"file:{file}"}
    assert registry.secrets_in("secret_length", written) == []
    file.write_text("first")
    hw.Secret(f"file:{file}").reveal()
    file.write_text("second")
    assert {*registry.secrets_in("secret_length", written)} == {"first", "second"}
    file.unlink()
    assert {*registry.secrets_in("secret_length", written)} == {"first", "second"}
    assert {*registry.secrets_in("secret_length", {**written, "wrong": "x"})} == {"first", "second"}


def test_the_values_of_headers_are_masked_too() -> None:
    held = registry.hold(secret_length(token="Authorization: Bearer abc\nX-Key: 12345"))
    known = registry.secrets_in(held, {})
    assert {"Authorization: Bearer abc", "Bearer abc", "X-Key: 12345", "12345"} <= {*known}
    assert registry.secrets_in(registry.hold(secret_length(token="a: b")), {}) == ["a: b"]


def test_a_query_with_a_missing_reference_fails_and_names_it(stream: Stream) -> None:
    failure = stream(secret_length(token="env:SECRET_NONE")).failure()
    assert "HeadwaterError: cannot read the secret 'env:SECRET_NONE'" in failure


def test_a_secret_appears_nowhere(
    spark_session: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Not in the plan, the progress, the failure, the feed, the logs of Python, nor what is on disk."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SECRET_TOKEN", "hush-hush")
    (tmp_path / "token").write_text("hush-hush\n")
    hw.attach(spark_session)
    reader = spark_session.readStream.format("secret_length")
    frames = [
        reader.option("token", "env:SECRET_TOKEN").load(),
        reader.option("token", f"file:{tmp_path}/token").load(),
        hw.stream(spark_session, secret_length(token="hush-hush")),
    ]
    seen = []
    for number, frame in enumerate(frames):
        frame.explain(extended=True)
        writer = frame.writeStream.format("memory").queryName(f"secrets_{number}")
        query = writer.option("checkpointLocation", str(tmp_path / f"checkpoint-{number}")).start()
        with pytest.raises(Exception, match=r"cannot log in with '\*\*\*'") as caught:
            query.awaitTermination(60)
        assert spark_session.table(f"secrets_{number}").collect() == [(9,)]
        seen += [str(caught.value), str(query.exception()), str(query.recentProgress), repr(hw.feeds())]
    seen += [caplog.text, *capsys.readouterr()]
    (tmp_path / "token").unlink()
    seen += [file.read_text("latin-1") for file in tmp_path.rglob("*") if file.is_file()]
    assert not [text for text in seen if "hush-hush" in text]


def test_a_secret_appears_neither_in_the_event_log_nor_in_sparks_logs(run: Run, tmp_path: Path) -> None:
    script = f"""
        import os
        os.environ["SECRET_TOKEN"] = "hush-" + "hush"

        @hw.source("n LONG")
        def login(token: hw.Secret):
            yield len(token.reveal())
            raise RuntimeError("cannot log in with " + token.reveal())

        logged = builder().config("spark.eventLog.enabled", "true").config("spark.eventLog.compress", "false")
        spark = hw.session(logged.config("spark.eventLog.dir", {str(tmp_path)!r}))
        spark.sparkContext.setLogLevel("INFO")
        by_name = spark.readStream.format("login").option("token", "env:SECRET_TOKEN").load()
        for frame in (by_name, hw.stream(spark, login(token="hush-" + "hush"))):
            query = frame.writeStream.format("noop").start()
            try:
                query.awaitTermination(60)
            except Exception as error:
                print("failed with", error)
        spark.stop()
        report("done")
    """
    assert run(script) == "done"
    files = {file: file.read_text("latin-1") for file in tmp_path.rglob("*") if file.is_file()}
    told = [file.name for file, text in files.items() if "cannot log in with ***" in text]
    assert "command.log" in told
    assert [name for name in told if name.startswith("events_")]
    assert [file for file, text in files.items() if "hush-hush" in text] == []


def test_a_secret_appears_on_no_page_of_sparks_web_ui(run: Run) -> None:
    """Pages of queries that run and of one that has failed, each of which does show its query."""
    script = """
        import os
        from urllib.request import urlopen
        os.environ["SECRET_TOKEN"] = "hush-" + "hush"

        @hw.source("n LONG")
        def login(token: hw.Secret, fails: bool = False):
            while not fails:
                yield len(token.reveal())
                time.sleep(0.5)
            raise RuntimeError("cannot log in with " + token.reveal())

        shown = builder().appName("who logs in").config("spark.ui.enabled", "true")
        spark = hw.session(shown.config("spark.ui.port", "0"))
        by_name = spark.readStream.format("login").option("token", "env:SECRET_TOKEN").load()
        by_hand, fails = (hw.stream(spark, login("hush-" + "hush", fails=fails)) for fails in (False, True))
        frames = {"by_name": by_name, "by_hand": by_hand, "failed": fails}
        queries = {
            name: frame.writeStream.format("noop").queryName(name).start() for name, frame in frames.items()
        }
        try:
            queries.pop("failed").awaitTermination(60)
        except Exception as error:
            print("failed with", error)

        def page(path):
            with urlopen(spark.sparkContext.uiWebUrl + path) as answer:
                return answer.read().decode()

        api = f"/api/v1/applications/{spark.sparkContext.applicationId}"

        def first_execution(name):
            found = json.loads(page(f"{api}/sql?length=1000"))
            return next((each["id"] for each in found if each["description"].startswith(name)), None)

        wanted = {
            "/environment/": ["who logs in"],
            "/SQL/": ["who logs in"],
            "/StreamingQuery/": [*frames, "cannot log in with ***"],
            "/jobs/": [*queries],
            "/stages/": [*queries],
            f"{api}/environment": ["who logs in"],
            f"{api}/jobs": [*queries],
            f"{api}/sql?details=true&length=1000": [*queries, "login(token=***)"],
        }
        end = time.monotonic() + 60
        for name, query in queries.items():
            while first_execution(name) is None:
                assert time.monotonic() < end, query.status
                time.sleep(0.1)
            wanted[f"/StreamingQuery/statistics/?id={query.runId}"] = [name]
            wanted[f"/SQL/execution/?id={first_execution(name)}"] = ["login(token=***)"]

        def missing(path):
            text = page(path)
            return [text, [words for words in wanted[path] if words not in text]]

        pages = {path: missing(path) for path in wanted}
        while any(words for _, words in pages.values()) and time.monotonic() < end:
            time.sleep(0.2)
            pages = {path: missing(path) for path in wanted}
        for query in queries.values():
            query.stop()
        spark.stop()
        report(pages)
    """
    pages = run(script)
    assert [path for path, (text, _) in pages.items() if "hush-hush" in text] == []
    assert {path: missing for path, (_, missing) in pages.items() if missing} == {}
    assert len(pages) == 12

"""The simulators, read with plain requests: their protocols, records and faults.

Imports the private Timeline, to test its arithmetic without waiting.
"""

from __future__ import annotations

import doctest
import importlib
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from processes import running, wait_until

import headwater as hw
from headwater.schema import struct_type
from headwater.sim import (
    BadRecord,
    Cut,
    CutMidCharacter,
    CutMidRecord,
    End,
    Fault,
    Redirect,
    Repeat,
    Reset,
    RsvpSim,
    Skip,
    Stall,
    Status,
    WikimediaSim,
    fault,
)
from headwater.sim.timeline import Timeline

START = datetime(2024, 5, 31, 12, tzinfo=timezone.utc)
BROKEN = requests.exceptions.ChunkedEncodingError


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@contextmanager
def response(url: str, **more: Any) -> Iterator[requests.Response]:
    with requests.Session() as session:
        session.trust_env = False
        with closing(session.get(url, stream=True, timeout=10, **more)) as reply:
            yield reply


def connected(sim: Any) -> socket.socket:
    host, port = sim.url.split("/")[2].split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def lines(url: str, count: int | None = None, **more: Any) -> list[bytes]:
    """The first `count` lines, or all up to the end of the response."""
    with response(url, **more) as reply:
        assert reply.status_code == 200, reply.text
        return list(itertools.islice(reply.iter_lines(chunk_size=None), count))


def ids(records: list[bytes]) -> list[int]:
    return [json.loads(line)["rsvp_id"] for line in records]


def events(url: str, count: int, **more: Any) -> list[dict[str, str]]:
    received: list[dict[str, str]] = []
    with response(url, **more) as reply:
        assert reply.status_code == 200, reply.text
        event: dict[str, str] = {}
        for line in reply.iter_lines(chunk_size=None):
            name, _, value = line.decode().partition(": ")
            if line and not line.startswith(b":"):
                event[name] = value
            elif event:
                received.append(event)
                event = {}
            if len(received) == count:
                break
    return received


def offsets(received: list[dict[str, str]]) -> list[int]:
    return [json.loads(event["data"])["meta"]["offset"] for event in received]


# Records


def test_a_record_depends_only_on_seed_and_number() -> None:
    with (
        RsvpSim(seed=7, rate=0, count=100, start=START) as one,
        RsvpSim(seed=7, rate=0, start=START) as two,
        RsvpSim(seed=8, rate=0, start=START) as other,
    ):
        assert lines(one.url, 100) == [two.line(n).rstrip() for n in range(100)]
        assert one.line(3) != other.line(3)
        assert one.sent == list(range(100))
        assert two.sent == []


def test_rsvps_have_the_quirks_of_the_real_feed() -> None:
    with RsvpSim(seed=1, rate=0, count=1000, start=START) as sim:
        texts, records = [sim.line(n) for n in range(1000)], [sim.record(n) for n in range(1000)]
    assert [json.loads(text) for text in texts] == records
    assert any(b"\\/" in text for text in texts)
    assert any(b"/" in text and b"\\/" not in text for text in texts)
    assert any(not text.isascii() for text in texts)
    assert {"venue" in record for record in records} == {True, False}
    assert {"group_state" in record["group"] for record in records} == {True, False}
    assert {"time" in record["event"] for record in records} == {True, False}
    assert {record["response"] for record in records} == {"yes", "no"}
    mtimes = [record["mtime"] for record in records]
    assert mtimes == sorted(mtimes)
    assert max(Counter(mtimes).values()) > 1
    assert max(Counter(record["rsvp_id"] for record in records).values()) > 1
    assert max(Counter((record["rsvp_id"], record["mtime"]) for record in records).values()) == 1


def test_each_record_is_a_chunk_of_its_own() -> None:
    with RsvpSim(rate=0, count=5, faults=[End(5), End(4)]) as sim, response(sim.url) as reply:
        assert [chunk.count(b"\n") for chunk in reply.raw.read_chunked()] == [1, 1, 1, 1]


def test_records_are_sent_at_their_rate() -> None:
    """At 20 per second, 6 records take a quarter of a second."""
    with RsvpSim(rate=20) as sim:
        began = datetime.now(timezone.utc)
        lines(f"{sim.url}?since_count=1000", 6)
        assert (datetime.now(timezone.utc) - began).total_seconds() > 0.15
        assert sim.sent[:6] == list(range(6))


@given(rate=st.one_of(st.just(0), st.floats(0.01, 50_000)), n=st.integers(0, 10**7), off=st.integers(-3, 3))
def test_times_never_go_back_and_the_first_record_from_a_time_is_found(rate: float, n: int, off: int) -> None:
    timeline = Timeline(rate, None, START)
    moment = timeline.stamp(n) + off
    first = timeline.first_from(moment)
    assert timeline.stamp(n) <= timeline.stamp(n + 1)
    assert timeline.stamp(first) >= moment
    assert first == 0 or timeline.stamp(first - 1) < moment


def test_after_finish_no_more_records_are_made() -> None:
    with RsvpSim(rate=500) as sim, response(f"{sim.url}?since_count=9999") as reply:
        received = reply.iter_lines(chunk_size=None)
        next(received)
        total = sim.finish()
        wait_until(lambda: len(sim.sent) == total, lambda: sim.sent)
        assert sim.timeline.made == total
        assert ids(list(itertools.islice(received, total - 1))) == [
            sim.record(n)["rsvp_id"] for n in range(1, total)
        ]


# The protocol of RSVPs


def test_without_a_parameter_only_new_records_are_sent() -> None:
    with RsvpSim(rate=200) as sim:
        wait_until(lambda: sim.timeline.made > 5, lambda: sim.timeline.made)
        lines(sim.url, 3)
        first, *rest = sim.sent
        assert first > 5
        assert rest[:2] == [first + 1, first + 2]


def test_since_count_starts_with_the_last_records() -> None:
    with RsvpSim(rate=0, count=50) as sim:
        lines(f"{sim.url}?since_count=7", 7)
        assert sim.sent == list(range(43, 50))


def test_since_mtime_is_strictly_greater() -> None:
    with RsvpSim(rate=0, count=50, start=START) as sim:
        mtime = sim.record(3)["mtime"]
        assert [sim.record(n)["mtime"] == mtime for n in range(1, 6)] == [False, True, True, True, False]
        lines(f"{sim.url}?since_mtime={mtime}", 45)
        lines(f"{sim.url}?since_mtime={mtime - 1}", 48)
        assert sim.sent == [*range(5, 50), *range(2, 50)]
        assert sim.requests[0].query == {"since_mtime": str(mtime)}


@pytest.mark.parametrize(
    ("query", "status", "reason"),
    [
        ("?since_count=1&since_mtime=2", 400, "exclude each other"),
        ("?since_mtime=soon", 400, "since_mtime is 'soon'"),
        ("/more", 404, "there is nothing at /2/rsvps/more"),
    ],
)
def test_the_rsvp_feed_refuses_bad_requests_with_a_reason(query: str, status: int, reason: str) -> None:
    with RsvpSim(rate=0, count=1) as sim, response(sim.url + query) as reply:
        assert (reply.status_code, reason in reply.text) == (status, True)


# The protocol of Wikimedia


def test_an_event_id_contains_the_position_in_each_topic() -> None:
    with WikimediaSim(rate=0, count=24, start=START) as sim:
        received = events(sim.url.replace("recentchange", "recentchange,page-create"), 22)
        id, data = json.loads(received[-1]["id"]), json.loads(received[-1]["data"])
    assert {event["event"] for event in received} == {"message"}
    assert id == [
        {"topic": "eqiad.mediawiki.recentchange", "partition": 0, "offset": 1_000_020},
        {"topic": "codfw.mediawiki.recentchange", "partition": 0, "offset": -1},
        {"topic": "eqiad.mediawiki.page-create", "partition": 0, "offset": 2_000_002},
        {"topic": "codfw.mediawiki.page-create", "partition": 0, "offset": -1},
    ]
    assert data["meta"]["topic"] == "eqiad.mediawiki.recentchange"
    assert data["meta"]["dt"].startswith("2024-05-31T12:00:00.")
    assert sum(json.loads(event["data"])["meta"]["domain"] == "canary" for event in received) == 1


@pytest.mark.parametrize("streams", ["recentchange", "recentchange,revision-create,page-create"])
def test_each_event_s_id_leads_to_the_next_event(streams: str) -> None:
    with WikimediaSim(rate=0, count=60) as sim:
        url = sim.url.replace("recentchange", streams)
        total = len([n for n in range(60) if sim.record(n)["meta"]["stream"].split(".")[1] in streams])
        received = events(url, total)
        for n in range(total - 1):
            (following,) = events(url, 1, headers={"Last-Event-ID": received[n]["id"]})
            assert following == received[n + 1]


def test_ids_by_timestamp_are_shared_and_resuming_skips_events_that_share_one() -> None:
    """As in the public service."""
    with WikimediaSim(rate=0, count=12, ids="timestamp", start=START) as sim:
        received = events(sim.url, 8)
        shared = [n for n in range(7) if received[n]["id"] == received[n + 1]["id"]]
        assert shared
        (following,) = events(sim.url, 1, headers={"Last-Event-ID": received[shared[0]]["id"]})
        assert following not in received[: shared[0] + 2]


def test_since_is_a_time_in_milliseconds_or_in_iso_8601() -> None:
    with WikimediaSim(rate=0, count=48, start=START) as sim:
        stamp = sim.timeline.stamp(8)
        by_number = events(f"{sim.url}?since={stamp}", 5)
        by_text = events(f"{sim.url}?since=2024-05-31T12:00:00.008Z", 5)
    assert offsets(by_number) == offsets(by_text) == [1_000_007, 1_000_008, 1_000_009, 1_000_010, 1_000_011]


def test_a_quiet_stream_is_kept_alive_with_comments() -> None:
    with WikimediaSim(rate=0, count=0, keep_alive_seconds=0.01) as sim:
        assert lines(sim.url, 5) == [b":ok", b"", b":", b"", b":"]


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("", {"Last-Event-ID": "17"}, 400),
        ("", {"Last-Event-ID": '[{"topic": 1}]'}, 400),
        ("?since=yesterday", {}, 400),
        (",nothing", {}, 404),
    ],
)
def test_the_event_streams_refuse_bad_requests(path: str, headers: Any, status: int) -> None:
    with WikimediaSim(rate=0, count=1) as sim, response(sim.url + path, headers=headers) as reply:
        assert reply.status_code == status


def test_a_client_without_a_user_agent_gets_no_events() -> None:
    with WikimediaSim(rate=0, count=1) as sim, connected(sim) as reader:
        reader.sendall(b"GET /v2/stream/recentchange HTTP/1.1\r\nHost: x\r\n\r\n")
        assert reader.recv(65536).startswith(b"HTTP/1.1 403 ")


# Faults


def read_all(url: str, **more: Any) -> tuple[bytes, type[Exception] | None]:
    """The bytes that arrived, and the type of the error that ended them."""
    got = b""
    with response(url, **more) as reply:
        try:
            for chunk in reply.raw.stream(65536):
                got += chunk
        except Exception as error:
            return got, type(error)
        return got, None


@pytest.mark.parametrize(
    ("planned", "whole", "rest"),
    [
        (Cut(10), 10, 0),
        (Reset(10), 10, 0),
        (End(10), 10, 0),
        (CutMidRecord(10), 10, 100),
        (CutMidCharacter(10), 10, 20),
    ],
)
def test_a_connection_ends_at_its_fault(planned: Fault, whole: int, rest: int) -> None:
    with RsvpSim(seed=3, rate=0, count=20, faults=[planned]) as sim:
        with connected(sim) as reader:
            reader.sendall(b"GET /2/rsvps HTTP/1.1\r\nHost: x\r\n\r\n")
            got = b""
            try:
                while data := reader.recv(65536):
                    got += data
                was_reset = False
            except ConnectionResetError:
                was_reset = True
        last = got.rpartition(b"\r\n")[2]
        assert was_reset == isinstance(planned, Reset)
        assert got.endswith(b"\r\n0\r\n\r\n") == isinstance(planned, End)
        assert sim.sent == list(range(whole))
        assert len(last) >= rest
        assert sim.faults_come == [planned]
        if isinstance(planned, CutMidCharacter):
            with pytest.raises(UnicodeDecodeError, match="unexpected end of data"):
                last.decode()


def test_a_fault_happens_once_and_not_on_the_next_connection() -> None:
    with RsvpSim(rate=0, count=20, faults=[Cut(5), Cut(5, times=2)]) as sim:
        for _ in range(3):
            with pytest.raises(BROKEN):
                lines(sim.url)
        assert len(lines(sim.url, 20)) == 20
        assert sim.sent == [*range(5)] * 3 + [*range(20)]


def test_records_are_repeated_and_skipped() -> None:
    with RsvpSim(rate=0, count=12, faults=[Repeat(4, count=3), Skip(8, count=2)]) as sim:
        lines(sim.url, 13)
        assert sim.sent == [0, 1, 2, 3, 1, 2, 3, 4, 5, 6, 7, 10, 11]


def test_repeats_and_skips_count_only_events_of_the_requested_streams() -> None:
    with WikimediaSim(rate=0, count=24, faults=[Repeat(6, count=3), Skip(10, count=2)]) as sim:
        numbers = [offset - 1_000_000 for offset in offsets(events(sim.url, 21))]
        assert numbers == [0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7, 8, *range(11, 20)][:21]


@pytest.mark.parametrize("kind", [RsvpSim, WikimediaSim])
def test_a_bad_record_is_not_json_and_replaces_no_other(kind: Any) -> None:
    with kind(rate=0, count=6, faults=[BadRecord(2), End(5)]) as sim:
        text = read_all(sim.url)[0].decode()
        records = [line.removeprefix("data: ") for line in text.splitlines() if re.match(r"(data: )?{", line)]
        bad = [n for n, line in enumerate(records) if not is_json(line)]
        assert (bad, len(records) - 1) == ([2], len(sim.sent))


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def test_a_stall_ends_after_its_time_or_with_its_reader_or_with_the_simulator() -> None:
    with RsvpSim(rate=0, count=6, faults=[Stall(2, seconds=0.05)]) as sim:
        assert len(lines(sim.url, 6)) == 6
    with RsvpSim(rate=0, count=6, faults=[Stall(2)]) as sim:
        assert len(lines(sim.url, 2)) == 2
    sim = RsvpSim(rate=0, count=6, faults=[Stall(2)])
    with response(sim.url) as reply:
        received = reply.iter_lines(chunk_size=None)
        assert next(received)
        sim.close()
        with pytest.raises(BROKEN):
            list(received)


def test_requests_get_error_statuses_and_redirects() -> None:
    planned = [Status(429, retry_after=1, times=2), Redirect(), Status(503, after=3)]
    with RsvpSim(rate=0, count=3, faults=planned) as sim:
        for _ in range(2):
            with response(sim.url) as reply:
                assert (reply.status_code, reply.headers["Retry-After"]) == (429, "1")
        with response(f"{sim.url}?since_count=2", allow_redirects=False) as reply:
            assert (reply.status_code, reply.headers["Location"]) == (307, "/moved/2/rsvps?since_count=2")
        assert len(lines(sim.url.replace("/2/", "/moved/2/"), 3)) == 3
        with response(sim.url) as reply:
            assert reply.status_code == 503


def test_a_redirect_may_lead_to_another_server() -> None:
    with RsvpSim(rate=0, count=3) as other, RsvpSim(faults=[Redirect(other.url, 301)]) as sim:
        assert len(lines(sim.url, 3)) == 3
        assert other.sent == [0, 1, 2]


def test_close_ends_connections_whose_readers_wait_or_do_not_read() -> None:
    sim = RsvpSim(rate=0)
    never = f"{sim.url}?since_mtime=99999999999999"
    with connected(sim) as lazy, response(never) as waiting:
        lazy.sendall(b"GET /2/rsvps HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: len(sim.sent) > 1000, lambda: len(sim.sent))
        sim.close()
        with pytest.raises(requests.exceptions.ChunkedEncodingError):
            list(waiting.iter_lines())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cut@100", Cut(after=100)),
        ("cut-mid-record@1:times=3", CutMidRecord(1, times=3)),
        ("cut-mid-character", CutMidCharacter(0)),
        ("stall@2:seconds=0.5", Stall(2, seconds=0.5)),
        ("status:code=429,retry_after=1,times=2", Status(429, retry_after="1", times=2)),
        ("status@7", Status(503, after=7)),
        ("redirect:to=http://127.0.0.1:1/x,code=302", Redirect("http://127.0.0.1:1/x", 302)),
        ("repeat@3:count=9", Repeat(3, count=9)),
        ("skip@3", Skip(3)),
        ("bad-record@3", BadRecord(3)),
        ("reset@3", Reset(3)),
        ("end@3", End(3)),
    ],
)
def test_a_fault_can_be_written_on_a_command_line(text: str, expected: Fault) -> None:
    assert fault(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cat@100", "'cat@100' is not a fault; there are: cut@N, "),
        ("cut@soon", "'after' in 'cut@soon' is 'soon', it must be a number"),
        ("cut@1:seconds=3", "'seconds' in 'cut@1:seconds=3' is not one of after, times"),
        ("cut@-1", "after of Cut is -1, it must be 0 or more"),
        ("status:code=200", "code of Status is 200, it must be 204, or 400 to 599"),
        ("redirect:code=200", "code of Redirect is 200, it must be one of"),
    ],
)
def test_a_malformed_fault_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        fault(text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate": -1}, "rate is -1"),
        ({"count": -1}, "count is -1"),
        ({"start": datetime(2024, 1, 1)}, "must have a time zone"),
    ],
)
def test_settings_are_validated(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RsvpSim(**settings)
    with pytest.raises(ValueError, match="ids is 'x', it must be 'offset' or 'timestamp'"):
        WikimediaSim(ids="x")  # type: ignore[arg-type]


# The command


@pytest.mark.parametrize(("feed", "lines_each"), [("rsvp", 1), ("wikimedia", 4)])
def test_the_command_prints_its_url_and_serves_until_interrupted(
    feed: str, lines_each: int, clean_env: dict[str, str], tmp_path: Path
) -> None:
    options = ["--rate", "0", "--count", "9", "--fault", "end@4"]
    command = [sys.executable, "-m", "headwater", "sim", feed, *options]
    with running(command, tmp_path / "sim.log", {**clean_env, "PYTHONUNBUFFERED": "1"}) as process:
        url = process.until("its URL", lambda: re.match(r"(http://127\.0\.0\.1:\d+/\S+)\n", process.output))
        assert len([line for line in lines(url[1]) if not line.startswith(b":")]) >= 4 * lines_each
        for _ in range(2):  # as `timeout` does: to its child, and to the child's process group
            os.kill(process.popen.pid, signal.SIGINT)
        assert process.wait(10).splitlines()[1] == "requests 1, records 4, different ones 4"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fault", "cat@1"], "headwater: 'cat@1' is not a fault; there are: "),
        (["--rate", "-1"], "headwater: rate is -1.0, it must be 0 or more records per second"),
        (["--port", "99999"], "headwater: cannot listen on 127.0.0.1, port 99999: "),
    ],
)
def test_the_command_reports_bad_arguments_in_one_line(
    arguments: list[str], message: str, clean_env: dict[str, str], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "headwater", "sim", "rsvp", *arguments]
    done = subprocess.run(command, env=clean_env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(message)
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("module", ["faults", "timeline", "rsvp", "websocket", "wikimedia"])
def test_the_examples_in_docstrings_run(module: str) -> None:
    results = doctest.testmod(importlib.import_module(f"headwater.sim.{module}"))
    assert (results.attempted > 0, results.failed) == (True, 0)


def test_the_schema_has_all_fields_of_the_records() -> None:
    with RsvpSim(rate=0, count=0) as sim:
        records = [sim.record(n) for n in range(200)]
    schema = struct_type(hw.RSVP_SCHEMA)
    assert {key for record in records for key in record} == set(schema.names)
    for name in ("venue", "member", "event", "group"):
        names = {key for record in records for key in record.get(name, {})}
        assert names == set(schema[name].dataType.names)

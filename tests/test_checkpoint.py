"""`headwater checkpoint`: what it reports on logs that are intact, torn, damaged, or not logs at all.

Most tests call it inside the JVM of the test session, since starting a JVM for each of thousands of logs
would take too long. The last ones run the command as a process.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_writer import GOLDEN, RUN, Folder, checksum, commit, frame, manifest, offset, segment
from processes import running, wait_until
from pyspark.sql import SparkSession

RELEASED = GOLDEN / "checkpoints-0.1"

both_formats = pytest.mark.parametrize("version", [1, 2])

Headwater = Callable[..., tuple[int, str, str]]


@dataclass
class Finding:
    kind: str
    file: str
    at: int
    what: str
    lost: tuple[int, int | None] | None = None


class Log:
    """The first source of a checkpoint, as `show --json` describes it."""

    def __init__(self, source: dict[str, Any]) -> None:
        self.source: dict[str, Any] = source
        self.ranges = [tuple(rows) for rows in source["rows"]["ranges"]]
        self.rows: int = source["rows"]["retained"]
        self.waiting: int = source["rows"]["waiting"]
        self.committed: int = source["rows"]["committedUpTo"]
        self.cursors: dict[str, Any] = source["cursors"]
        self.segments: list[dict[str, Any]] = source["segments"]
        self.findings = [
            Finding(
                kind, one["file"], one["at"], one["what"], tuple(lost) if (lost := one.get("lost")) else None
            )
            for kind in ("damage", "torn", "ignored")
            for one in source[kind]
        ]


ReadLog = Callable[[Folder], Log]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    checkpoint = Folder(tmp_path / "checkpoint")
    for name in ("offsets", "commits", "sources"):
        (checkpoint.path / name).mkdir(parents=True)
    return checkpoint


@pytest.fixture
def headwater(spark_session: SparkSession) -> Headwater:
    jvm: Any = spark_session._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    tool = loader.loadClass("headwater.log.CheckpointTool$").getField("MODULE$").get(None)

    def run(verb: str, path: object, *options: str) -> tuple[int, str, str]:
        out, err = jvm.java.io.StringWriter(), jvm.java.io.StringWriter()
        status = tool.run(verb, "json" if options else "text", str(path), out, err)
        return status, out.toString(), err.toString()

    return run


@pytest.fixture
def read_log(headwater: Headwater) -> ReadLog:
    def read(folder: Folder) -> Log:
        status, out, err = headwater("show", folder.path, "--json")
        assert (status, err) == (0, "")
        return Log(json.loads(out)["sources"][0])

    return read


def kinds(log: Log) -> list[str]:
    """Damage first, then torn tails, then what is ignored."""
    return [finding.kind for finding in log.findings]


def lost(log: Log) -> list[Any]:
    return [finding.lost for finding in log.findings if finding.kind == "damage"]


def sound(folder: Folder) -> None:
    """Rows 0 to 9 in two segments, two groups each; Spark has done batch 0 and begun batch 1."""
    folder.manifest()
    first = [frame(0, 2, group=True, cursor=1), frame(2, 3, group=True, cursor=4), commit(1)]
    second = [frame(5, 2, group=True), frame(7, 3, group=True, cursor={"id": "x" * 100})]
    folder.put(0, segment(0, first))
    folder.put(1, segment(5, second, number=1, cursors={"0": 4}))
    folder.offset(0, offset(1))
    folder.committed(0)
    folder.offset(1, offset(6))


# What is sound


def test_a_sound_log_is_verified_with_status_0(folder: Folder, headwater: Headwater) -> None:
    sound(folder)
    status, out, err = headwater("verify", folder.path)
    size = sum(file.stat().st_size for file in folder.log.glob("*.segment"))
    line = f"ok   letters (sources/0): sound; 2 segments, 5 frames, 10 rows, {size} bytes\n"
    assert (status, out, err) == (0, line, "")


def test_show_says_all_of_a_log_in_text(folder: Folder, headwater: Headwater) -> None:
    sound(folder)
    status, out, err = headwater("show", folder.path)
    assert (status, err) == (0, "")
    sizes = [file.stat().st_size for file in sorted(folder.log.glob("*.segment"))]
    assert out.splitlines() == [
        f"checkpoint  {folder.path}",
        "Spark       the last batch begun is 1, the last done is 0; on the next start batch 1 is run again",
        "",
        "source      letters (sources/0)",
        f"run         {RUN}, epoch 1, 1 shard",
        "schema      n INT, word STRING",
        "rows        10 retained (rows 0 to 9): 2 committed, 8 waiting",
        "committed   up to row 1",
        'cursor      of shard 0: {"id": "' + "x" * 51 + "…",
        "Spark       begun up to row 6, done up to row 1",
        "again       batch 1: rows 2 to 6, all in the log",
        "",
        "segment                        bytes  frames  rows  first  last",
        "-----------------------------  -----  ------  ----  -----  ----",
        f"00000001-000000000000.segment    {sizes[0]}       3     5      0     4",
        f"00000001-000000000001.segment    {sizes[1]}       2     5      5     9",
    ]


def test_show_says_all_of_a_log_in_json(folder: Folder, headwater: Headwater) -> None:
    sound(folder)
    status, out, _ = headwater("show", folder.path, "--json")
    report = json.loads(out)
    sizes = [file.stat().st_size for file in sorted(folder.log.glob("*.segment"))]
    names = ["file", "bytes", "frames", "rows", "first", "last"]
    segments = [
        ["00000001-000000000000.segment", sizes[0], 3, 5, 0, 4],
        ["00000001-000000000001.segment", sizes[1], 2, 5, 5, 9],
    ]
    assert status == 0
    assert report == {
        "v": 1,
        "checkpoint": str(folder.path),
        "spark": {"offset": 1, "commit": 0, "again": 1, "problem": None},
        "sources": [
            {
                "folder": "sources/0",
                "kind": "log",
                "source": "letters",
                "run": RUN,
                "epoch": 1,
                "shards": 1,
                "schema": "n INT, word STRING",
                "rows": {
                    "retained": 10,
                    "committed": 2,
                    "waiting": 8,
                    "ranges": [[0, 9]],
                    "committedUpTo": 1,
                },
                "cursors": {"0": {"id": "x" * 100}},
                "segments": [dict(zip(names, one, strict=True)) for one in segments],
                "offset": {"run": RUN, "seq": 6, "durability": "log"},
                "commit": {"run": RUN, "seq": 1, "durability": "log"},
                "again": {"batch": 1, "rows": [2, 6], "complete": True, "missing": []},
                "damage": [],
                "torn": [],
                "ignored": [],
            }
        ],
    }


def test_verify_says_in_json_what_it_says_in_text(folder: Folder, headwater: Headwater) -> None:
    sound(folder)
    file = folder.put(1, segment(6, [frame(6, group=True), b"hwf2"], number=1))
    status, out, _ = headwater("verify", folder.path, "--json")
    report = json.loads(out)
    (log,) = report.pop("logs")
    assert status == 1
    assert report == {"v": 1, "checkpoint": str(folder.path), "sound": False, "problem": None}
    what = "the segment begins with row 6 where 5 comes next"
    assert log["damage"][0] == {"file": file.name, "at": 0, "what": what, "lost": [5, 5]}
    assert log["torn"][0]["at"] == file.stat().st_size - 4
    assert (log["segments"], log["frames"], log["rows"]) == (2, 4, 6)


@pytest.mark.parametrize("name", ["log-v1", "log-v2", "log-v1-and-v2"])
def test_a_golden_log_is_read_to_exactly_what_it_says(folder: Folder, name: str, read_log: ReadLog) -> None:
    shutil.copytree(GOLDEN / name, folder.log)
    log = read_log(folder)
    assert log.findings == []
    source = log.source
    epoch = 2 if name == "log-v1-and-v2" else 1
    assert (source["source"], source["run"], source["epoch"], source["shards"]) == ("letters", RUN, epoch, 2)
    assert log.ranges == [(0, 11)]
    assert (log.rows, log.waiting, log.committed) == (12, 4, 7)
    assert log.cursors == {"0": {"id": 14}, "1": "b-5"}
    names = ("frames", "rows", "first", "last")
    assert [tuple(one[name] for name in names) for one in log.segments] == [(4, 6, 0, 5), (4, 6, 6, 11)]


def test_nothing_in_the_folder_is_changed(folder: Folder, headwater: Headwater) -> None:
    sound(folder)
    file = folder.put(1, segment(5, [frame(5, group=True), frame(6, group=True)], number=1)[:-3])
    (folder.log / "lock").touch()
    (folder.log / "manifest-00000002.json.tmp").write_text("{")
    before = everything(folder.path)
    for verb in ("show", "verify"):
        for option in ([], ["--json"]):
            headwater(verb, folder.path, *option)
    assert everything(folder.path) == before
    assert file.relative_to(folder.path) in before


def everything(folder: Path) -> dict[Path, Any]:
    files = {}
    for path in folder.rglob("*"):
        state = path.stat()
        data = path.read_bytes() if path.is_file() else None
        files[path.relative_to(folder)] = (state.st_size, state.st_mtime_ns, state.st_mode, data)
    return files


# Torn tails


@both_formats
def test_a_group_that_is_cut_anywhere_is_a_torn_tail(folder: Folder, version: int, read_log: ReadLog) -> None:
    folder.manifest(version=version)
    frames = [frame(0, 2, group=True, cursor=1), frame(2, 3, group=True, cursor=4), frame(5, 1, cursor=5)]
    ends = tuple(len(segment(0, frames[:count], version=version)) for count in (1, 2, 3))
    whole = segment(0, frames, version=version)
    for cut in range(ends[0], len(whole) + 1):
        folder.put(0, whole[:cut])
        log = read_log(folder)
        has_first = cut >= ends[1]
        assert kinds(log) == ([] if cut in ends else ["torn"]), cut
        assert log.ranges == [(0, 5 if cut == len(whole) else 4 if has_first else 1)]
        assert log.cursors == {"0": 5 if cut == len(whole) else 4 if has_first else 1}
        if cut not in ends:
            assert log.findings[0].at == (ends[1] if has_first else ends[0])


@both_formats
def test_a_header_that_is_cut_anywhere_is_a_torn_tail_of_the_log(
    folder: Folder, version: int, read_log: ReadLog
) -> None:
    folder.manifest(version=version)
    folder.put(0, segment(0, [frame(0, 2, group=True, cursor=1)]))
    whole = segment(2, number=1, version=version)
    for cut in range(len(whole) + 1):
        folder.put(1, whole[:cut])
        log = read_log(folder)
        assert kinds(log) == ([] if cut == len(whole) else ["torn"]), cut
        assert log.ranges == [(0, 1)]
        assert log.cursors == ({} if cut == len(whole) else {"0": 1})


def test_an_empty_segment_is_damage_where_rows_are_missing_without_it(
    folder: Folder, read_log: ReadLog
) -> None:
    folder.manifest()
    folder.put(0, segment(0, [frame(0, 2, group=True)]))
    folder.put(1, b"")
    assert kinds(read_log(folder)) == ["torn"]
    folder.put(0, segment(2, [frame(2, group=True)], epoch=2), epoch=2)
    assert kinds(read_log(folder)) == ["torn"]
    folder.put(0, segment(7, [frame(7, group=True)], epoch=2), epoch=2)
    log = read_log(folder)
    assert (kinds(log), lost(log)) == (["damage"], [(2, 6)])
    assert (log.findings[0].file, log.findings[0].what) == (
        "00000001-000000000001.segment",
        "the file is empty",
    )


def test_a_torn_tail_is_mentioned_and_no_damage(folder: Folder, headwater: Headwater) -> None:
    folder.manifest()
    head = segment(0, [frame(0, 2, group=True)])
    file = folder.put(0, segment(0, [frame(0, 2, group=True), frame(2, group=True)])[:-1])
    status, out, _ = headwater("verify", folder.path)
    assert status == 0
    report = f"torn tail: {file.name} at byte {len(head)}: the file ends within the payload of a frame"
    assert out.splitlines()[1].strip() == report
    assert report.replace("torn tail: ", "torn tail   ") in headwater("show", folder.path)[1]


def test_a_torn_tail_is_damage_if_the_next_segment_shows_that_rows_followed(
    folder: Folder, read_log: ReadLog
) -> None:
    folder.manifest()
    folder.put(0, segment(0, [frame(0, 2, group=True), frame(2, 3, group=True)])[:-1])
    folder.put(1, segment(2, [frame(2, group=True)], number=1))
    assert kinds(read_log(folder)) == ["torn"]
    folder.put(1, segment(5, [frame(5, group=True)], number=1))
    log = read_log(folder)
    assert (kinds(log), lost(log), log.ranges) == (["damage"], [(2, 4)], [(0, 1), (5, 5)])


def test_an_empty_segment_loses_nothing_where_the_next_one_continues(
    folder: Folder, read_log: ReadLog
) -> None:
    """Its driver could not delete it after a failed write, and recovery deletes it."""
    folder.manifest()
    folder.put(0, segment(0, [frame(0, 2, group=True)]))
    folder.put(1, b"")
    folder.put(2, segment(2, [frame(2, group=True)], number=2))
    log = read_log(folder)
    assert (kinds(log), lost(log), log.ranges) == (["torn"], [], [(0, 2)])


def test_a_group_that_was_written_again_into_the_next_segment_counts_once(
    folder: Folder, read_log: ReadLog
) -> None:
    """As after a full disk."""
    folder.manifest()
    folder.put(0, segment(0, [frame(0, 2, group=True), frame(2, 3, group=True)]))
    folder.put(1, segment(2, [frame(2, 3, group=True), frame(5, group=True)], number=1))
    log = read_log(folder)
    assert (kinds(log), log.ranges) == (["ignored"], [(0, 5)])
    assert log.findings[0].what == "rows 2 to 4 not used: a later segment begins with row 2"
    assert [one["rows"] for one in log.segments] == [2, 4]


@both_formats
def test_a_frame_in_the_text_of_a_row_is_never_read_behind_a_torn_tail(
    folder: Folder, version: int, read_log: ReadLog
) -> None:
    """Format 1 cannot tell it from a frame that was durable, so that is reported as damage."""
    folder.manifest(version=version)
    forged = frame(2, 1, group=True, cursor="forged")
    text = b"".join(forged.at(0, of, key="f" * 32) for of in (1, 2))
    data = segment(0, [frame(0, 2, group=True, cursor=1)], version=version) + bytes(60)
    text += b"".join(forged.at(len(data) + len(text), of, key="f" * 32) for of in (1, 2))
    folder.put(0, data + text)
    log = read_log(folder)
    expected = ["damage"] if version == 1 else ["torn"]
    assert (kinds(log), log.ranges, log.cursors) == (expected, [(0, 1)], {"0": 1})
    whole = [frame(0, 2, group=True, cursor=1), frame(2, 1, group=True, payload=text)]
    folder.put(0, segment(0, whole, version=version))
    log = read_log(folder)  # in a valid frame they are rows
    assert (kinds(log), log.ranges) == ([], [(0, 2)])


# Damage


@both_formats
def test_every_bit_that_is_flipped_is_damage_or_in_the_last_group_a_torn_tail(
    folder: Folder, version: int, read_log: ReadLog
) -> None:
    folder.manifest(version=version)
    frames = [frame(0, 2, group=True, cursor=1), frame(2, 1, more=True), frame(3, 1), commit(1)]
    frames += [frame(4, 2, group=True, cursor=5), frame(6, 1)]
    safe, last, data = (segment(0, frames[:count], cursors={"1": 9}, version=version) for count in (4, 5, 6))
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        folder.put(0, flipped)
        log = read_log(folder)
        expected = "damage" if bit // 8 < len(safe) else "torn"
        assert kinds(log) == [expected], f"bit {bit % 8} of byte {bit // 8}"
        if expected == "torn":
            assert log.ranges == [(0, 5 if bit // 8 >= len(last) else 3)]


@both_formats
def test_every_bit_that_is_flipped_in_an_earlier_segment_is_damage(
    folder: Folder, version: int, read_log: ReadLog
) -> None:
    folder.manifest(version=version)
    folder.put(1, segment(4, [frame(4, group=True)], number=1))
    data = segment(0, [frame(0, 3, group=True, cursor=2), frame(3, 1)], version=version)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        folder.put(0, flipped)
        log = read_log(folder)
        assert kinds(log) == ["damage"], f"bit {bit % 8} of byte {bit // 8}"
        assert log.ranges[-1] == (4, 4) or log.ranges == [(0, 4)]


def test_damage_is_told_with_file_position_and_lost_rows(folder: Folder, headwater: Headwater) -> None:
    folder.manifest()
    frames = [frame(0, 2, group=True), frame(2, 3, group=True), frame(5, 2, group=True)]
    head, middle, whole = (bytearray(segment(0, frames[:count])) for count in (1, 2, 3))
    whole[len(middle) - 1] ^= 1
    file = folder.put(0, whole)
    status, out, _ = headwater("verify", folder.path)
    assert status == 1
    assert out.splitlines()[0].startswith(
        "FAIL letters (sources/0): 1 damaged place; 1 segment, 2 frames, 4 rows"
    )
    what = "the checksum of the frame payload is wrong; rows 2 to 4 are lost"
    assert out.splitlines()[1] == f"     damage: {file.name} at byte {len(head)}: {what}"
    status, out, _ = headwater("show", folder.path)
    assert status == 0
    assert "rows        4 retained (rows 0 to 1, rows 5 to 6): 0 committed, 4 waiting" in out


@pytest.mark.parametrize("before", range(5))
def test_the_next_durable_frame_is_found_wherever_it_begins(
    folder: Folder, before: int, read_log: ReadLog
) -> None:
    """The file is searched in pieces of 1 MiB, and a mark may lie across two."""
    folder.manifest()
    folder.put(0, segment(0, [b"x" * ((1 << 20) + 1 - before), frame(3, group=True)]))
    log = read_log(folder)
    assert (kinds(log), lost(log), log.ranges) == (["damage"], [(0, 2)], [(3, 3)])


def test_lost_rows_are_known_even_if_a_commit_is_the_first_thing_behind_the_damage(
    folder: Folder, read_log: ReadLog
) -> None:
    folder.manifest()
    folder.put(0, segment(0, [frame(0, 2, group=True), b"x" * 70, commit(1), frame(5, 1)]))
    log = read_log(folder)
    assert (kinds(log), lost(log)) == (["damage"], [(2, 4)])
    folder.put(0, segment(0, [frame(0, 2, group=True), b"x" * 70, commit(1)]))
    assert lost(read_log(folder)) == [(2, None)]


def test_a_missing_segment_in_the_middle_is_damage(
    folder: Folder, headwater: Headwater, read_log: ReadLog
) -> None:
    folder.manifest()
    for number in range(3):
        folder.put(number, segment(2 * number, [frame(2 * number, 2, group=True)], number=number))
    assert read_log(folder).findings == []
    (folder.log / "00000001-000000000001.segment").unlink()
    log = read_log(folder)
    assert (kinds(log), lost(log), log.ranges) == (["damage"], [(2, 3)], [(0, 1), (4, 5)])
    assert log.findings[0].file == "00000001-000000000002.segment"
    assert headwater("verify", folder.path)[0] == 1


def test_older_segments_may_have_been_dropped(folder: Folder, read_log: ReadLog) -> None:
    folder.manifest()
    folder.put(7, segment(40, [frame(40, 2, group=True)], number=7))
    log = read_log(folder)
    assert (log.findings, log.ranges) == ([], [(40, 41)])


def test_rows_that_are_numbered_with_a_gap_or_twice_are_damage(folder: Folder, read_log: ReadLog) -> None:
    folder.manifest()
    folder.put(0, segment(0, [frame(0, 2, group=True), frame(4, 2)]))
    log = read_log(folder)
    assert (lost(log), log.findings[0].what) == ([(2, 3)], "the frame is numbered 4 where 2 comes next")
    folder.put(0, segment(0, [frame(0, 2, group=True), frame(1, 2)]))
    log = read_log(folder)
    assert (lost(log), log.ranges) == ([None], [(0, 1)])


def test_a_segment_under_another_name_is_damage(folder: Folder, read_log: ReadLog) -> None:
    folder.manifest()
    for other in ({"number": 3}, {"epoch": 2}, {"run": "f" * 16}):
        folder.put(0, segment(0, [frame(0, group=True)], **other))
        assert kinds(read_log(folder)) == ["damage"]


def test_of_a_segment_whose_header_is_damaged_no_row_counts(folder: Folder, read_log: ReadLog) -> None:
    folder.manifest()
    folder.put(0, segment(0, [frame(0, 2, group=True)]))
    data = segment(2, [frame(2, 3, group=True), frame(5, 1, group=True)], number=1)
    folder.put(1, data[:20] + b"x" + data[21:])
    log = read_log(folder)
    assert (kinds(log), lost(log), log.ranges) == (["damage"], [(2, None)], [(0, 1)])
    folder.put(2, segment(6, [frame(6, 1, group=True)], number=2))
    log = read_log(folder)
    assert (kinds(log), lost(log), log.ranges) == (["damage"], [(2, 5)], [(0, 1), (6, 6)])


def test_a_newer_format_is_not_taken_for_a_torn_tail(folder: Folder, read_log: ReadLog) -> None:
    folder.manifest()
    folder.put(0, b"HWLOG\0\0\3" + segment(0)[8:])
    (finding,) = read_log(folder).findings
    assert (finding.kind, finding.what) == (
        "damage",
        "it has format version 3, this headwater reads versions 1 to 2",
    )


def test_a_manifest_that_is_missing_or_garbage_is_damage(
    folder: Folder, headwater: Headwater, read_log: ReadLog
) -> None:
    folder.put(0, segment(0, [frame(0, group=True)]))
    assert kinds(read_log(folder)) == ["damage"]
    for text in (
        "",
        "{",
        "[]",
        "7",
        '{"v":3}',
        '{"v":2}',
        manifest().decode().replace('"shards":1', '"shards":2'),
        '{"v":1,"source":3}',
        "[" * 100000,
        '{"v":1e999}',
        "\0",
        "NaN",
    ):
        (folder.log / "manifest-00000001.json").write_text(text)
        assert kinds(read_log(folder)) == ["damage"], text[:20]
    assert headwater("verify", folder.path)[0] == 1
    assert "letters (sources/0)" in headwater("show", folder.path)[1]  # a segment knows its source


def test_every_bit_that_is_flipped_in_a_manifest_is_damage(folder: Folder, headwater: Headwater) -> None:
    folder.put(0, segment(0, [frame(0, group=True)]))
    path = folder.manifest()
    data = path.read_bytes()
    for index in range(len(data)):
        flipped = bytearray(data)
        flipped[index] ^= 1 << index % 8
        path.write_bytes(flipped)
        status, out, _ = headwater("verify", folder.path)
        assert status == 1, index
        assert f"damage: {path.name} at byte 0: the manifest cannot be read" in out


def test_rows_that_were_durable_by_the_manifest_and_are_gone_are_damage(
    folder: Folder, headwater: Headwater, read_log: ReadLog
) -> None:
    path = folder.manifest(next=9)
    folder.put(0, segment(0, [frame(0, 4, group=True)]))
    log = read_log(folder)
    assert (kinds(log), lost(log), log.findings[0].file) == (["damage"], [(4, 8)], path.name)
    assert (
        "rows up to 8 were durable when the manifest was written; rows 4 to 8 are lost"
        in headwater("verify", folder.path)[1]
    )


def test_a_file_that_no_start_has_written_is_ignored(folder: Folder, read_log: ReadLog) -> None:
    folder.manifest()
    folder.put(0, segment(0, [frame(0, 4, group=True)]))
    folder.put(0, b"not a segment", epoch=99999999)
    log = read_log(folder)
    assert (kinds(log), log.ranges) == (["ignored"], [(0, 3)])
    assert log.findings[0].what == "it is not a segment of this log: no start has reached its epoch"


def test_a_log_of_both_formats_is_one_log(folder: Folder, read_log: ReadLog) -> None:
    folder.manifest(2)
    folder.put(0, segment(0, [frame(0, 3, group=True, cursor=2), commit(1)], version=1))
    new = [frame(3, 2, group=True, cursor=4), frame(5, 0, group=True)]
    folder.put(0, segment(3, new, epoch=2, cursors={"0": 2}), epoch=2)
    log = read_log(folder)
    assert (log.findings, log.ranges, log.cursors, log.committed) == ([], [(0, 4)], {"0": 4}, 1)


def test_a_torn_tail_is_damage_if_the_manifest_shows_that_rows_followed(
    folder: Folder, read_log: ReadLog
) -> None:
    folder.put(0, segment(0, [frame(0, 4, group=True), frame(4, 2, group=True)])[:-1])
    folder.manifest(next=4)
    assert kinds(read_log(folder)) == ["torn"]
    folder.manifest(next=6)
    log = read_log(folder)
    assert (kinds(log), lost(log), log.ranges) == (["damage"], [(4, None)], [(0, 3)])


# What does not count, and what counts


def test_a_row_group_without_its_end_does_not_count(folder: Folder, read_log: ReadLog) -> None:
    folder.manifest()
    parts = [frame(0, 2, group=True, cursor=1), frame(2, 3, more=True, cursor=4), frame(5, 1, more=True)]
    folder.put(0, segment(0, parts))
    log = read_log(folder)
    assert (kinds(log), log.ranges, log.cursors) == (["ignored"], [(0, 1)], {"0": 1})
    assert "rows 2 to 5" in log.findings[0].what
    folder.put(1, segment(2, [frame(2, group=True)], number=1, cursors={"0": 1}))
    assert (kinds(read_log(folder)), read_log(folder).ranges) == (["ignored"], [(0, 2)])
    folder.put(1, segment(6, [frame(6, group=True)], number=1))
    log = read_log(folder)
    assert (kinds(log), lost(log)) == (["damage", "ignored"], [(2, 5)])


def test_a_row_group_whose_end_is_torn_does_not_count(folder: Folder, read_log: ReadLog) -> None:
    folder.manifest()
    parts = [frame(0, 2, group=True), frame(2, 3, more=True), frame(5, 1)]
    folder.put(0, segment(0, parts)[:-1])
    log = read_log(folder)
    assert (kinds(log), log.ranges) == (["torn"], [(0, 1)])
    assert log.findings[0].what.endswith("rows 2 to 4 before it belong to a row group that was not completed")


def test_what_an_older_driver_wrote_after_it_was_replaced_is_ignored(
    folder: Folder, read_log: ReadLog
) -> None:
    folder.manifest(1)
    folder.manifest(2)
    folder.put(0, segment(0, [frame(0, 2, group=True), frame(2, 2, group=True, cursor="old"), commit(3)]))
    folder.put(1, segment(4, [frame(4, 5, group=True)], number=1))
    new = [frame(2, 1, group=True, cursor="new")]
    folder.put(0, segment(2, new, epoch=2, cursors={"0": "taken over"}), epoch=2)
    log = read_log(folder)
    assert (kinds(log), log.ranges) == (["ignored", "ignored"], [(0, 2)])
    assert (log.committed, log.cursors) == (-1, {"0": "new"})
    assert [one["rows"] for one in log.segments] == [2, 0, 1]
    assert "rows 2 to 3 not used" in log.findings[0].what


def test_an_older_driver_s_rows_end_where_the_first_segment_of_any_newer_one_begins(
    folder: Folder, read_log: ReadLog
) -> None:
    folder.manifest(3)
    folder.put(0, segment(0, [frame(0, 2, group=True), frame(2, 9, group=True)]))
    folder.put(0, segment(2, [frame(2, 3, group=True)], epoch=2), epoch=2)
    folder.put(1, segment(5, [frame(5, 1, group=True), frame(6, 1, group=True)], epoch=2, number=1), epoch=2)
    folder.put(0, segment(6, [frame(6, 2, group=True)], epoch=3), epoch=3)
    log = read_log(folder)
    assert (kinds(log), log.ranges) == (["ignored", "ignored"], [(0, 7)])
    assert [one["rows"] for one in log.segments] == [2, 3, 1, 2]


def test_what_is_broken_behind_a_takeover_loses_nothing(folder: Folder, read_log: ReadLog) -> None:
    folder.manifest(2)
    folder.put(0, segment(0, [frame(0, 2, group=True), b"x" * 50, frame(9, group=True)]))
    folder.put(0, segment(2, [frame(2, group=True)], epoch=2), epoch=2)
    log = read_log(folder)
    assert (kinds(log), log.ranges) == (["ignored", "ignored"], [(0, 2)])


def test_a_cursor_alone_moves_the_cursor_and_no_row(folder: Folder, read_log: ReadLog) -> None:
    folder.manifest(shards=2)
    alone = [frame(2, 0, cursor={"id": 7}), frame(2, 0, cursor=None, shard=1, note=b"null")]
    folder.put(0, segment(0, [frame(0, 2, group=True, cursor={"id": 1}), *alone, frame(2, 1)]))
    log = read_log(folder)
    assert (log.findings, log.ranges) == ([], [(0, 2)])
    assert log.cursors == {"0": {"id": 7}, "1": None}


def test_commits_count_wherever_they_stand(folder: Folder, read_log: ReadLog) -> None:
    folder.manifest()
    folder.put(0, segment(0, [frame(0, 4, group=True), commit(2), commit(1), frame(4, 1, group=True)]))
    log = read_log(folder)
    assert (log.findings, log.committed, log.rows, log.waiting) == ([], 2, 5, 2)


# Garbage; CheckpointToolSuite measures that it is not allocated


@pytest.mark.parametrize("length", [2**31 - 1, -1, -(2**31), 97 << 20])
@pytest.mark.parametrize("field", ["stored", "noted", "raw"])
def test_a_length_that_is_garbage_is_reported(
    folder: Folder, field: str, length: int, read_log: ReadLog
) -> None:
    folder.manifest()
    folder.put(0, segment(0, [frame(0, group=True), frame(1, group=True, **{field: length})]))
    log = read_log(folder)
    assert (kinds(log), log.ranges) == (["torn"], [(0, 0)])


def test_a_header_of_4_gb_is_reported(folder: Folder, read_log: ReadLog) -> None:
    folder.manifest()
    file = folder.put(0, b"HWLOG\0\0\2" + struct.pack("<II", 2**32 - 1, 0) + b"x" * 100)
    assert kinds(read_log(folder)) == ["torn"]
    os.truncate(file, 80 << 20)  # with holes, and as long as a header of 70 MiB says
    with file.open("r+b") as opened:
        opened.write(b"HWLOG\0\0\2" + struct.pack("<II", 70 << 20, 0))
    (finding,) = read_log(folder).findings
    assert finding.what == "its header has a length of 73400320 bytes, more than the limit of 33554432"


def test_a_note_of_more_than_16_mib_is_not_read(folder: Folder, read_log: ReadLog) -> None:
    folder.manifest()
    file = folder.put(0, segment(0, [frame(0, group=True), frame(1, noted=17 << 20)]))
    os.truncate(file, 18 << 20)
    (finding,) = read_log(folder).findings
    assert (finding.kind, finding.what) == ("torn", "the frame header is corrupt")


def test_a_large_payload_is_verified(folder: Folder, read_log: ReadLog) -> None:
    folder.manifest()
    folder.put(0, segment(0, [frame(0, 5, group=True, payload=bytes(48 << 20))]))
    log = read_log(folder)
    assert (log.findings, log.rows) == ([], 5)


@pytest.mark.parametrize(
    "note", [b"x", b"{}", b"[]", b'{"shard":"0","cursor":1}', b'{"shard":0}', b"[" * 9999]
)
def test_a_note_of_format_1_that_is_not_understood_is_damage(
    folder: Folder, note: bytes, read_log: ReadLog
) -> None:
    """Its CRC is right, so no write was torn."""
    folder.manifest()
    folder.put(0, segment(0, [frame(0, group=True), frame(1, note=note)], version=1))
    log = read_log(folder)
    assert (kinds(log), lost(log)) == (["damage"], [(1, None)])


@pytest.mark.parametrize("note", [b"x", b"{", b"1 2", b"[" * 99999])
def test_a_cursor_with_which_no_segment_can_begin_is_damage(
    folder: Folder, note: bytes, read_log: ReadLog
) -> None:
    folder.manifest()
    folder.put(0, segment(0, [frame(0, group=True), frame(1, note=note)]))
    log = read_log(folder)
    assert (kinds(log), lost(log)) == (["damage"], [None])
    assert log.findings[0].what.startswith("a cursor cannot be read: ")


quick = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)


@quick
@given(garbage=st.binary(max_size=300), at=st.integers(0, 10**6), splice=st.booleans())
def test_any_bytes_give_a_report(
    folder: Folder, garbage: bytes, at: int, splice: bool, read_log: ReadLog
) -> None:
    folder.manifest()
    data = segment(0, [frame(0, 2, group=True, cursor=1), frame(2, 1, group=True), frame(3, 1, group=True)])
    at %= len(data)
    new = data[:at] + garbage + (data[at:] if splice else b"")
    folder.put(0, new)
    log = read_log(folder)
    if new != data and log.rows != 4:
        assert log.findings or data.startswith(new)
    folder.put(0, garbage)
    assert {"damage", "torn"} & {*kinds(read_log(folder))}


@quick
@given(garbage=st.binary(max_size=200), version=st.sampled_from([b"", b"v1\n{}\n", b"v1\n"]))
def test_any_bytes_in_spark_s_files_give_a_report(
    folder: Folder, headwater: Headwater, garbage: bytes, version: bytes
) -> None:
    (folder.path / "offsets" / "3").write_bytes(version + garbage)
    (folder.path / "commits" / "2").write_bytes(garbage)
    for verb in ("show", "verify"):
        assert headwater(verb, folder.path)[0] == 0


# Beside Spark's own files


def test_a_batch_to_be_run_again_whose_rows_are_not_all_there_is_damage(
    folder: Folder, headwater: Headwater
) -> None:
    sound(folder)
    folder.offset(1, offset(12))
    status, out, _ = headwater("show", folder.path)
    assert status == 0
    assert "again       batch 1: rows 2 to 12, without rows 10 to 12\n" in out
    status, out, _ = headwater("verify", folder.path)
    assert status == 1
    what = "batch 1 is to be run again, and not all of it is there; rows 10 to 12 are lost"
    assert out.splitlines()[1:] == [f"     damage: offsets/1 at byte 0: {what}"]


def test_the_first_batch_begins_with_the_log_s_first_row(folder: Folder, headwater: Headwater) -> None:
    folder.manifest(first=3)
    folder.put(0, segment(3, [frame(3, 4, group=True)]))
    folder.offset(0, offset(5))
    report = json.loads(headwater("show", folder.path, "--json")[1])
    assert report["sources"][0]["again"] == {"batch": 0, "rows": [3, 5], "complete": True, "missing": []}
    assert report["spark"] == {"offset": 0, "commit": None, "again": 0, "problem": None}


def test_a_batch_that_is_done_is_not_run_again(folder: Folder, headwater: Headwater) -> None:
    sound(folder)
    folder.committed(1)
    _, out, _ = headwater("show", folder.path)
    assert "the last batch begun is 1, the last done is 1\n" in out
    assert "Spark       begun up to row 6, done up to row 6\n" in out
    assert "again" not in out


def test_a_query_that_goes_on_meanwhile_does_not_mislead(folder: Folder, headwater: Headwater) -> None:
    """Commits are read last, so they may be ahead of the offsets."""
    sound(folder)
    folder.committed(1)
    folder.committed(2)
    report = json.loads(headwater("show", folder.path, "--json")[1])
    assert report["spark"] == {"offset": 1, "commit": 1, "again": None, "problem": None}


def test_a_batch_without_rows_of_a_source_says_so(folder: Folder, headwater: Headwater) -> None:
    sound(folder)
    folder.offset(1, offset(1))
    assert "again       batch 1: no rows of this source\n" in headwater("show", folder.path)[1]


@pytest.mark.parametrize(
    ("first", "spark", "what"),
    [
        (20, 1, "Spark resumes after row 1, the log in sources/0 begins with row 20; rows 2 to 19 are lost"),
        (0, 8, "Spark has rows up to 8, the log in sources/0 ends before row 2; rows 2 to 8 are lost"),
    ],
)
def test_a_log_that_does_not_reach_to_where_spark_stands_is_damage(
    folder: Folder, headwater: Headwater, first: int, spark: int, what: str
) -> None:
    folder.manifest()
    folder.put(0, segment(first, [frame(first, 2, group=True)]))
    folder.offset(0, offset(spark))
    folder.committed(0)
    status, out, _ = headwater("verify", folder.path)
    assert (status, out.splitlines()[1]) == (1, f"     damage: offsets/0 at byte 0: {what}")


def test_an_offset_of_another_run_or_without_its_log_is_damage(folder: Folder, headwater: Headwater) -> None:
    folder.offset(0, offset(4))
    folder.committed(0)
    status, out, _ = headwater("verify", folder.path)
    assert status == 1
    assert "says that the rows of letters are in a log, sources/0 has none" in out
    folder.manifest(run="f" * 16)
    status, out, _ = headwater("verify", folder.path)
    assert status == 1
    assert f"Spark's offset is of run {RUN}, the log in sources/0 of another" in out


def test_offsets_of_a_newer_spark_are_said_to_be_not_understood(folder: Folder, headwater: Headwater) -> None:
    sound(folder)
    folder.offset(2, offset(9), version="v2")
    status, out, _ = headwater("show", folder.path)
    assert status == 0
    assert "offsets/2 is not understood: its first line is 'v2', this headwater reads v1" in out
    assert "rows        10 retained" in out
    assert headwater("verify", folder.path)[0] == 0


def test_a_batch_whose_begin_is_not_known_is_not_compared(folder: Folder, headwater: Headwater) -> None:
    folder.manifest()
    folder.put(4, segment(40, [frame(40, 2, group=True)], number=4))
    folder.offset(7, offset(41))
    status, out, _ = headwater("show", folder.path)
    assert status == 0
    assert "offsets/6 is missing, with which batch 7 begins; so which rows Spark has is not known" in out
    assert headwater("verify", folder.path)[0] == 0


def test_sources_in_memory_and_of_others_are_shown_as_such(folder: Folder, headwater: Headwater) -> None:
    folder.offset(0, offset(4, log=False), '{"topic":{"0":7}}', "-")
    status, out, _ = headwater("show", folder.path)
    assert status == 0
    assert out.splitlines()[3:] == [
        "source      letters (sources/0)",
        "            its rows are in the memory of a driver, only its offset is in the checkpoint",
        f"Spark       begun up to row 4, done up to none, of run {RUN}",
        "",
        "source      unknown (sources/1)",
        "            not headwater's, or without an offset yet",
        "",
        "source      unknown (sources/2)",
        "            not headwater's, or without an offset yet",
        "",
        "There is no log of headwater in this checkpoint.",
    ]
    report = json.loads(headwater("show", folder.path, "--json")[1])
    assert [source["kind"] for source in report["sources"]] == ["memory", "other", "other"]
    status, out, _ = headwater("verify", folder.path)
    assert (status, out) == (0, f"ok   {folder.path} has no log of headwater, so nothing to verify\n")


def test_a_source_with_a_name_is_known_by_its_run(folder: Folder, headwater: Headwater) -> None:
    sound(folder)
    folder.log.rename(folder.path / "sources" / "mine")
    folder.offset(0, "-", offset(1))
    folder.offset(1, "-", offset(6))
    report = json.loads(headwater("show", folder.path, "--json")[1])
    other, mine = report["sources"]
    assert (other["folder"], other["kind"]) == ("sources/0", "other")
    assert (mine["folder"], mine["kind"], mine["damage"]) == ("sources/mine", "log", [])
    assert mine["again"] == {"batch": 1, "rows": [2, 6], "complete": True, "missing": []}


# The path


def test_the_path_may_be_a_uri_of_a_file(folder: Folder, headwater: Headwater) -> None:
    sound(folder)
    for uri in (f"file:{folder.path}", f"file://{folder.path}", f"{folder.path}/"):
        status, out, _ = headwater("show", uri)
        assert (status, out.splitlines()[0]) == (0, f"checkpoint  {folder.path}")


def test_a_path_that_is_not_a_checkpoint_is_named_with_what_is_expected(
    folder: Folder, headwater: Headwater
) -> None:
    sound(folder)
    missing, file = folder.path / "nowhere", folder.path / "file"
    file.touch()
    expected = (
        "Fix: give the checkpointLocation of a query: the folder that holds offsets, commits and sources."
    )
    for path, what in (
        (missing, f"the checkpoint {missing} does not exist. {expected}"),
        (file, f"the checkpoint {file} is not a folder. {expected}"),
        (folder.path / "offsets", f"{folder.path}/offsets is not a checkpoint of a query: "),
        (folder.log, "it has neither offsets nor sources, it is the log of one source. Fix: "),
        (
            "nothing://bucket/x",
            'nothing://bucket/x cannot be read: No FileSystem for scheme "nothing". Fix: check',
        ),
        ("s3a://a\nb/x", r"s3a://a\nb/x cannot be read: "),
    ):
        for verb in ("show", "verify"):
            status, out, err = headwater(verb, path)
            assert (status, out, len(err.splitlines())) == (1, "", 1)
            assert err.startswith("headwater: ")
            assert what in err


def test_a_file_that_cannot_be_read_is_named(folder: Folder, headwater: Headwater) -> None:
    sound(folder)
    (file := folder.log / "00000001-000000000002.segment").mkdir()
    status, _, err = headwater("verify", folder.path)
    assert status == 1
    assert err.startswith(f"headwater: {file} cannot be read: Not a regular file. Fix: ")
    (file := folder.path / "offsets" / "2").mkdir()
    status, _, err = headwater("show", folder.path)
    assert status == 1
    assert err.startswith(f"headwater: {file} cannot be read: Not a regular file. Fix: ")


def test_a_schema_is_shown_as_it_is_written_in_ddl(folder: Folder, headwater: Headwater) -> None:
    inner = {"type": "struct", "fields": [{"name": "k", "type": "long", "nullable": False}]}
    fields = [
        {
            "name": "a",
            "type": {"type": "array", "elementType": inner, "containsNull": True},
            "nullable": True,
        },
        {"name": "m", "type": {"type": "map", "keyType": "string", "valueType": "decimal(10,2)"}},
    ]
    folder.manifest(schema={"type": "struct", "fields": fields})
    out = headwater("show", folder.path)[1]
    assert "schema      a ARRAY<STRUCT<k: BIGINT NOT NULL>>, m MAP<STRING, DECIMAL(10,2)>\n" in out
    folder.manifest(schema={"fields": 7})
    assert 'schema      not understood: {"fields": 7}\n' in headwater("show", folder.path)[1]


def test_the_golden_log_is_shown_within_a_checkpoint(folder: Folder, headwater: Headwater) -> None:
    shutil.copytree(GOLDEN / "log-v2", folder.log)
    assert headwater("verify", folder.path)[0] == 0
    assert 'of shard 1: "b-5"' in headwater("show", folder.path)[1]


def test_control_characters_are_escaped_in_text(folder: Folder, headwater: Headwater) -> None:
    folder.manifest(source="bad\x1b[31m\n")
    frames = [frame(0, group=True, cursor="a\x1b\u200b\U0001f600é")]
    folder.put(0, segment(0, frames, source="bad\x1b[31m\n"))
    out = headwater("show", folder.path)[1]
    assert "\x1b" not in out
    assert r"source      bad\x1b[31m\n (sources/0)" in out
    assert r'cursor      of shard 0: "a\u001b\u200b😀é"' in out
    _, out, _ = headwater("show", folder.path, "--json")
    assert out.isascii()
    assert json.loads(out)["sources"][0]["cursors"] == {"0": "a\x1b\u200b\U0001f600é"}


# Limits are recovery's: CheckpointToolSuite compares them with recovery itself


@pytest.mark.parametrize(("above", "status"), [(0, 0), (1, 1)])
def test_a_header_above_32_mib_is_damage(
    folder: Folder, headwater: Headwater, above: int, status: int
) -> None:
    folder.manifest()
    half = "x" * (16 << 20)
    (length,) = struct.unpack_from("<I", segment(0, padding=["", half[:-1000]]), 8)
    padding = ["x" * ((32 << 20) + above - length), half[:-1000]]
    folder.put(0, segment(0, [frame(0, 2, group=True)], padding=padding))
    assert headwater("verify", folder.path)[0] == status


@pytest.mark.parametrize(("above", "damaged"), [(0, False), (1, True)])
def test_a_cursor_above_16_mib_is_not_read(
    folder: Folder, read_log: ReadLog, above: int, damaged: bool
) -> None:
    folder.manifest()
    note = b'"%s"' % (b"x" * ((16 << 20) + above - 2))
    folder.put(0, segment(0, [frame(0, 2, group=True, note=note), frame(2, 1, group=True)]))
    log = read_log(folder)
    assert (kinds(log), lost(log)) == ((["damage"], [(0, 1)]) if damaged else ([], []))


def test_a_reserved_byte_that_is_not_zero_is_damage(folder: Folder, read_log: ReadLog) -> None:
    folder.manifest()
    at = len(segment(0))
    strange = bytearray(frame(0, 2, group=True).at(at))
    strange[15] = 1
    strange[4:12] = checksum(bytes(strange[12:60]), at)
    folder.put(0, segment(0, [bytes(strange), frame(2, group=True)]))
    assert lost(read_log(folder)) == [(0, 1)]


def test_a_manifest_that_was_not_written_to_its_end_does_not_count_beside_another(
    folder: Folder, read_log: ReadLog
) -> None:
    folder.manifest(1)
    folder.put(0, segment(0, [frame(0, group=True)]))
    (folder.log / "manifest-00000002.json").write_text("{")
    log = read_log(folder)
    assert (kinds(log), log.findings[0].file, log.source["epoch"]) == (
        ["ignored"],
        "manifest-00000002.json",
        1,
    )


def test_a_log_that_begins_right_after_an_offset_of_another_run_is_sound(
    folder: Folder, headwater: Headwater
) -> None:
    """As after a log was lost and the query continued with failOnDataLoss=false."""
    folder.manifest(first=5)
    folder.put(0, segment(5, [frame(5, 2, group=True)]))
    folder.offset(0, offset(4, run="f" * 16))
    folder.committed(0)
    assert headwater("verify", folder.path)[0] == 0
    folder.put(0, segment(5, [frame(5, 2, group=True), commit(5)]))
    assert headwater("verify", folder.path)[0] == 1


# Partitioned sources


def vector(partitions: str, **following: int) -> str:
    report = {"v": 1, "source": "shards", "partitions": partitions, "next": following}
    return json.dumps(report, separators=(",", ":"))


def starts(folder: Folder, number: int, partitions: str, source: str = "shards", **offsets: int) -> Path:
    folder.log.mkdir(parents=True, exist_ok=True)
    file = folder.log / f"start-{number:08}.json"
    report = {"v": 1, "source": source, "identity": {}, "partitions": partitions, "starts": offsets}
    file.write_text(json.dumps(report))
    return file


def partitioned(folder: Folder) -> None:
    """Partition b is new in batch 1, which is to be run again."""
    starts(folder, 1, "text", a=3)
    starts(folder, 2, "text", b=0)
    folder.offset(0, vector("text", a=10))
    folder.committed(0)
    folder.offset(1, vector("text", a=25, b=7))


def test_show_says_where_the_partitions_of_a_source_stand(folder: Folder, headwater: Headwater) -> None:
    partitioned(folder)
    status, out, err = headwater("show", folder.path)
    assert (status, err) == (0, "")
    assert out.splitlines()[1:] == [
        "Spark       the last batch begun is 1, the last done is 0; on the next start batch 1 is run again",
        "",
        "source      shards (sources/0)",
        "            its rows are upstream, only the offsets of its partitions are in the checkpoint",
        "again       batch 1: 22 offsets of 2 partitions",
        "",
        "partition  start  done  begun",
        "---------  -----  ----  -----",
        "a              3    10     25",
        "b              0     -      7",
    ]
    source = json.loads(headwater("show", folder.path, "--json")[1])["sources"][0]
    assert source == {
        "folder": "sources/0",
        "kind": "partitioned",
        "source": "shards",
        "partitions": "text",
        "starts": {"a": 3, "b": 0},
        "offset": {"next": {"a": 25, "b": 7}},
        "commit": {"next": {"a": 10}},
        "again": {"batch": 1, "ranges": {"a": [10, 25], "b": [0, 7]}},
        "damage": [],
        "torn": [],
        "ignored": [],
    }


def test_partitions_that_are_numbers_are_in_the_order_of_numbers(
    folder: Folder, headwater: Headwater
) -> None:
    starts(folder, 1, "int", **{"10": 0, "9": 0})
    folder.offset(0, vector("int", **{"9": 1, "10": 2}))
    folder.committed(0)
    out = headwater("show", folder.path)[1]
    assert out.splitlines()[-2:] == ["9              0     1      1", "10             0     2      2"]
    source = json.loads(headwater("show", folder.path, "--json")[1])["sources"][0]
    assert (list(source["starts"]), source["partitions"], source["again"]) == (["9", "10"], "int", None)


def test_start_positions_are_shown_before_the_first_batch(folder: Folder, headwater: Headwater) -> None:
    starts(folder, 1, "text", a=3)
    source = json.loads(headwater("show", folder.path, "--json")[1])["sources"][0]
    assert (source["kind"], source["source"], source["starts"]) == ("partitioned", "shards", {"a": 3})
    assert (source["offset"], source["commit"], source["again"]) == (None, None, None)


def test_a_partitioned_source_with_a_name_is_known_by_it(folder: Folder, headwater: Headwater) -> None:
    partitioned(folder)
    folder.log.rename(folder.path / "sources" / "mine")
    folder.offset(0, "-", vector("text", a=10))
    folder.offset(1, "-", vector("text", a=25, b=7))
    sources = json.loads(headwater("show", folder.path, "--json")[1])["sources"]
    assert [(one["folder"], one["kind"]) for one in sources] == [
        ("sources/0", "other"),
        ("sources/mine", "partitioned"),
    ]


def test_sound_start_positions_are_verified(folder: Folder, headwater: Headwater) -> None:
    partitioned(folder)
    line = "ok   shards (sources/0): sound; 2 files with start positions, 2 partitions\n"
    assert headwater("verify", folder.path) == (0, line, "")
    report = json.loads(headwater("verify", folder.path, "--json")[1])
    (one,) = report["partitioned"]
    assert (report["sound"], report["logs"]) == (True, [])
    assert one == {
        "folder": "sources/0",
        "source": "shards",
        "files": 2,
        "partitions": 2,
        "damage": [],
        "torn": [],
        "ignored": [],
    }


def test_start_positions_are_damaged_exactly_when_a_start_refuses_them(
    folder: Folder, headwater: Headwater
) -> None:
    partitioned(folder)
    file = starts(folder, 3, "text", c=0)
    file.write_text(file.read_text()[:-5])
    status, out, _ = headwater("verify", folder.path)
    assert (status, f"torn tail: {file.name} at byte 0: " in out) == (0, True)
    starts(folder, 4, "text", c=0)  # so the one before it was not cut by a crash
    status, out, _ = headwater("verify", folder.path)
    assert (status, f"damage: {file.name} at byte 0: " in out) == (1, True)
    for text in (
        '{"v":2}',
        '{"v":1}',
        '{"v":1,"source":"shards","identity":{},"partitions":"x","starts":{}}',
    ):
        file.write_text(text)
        assert headwater("verify", folder.path)[0] == 1
    starts(folder, 3, "int", **{"1": 0})
    assert headwater("verify", folder.path)[0] == 1
    starts(folder, 3, "text", source="others", c=0)
    assert headwater("verify", folder.path)[0] == 1


def test_an_offset_whose_start_position_is_gone_is_damage(folder: Folder, headwater: Headwater) -> None:
    partitioned(folder)
    (folder.log / "start-00000002.json").unlink()
    status, out, _ = headwater("verify", folder.path)
    assert status == 1
    what = "where partition b began is not known: its start position is gone"
    assert out.splitlines()[1:] == [f"     damage: offsets/1 at byte 0: {what}"]


def test_an_offset_that_goes_back_is_damage(folder: Folder, headwater: Headwater) -> None:
    partitioned(folder)
    folder.offset(1, vector("text", a=9, b=7))
    status, out, _ = headwater("verify", folder.path)
    assert (status, "partition a goes back from 10 to 9" in out) == (1, True)


# Checkpoints of released versions


@pytest.mark.parametrize("checkpoint", sorted(RELEASED.iterdir()), ids=lambda path: path.name)
def test_a_checkpoint_of_0_1_is_sound(checkpoint: Path, headwater: Headwater) -> None:
    status, out, err = headwater("verify", checkpoint)
    assert (status, err) == (0, "")
    assert [line[:2] for line in out.splitlines()] == ["ok"]
    source = json.loads(headwater("show", checkpoint, "--json")[1])["sources"][0]
    kind = checkpoint.name.partition("-")[0]
    assert source["kind"] == {"partitioned": "partitioned", "random_alpha_memory": "memory"}.get(kind, "log")
    assert (source["again"] is not None) == (source["kind"] != "memory" and "unfinished" in checkpoint.name)


# The command as a process


def command(*arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headwater", "checkpoint", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
        env={**os.environ, **env},
    )


def test_the_command_prints_the_report_and_nothing_else(folder: Folder, headwater: Headwater) -> None:
    sound(folder)
    for verb in ("show", "verify"):
        for options in ([], ["--json"]):
            done = command(verb, folder.path, *options)
            assert (done.returncode, done.stdout, done.stderr) == headwater(verb, folder.path, *options)


@pytest.mark.parametrize("evil", ["\x1b]0;title\x07", "\x9b31m", "\u202e\u2066\u200b", "\r"], ids=ascii)
def test_nothing_in_a_checkpoint_reaches_the_terminal_unescaped(folder: Folder, evil: str) -> None:
    folder.manifest(source=f"letters{evil}", schema=f'{{"a": "{ascii(evil)[1:-1]}"}}')
    folder.put(0, segment(0, [frame(0, group=True, cursor=evil)]))
    (folder.path / "sources" / f"1{evil}").mkdir()
    folder.offset(0, f"{{{evil}", evil)
    for verb in ("show", "verify"):
        done = command(verb, folder.path)
        assert done.stdout
        assert all(line.isprintable() for line in done.stdout.split("\n"))
        failed = command(verb, folder.path / f"nowhere{evil}")
        assert failed.stderr.rstrip("\n").isprintable()


def test_the_report_goes_to_a_standard_output_that_is_redirected_in_python(folder: Folder) -> None:
    """As in a notebook, where the output of a child process is not shown."""
    sound(folder)
    script = (
        "import contextlib, io, sys\n"
        "from headwater.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()) as out:\n"
        "    status = main(sys.argv[1:])\n"
        "print(status, out.getvalue().splitlines()[0])\n"
    )
    arguments = ["checkpoint", "show", str(folder.path)]
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"0 checkpoint  {folder.path}\n"


def test_the_command_has_the_exit_status_1_for_damage_and_for_errors(folder: Folder) -> None:
    folder.put(0, segment(0, [frame(0, group=True)]))
    done = command("verify", folder.path)
    assert (done.returncode, done.stdout[:4], done.stderr) == (1, "FAIL", "")
    done = command("verify", folder.path / "nowhere")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith("headwater: the checkpoint ")


def test_the_command_reads_paths_and_prints_in_the_encoding_of_python(folder: Folder) -> None:
    sound(folder)
    path = folder.path.rename(folder.path.with_name("é 日本"))
    done = command("show", path, LC_ALL="C", PYTHONUTF8="1")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"checkpoint  {path}")
    done = command("show", path, PYTHONIOENCODING="ascii")
    assert done.stdout.splitlines()[0].endswith("? ??")


def test_the_command_reads_every_hadoop_file_system(
    folder: Folder, headwater: Headwater, tmp_path: Path
) -> None:
    sound(folder)
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "core-site.xml").write_text(
        "<configuration><property><name>fs.viewfs.mounttable.default.link./queries</name>"
        f"<value>{tmp_path.as_uri()}</value></property></configuration>"
    )
    before = everything(folder.path)
    location = "viewfs:///queries/checkpoint"
    done = command("show", location, HADOOP_CONF_DIR=str(conf))
    local = headwater("show", folder.path)[1]
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == local.replace(str(folder.path), location)
    done = command("verify", location, HADOOP_CONF_DIR=str(conf))
    assert (done.returncode, done.stdout, done.stderr) == headwater("verify", folder.path)
    done = command("show", "viewfs:///queries/nowhere", HADOOP_CONF_DIR=str(conf))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("headwater: the checkpoint viewfs:///queries/nowhere does not exist. Fix: ")
    assert everything(folder.path) == before


def test_a_reader_that_has_gone_ends_the_command_quietly(folder: Folder) -> None:
    sound(folder)
    reader, writer = os.pipe()
    os.close(reader)
    arguments = [sys.executable, "-m", "headwater", "checkpoint", "show", str(folder.path)]
    with os.fdopen(writer, "wb") as out:
        done = subprocess.run(arguments, stdout=out, stderr=subprocess.PIPE, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (1, b"")


def test_ctrl_c_ends_the_command_and_its_jvm(folder: Folder, tmp_path: Path) -> None:
    """A pipe without a writer lets the JVM wait within the log."""
    sound(folder)
    os.mkfifo(folder.log / "manifest-00000009.json")
    arguments = [sys.executable, "-m", "headwater", "checkpoint", "show", str(folder.path)]
    with running(arguments, tmp_path / "log", os.environ) as process:
        children = Path(f"/proc/{process.popen.pid}/task/{process.popen.pid}/children")
        (child,) = process.until("a JVM", lambda: children.read_text().split())
        os.killpg(process.popen.pid, signal.SIGINT)
        assert process.exit_code(30) == 130
        assert process.output == "headwater: interrupted\n"
    commandline = Path(f"/proc/{child}/cmdline")  # empty once it is dead, until somebody waits for it
    wait_until(lambda: not commandline.exists() or not commandline.read_bytes(), lambda: f"{child} lives")


def test_without_java_or_arguments_the_command_says_what_to_do(folder: Folder, tmp_path: Path) -> None:
    done = command("show", folder.path, JAVA_HOME=str(tmp_path))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith(f"headwater: JAVA_HOME is {tmp_path}, ")
    for arguments in ([], ["show"], ["change", folder.path], ["show", folder.path, "--xml"]):
        done = command(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("usage: headwater ")

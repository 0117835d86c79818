"""`headwater checkpoint`: what it says of logs that are sound, torn, damaged, or no logs at all."""

from __future__ import annotations

import json
import os
import shutil
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_writer import GOLDEN, RUN, Folder, commit, frame, offset, segment

from headwater._log.reading import Log, read_log
from headwater.cli.main import main

Headwater = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "checkpoint")
    for name in ("offsets", "commits", "sources"):
        (made.path / name).mkdir(parents=True)
    return made


@pytest.fixture
def headwater(capsys: pytest.CaptureFixture[str]) -> Headwater:
    def run(*arguments: object) -> tuple[int, str, str]:
        status = main(["checkpoint", *map(str, arguments)])
        return (status, *capsys.readouterr())

    return run


def kinds(log: Log) -> list[str]:
    return [found.kind for found in log.findings]


def lost(log: Log) -> list[Any]:
    return [found.lost for found in log.findings if found.kind == "damage"]


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
    told = f"ok   letters (sources/0): sound; 2 segments, 5 frames, 10 rows, {size} bytes\n"
    assert (status, out, err) == (0, told, "")


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
    said = json.loads(out)
    sizes = [file.stat().st_size for file in sorted(folder.log.glob("*.segment"))]
    names = ["file", "bytes", "frames", "rows", "first", "last"]
    segments = [
        ["00000001-000000000000.segment", sizes[0], 3, 5, 0, 4],
        ["00000001-000000000001.segment", sizes[1], 2, 5, 5, 9],
    ]
    assert status == 0
    assert said == {
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
    file = folder.put(1, segment(6, [frame(6, group=True), b"hwfr"], number=1))
    status, out, _ = headwater("verify", folder.path, "--json")
    said = json.loads(out)
    (log,) = said.pop("logs")
    assert status == 1
    assert said == {"v": 1, "checkpoint": str(folder.path), "sound": False, "problem": None}
    what = "the segment begins with row 6 where 5 comes next"
    assert log["damage"][0] == {"file": file.name, "at": 0, "what": what, "lost": [5, 5]}
    assert log["torn"][0]["at"] == file.stat().st_size - 4
    assert (log["segments"], log["frames"], log["rows"]) == (2, 4, 6)


def test_the_golden_log_is_read_to_exactly_what_it_says() -> None:
    log = read_log(GOLDEN)
    assert log.findings == []
    assert log.manifest is not None
    assert (log.manifest.source, log.manifest.run, log.manifest.epoch) == ("letters", RUN, 1)
    assert (log.manifest.first, log.manifest.shards) == (0, 2)
    assert log.ranges == [(0, 11)]
    assert (log.rows, log.waiting, log.committed, log.next) == (12, 4, 7, 12)
    assert log.cursors == {"0": {"id": 14}, "1": "b-5"}
    assert [(one.frames, one.rows, one.first, one.last) for one in log.segments] == [
        (4, 6, 0, 5),
        (4, 6, 6, 11),
    ]


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
    found = {}
    for path in folder.rglob("*"):
        state = path.stat()
        data = path.read_bytes() if path.is_file() else None
        found[path.relative_to(folder)] = (state.st_size, state.st_mtime_ns, state.st_mode, data)
    return found


# Torn tails


def test_a_group_that_is_cut_anywhere_is_a_torn_tail(folder: Folder) -> None:
    folder.manifest()
    before = segment(0, [frame(0, 2, group=True, cursor=1)])
    group = [frame(2, 3, group=True, cursor=4), frame(5, 1, cursor=5)]
    whole = before + b"".join(group)
    for cut in range(len(before), len(whole) + 1):
        folder.put(0, whole[:cut])
        log = read_log(folder.log)
        has_first = cut >= len(before + group[0])
        ends = (len(before), len(before + group[0]), len(whole))
        assert kinds(log) == ([] if cut in ends else ["torn"]), cut
        assert log.ranges == [(0, 5 if cut == len(whole) else 4 if has_first else 1)]
        assert log.cursors == {"0": 5 if cut == len(whole) else 4 if has_first else 1}
        if cut not in ends:
            assert log.findings[0].at == (ends[1] if has_first else ends[0])


def test_a_header_that_is_cut_anywhere_is_a_torn_tail_of_the_log(folder: Folder) -> None:
    folder.manifest()
    folder.put(0, segment(0, [frame(0, 2, group=True, cursor=1)]))
    whole = segment(2, number=1)
    for cut in range(len(whole) + 1):
        folder.put(1, whole[:cut])
        log = read_log(folder.log)
        assert kinds(log) == ([] if cut == len(whole) else ["torn"]), cut
        assert log.ranges == [(0, 1)]
        assert log.cursors == ({} if cut == len(whole) else {"0": 1})


def test_an_empty_segment_is_damage_where_rows_are_missing_without_it(folder: Folder) -> None:
    folder.manifest()
    folder.put(0, segment(0, [frame(0, 2, group=True)]))
    folder.put(1, b"")
    assert kinds(read_log(folder.log)) == ["torn"]
    folder.put(0, segment(2, [frame(2, group=True)], epoch=2), epoch=2)
    assert kinds(read_log(folder.log)) == ["torn"]
    folder.put(0, segment(7, [frame(7, group=True)], epoch=2), epoch=2)
    log = read_log(folder.log)
    assert (kinds(log), lost(log)) == (["damage"], [(2, 6)])
    assert (log.findings[0].file, log.findings[0].what) == (
        "00000001-000000000001.segment",
        "the file is empty",
    )


def test_a_torn_tail_is_mentioned_and_no_damage(folder: Folder, headwater: Headwater) -> None:
    folder.manifest()
    head = segment(0, [frame(0, 2, group=True)])
    file = folder.put(0, head + frame(2, group=True)[:-1])
    status, out, _ = headwater("verify", folder.path)
    assert status == 0
    said = f"torn tail: {file.name} at byte {len(head)}: the file ends within the payload of a frame"
    assert out.splitlines()[1].strip() == said
    assert said.replace("torn tail: ", "torn tail   ") in headwater("show", folder.path)[1]


def test_a_torn_tail_is_damage_if_the_next_segment_shows_that_rows_followed(folder: Folder) -> None:
    folder.manifest()
    folder.put(0, segment(0, [frame(0, 2, group=True), frame(2, 3, group=True)])[:-1])
    folder.put(1, segment(2, [frame(2, group=True)], number=1))
    assert kinds(read_log(folder.log)) == ["torn"]
    folder.put(1, segment(5, [frame(5, group=True)], number=1))
    log = read_log(folder.log)
    assert (kinds(log), lost(log), log.ranges) == (["damage"], [(2, 4)], [(0, 1), (5, 5)])


def test_an_empty_segment_that_is_not_the_last_of_its_epoch_is_damage(folder: Folder) -> None:
    """Its driver went on, so it was not torn; that no row is missing does not make it sound."""
    folder.manifest()
    folder.put(0, segment(0, [frame(0, 2, group=True)]))
    folder.put(1, b"")
    folder.put(2, segment(2, [frame(2, group=True)], number=2))
    log = read_log(folder.log)
    assert (kinds(log), lost(log), log.ranges) == (["damage"], [None], [(0, 2)])


def test_rows_that_look_like_a_frame_do_not_turn_a_torn_tail_into_damage(folder: Folder) -> None:
    folder.manifest()
    within = frame(2, 1, payload=frame(7, group=True))  # as when a log is read by a source
    folder.put(0, segment(0, [frame(0, 2, group=True), b"x" * 60, within]))
    log = read_log(folder.log)
    assert (kinds(log), log.ranges) == (["torn"], [(0, 1)])


# Damage


def test_every_bit_that_is_flipped_is_damage_or_in_the_last_group_a_torn_tail(folder: Folder) -> None:
    folder.manifest()
    safe = segment(
        0,
        [frame(0, 2, group=True, cursor=1), frame(2, 1, more=True), frame(3, 1), commit(1)],
        cursors={"1": 9},
    )
    last = [frame(4, 2, group=True, cursor=5), frame(6, 1)]
    data = safe + b"".join(last)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        folder.put(0, flipped)
        log = read_log(folder.log)
        expected = "damage" if bit // 8 < len(safe) else "torn"
        assert kinds(log) == [expected], f"bit {bit % 8} of byte {bit // 8}"
        if expected == "torn":
            assert log.ranges == [(0, 5 if bit // 8 >= len(safe + last[0]) else 3)]


def test_every_bit_that_is_flipped_in_an_earlier_segment_is_damage(folder: Folder) -> None:
    folder.manifest()
    folder.put(1, segment(4, [frame(4, group=True)], number=1))
    data = segment(0, [frame(0, 3, group=True, cursor=2), frame(3, 1)])
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        folder.put(0, flipped)
        log = read_log(folder.log)
        assert kinds(log) == ["damage"], f"bit {bit % 8} of byte {bit // 8}"
        assert log.ranges[-1] == (4, 4) or log.ranges == [(0, 4)]


def test_damage_is_told_with_file_position_and_lost_rows(folder: Folder, headwater: Headwater) -> None:
    folder.manifest()
    head = segment(0, [frame(0, 2, group=True)])
    broken = bytearray(frame(2, 3, group=True))
    broken[-1] ^= 1
    file = folder.put(0, head + broken + frame(5, 2, group=True))
    status, out, _ = headwater("verify", folder.path)
    assert status == 1
    assert out.splitlines()[0].startswith(
        "FAIL letters (sources/0): 1 damaged place; 1 segment, 2 frames, 4 rows"
    )
    what = "the CRC of the frame's payload is wrong; rows 2 to 4 are lost"
    assert out.splitlines()[1] == f"     damage: {file.name} at byte {len(head)}: {what}"
    status, out, _ = headwater("show", folder.path)
    assert status == 0
    assert "rows        4 retained (rows 0 to 1, rows 5 to 6): 0 committed, 4 waiting" in out


@pytest.mark.parametrize("before", range(5))
def test_the_next_durable_frame_is_found_wherever_it_begins(folder: Folder, before: int) -> None:
    """The file is searched in pieces of 1 MiB, and a mark may lie across two."""
    folder.manifest()
    folder.put(0, segment(0, [b"x" * ((1 << 20) + 1 - before), frame(3, group=True)]))
    log = read_log(folder.log)
    assert (kinds(log), lost(log), log.ranges) == (["damage"], [(0, 2)], [(3, 3)])


def test_lost_rows_are_known_even_if_a_commit_is_the_first_thing_behind_the_damage(folder: Folder) -> None:
    folder.manifest()
    folder.put(0, segment(0, [frame(0, 2, group=True), b"x" * 70, commit(1), frame(5, 1)]))
    log = read_log(folder.log)
    assert (kinds(log), lost(log)) == (["damage"], [(2, 4)])
    folder.put(0, segment(0, [frame(0, 2, group=True), b"x" * 70, commit(1)]))
    assert lost(read_log(folder.log)) == [(2, None)]


def test_a_missing_segment_in_the_middle_is_damage(folder: Folder, headwater: Headwater) -> None:
    folder.manifest()
    for number in range(3):
        folder.put(number, segment(2 * number, [frame(2 * number, 2, group=True)], number=number))
    assert read_log(folder.log).findings == []
    (folder.log / "00000001-000000000001.segment").unlink()
    log = read_log(folder.log)
    assert (kinds(log), lost(log), log.ranges) == (["damage"], [(2, 3)], [(0, 1), (4, 5)])
    assert log.findings[0].file == "00000001-000000000002.segment"
    assert headwater("verify", folder.path)[0] == 1


def test_older_segments_may_have_been_dropped(folder: Folder) -> None:
    folder.manifest()
    folder.put(7, segment(40, [frame(40, 2, group=True)], number=7))
    log = read_log(folder.log)
    assert (log.findings, log.ranges) == ([], [(40, 41)])


def test_rows_that_are_numbered_with_a_gap_or_twice_are_damage(folder: Folder) -> None:
    folder.manifest()
    folder.put(0, segment(0, [frame(0, 2, group=True), frame(4, 2)]))
    log = read_log(folder.log)
    assert (lost(log), log.findings[0].what) == ([(2, 3)], "the frame is numbered 4 where 2 comes next")
    folder.put(0, segment(0, [frame(0, 2, group=True), frame(1, 2)]))
    log = read_log(folder.log)
    assert (lost(log), log.ranges) == ([None], [(0, 2)])


def test_a_segment_under_another_name_is_damage(folder: Folder) -> None:
    folder.manifest()
    for other in ({"number": 3}, {"epoch": 2}, {"run": "f" * 16}):
        folder.put(0, segment(0, [frame(0, group=True)], **other))
        assert kinds(read_log(folder.log)) == ["damage"]


def test_of_a_segment_whose_header_is_damaged_no_row_counts(folder: Folder) -> None:
    folder.manifest()
    folder.put(0, segment(0, [frame(0, 2, group=True)]))
    data = segment(2, [frame(2, 3, group=True), frame(5, 1, group=True)])
    folder.put(1, data[:20] + b"x" + data[21:])
    log = read_log(folder.log)
    assert (kinds(log), lost(log), log.ranges) == (["damage"], [(2, None)], [(0, 1)])
    folder.put(2, segment(6, [frame(6, 1, group=True)], number=2))
    log = read_log(folder.log)
    assert (kinds(log), lost(log), log.ranges) == (["damage"], [(2, 5)], [(0, 1), (6, 6)])


def test_a_newer_format_is_not_taken_for_a_torn_tail(folder: Folder) -> None:
    folder.manifest()
    folder.put(0, b"HWLOG\0\0\2" + segment(0)[8:])
    (found,) = read_log(folder.log).findings
    assert (found.kind, found.what) == ("damage", "its format has version 2, this headwater reads version 1")


def test_a_manifest_that_is_missing_or_garbage_is_damage(folder: Folder, headwater: Headwater) -> None:
    folder.put(0, segment(0, [frame(0, group=True)]))
    assert kinds(read_log(folder.log)) == ["damage"]
    for text in (
        "",
        "{",
        "[]",
        "7",
        '{"v":2}',
        '{"v":1,"source":3}',
        "[" * 100000,
        '{"v":1e999}',
        "\0",
        "NaN",
    ):
        (folder.log / "manifest-00000001.json").write_text(text)
        assert kinds(read_log(folder.log)) == ["damage"], text[:20]
    assert headwater("verify", folder.path)[0] == 1
    assert "letters (sources/0)" in headwater("show", folder.path)[1]  # a segment knows its source


# What does not count, and what counts


def test_a_parcel_without_its_end_does_not_count(folder: Folder) -> None:
    folder.manifest()
    parts = [frame(0, 2, group=True, cursor=1), frame(2, 3, more=True, cursor=4), frame(5, 1, more=True)]
    folder.put(0, segment(0, parts))
    log = read_log(folder.log)
    assert (kinds(log), log.ranges, log.cursors) == (["ignored"], [(0, 1)], {"0": 1})
    assert "rows 2 to 5" in log.findings[0].what
    folder.put(1, segment(2, [frame(2, group=True)], number=1, cursors={"0": 1}))
    assert (kinds(read_log(folder.log)), read_log(folder.log).ranges) == (["ignored"], [(0, 2)])
    folder.put(1, segment(6, [frame(6, group=True)], number=1))
    log = read_log(folder.log)
    assert (kinds(log), lost(log)) == (["ignored", "damage"], [(2, 5)])


def test_a_parcel_whose_end_is_torn_does_not_count(folder: Folder) -> None:
    folder.manifest()
    parts = [frame(0, 2, group=True), frame(2, 3, more=True), frame(5, 1)]
    folder.put(0, segment(0, parts)[:-1])
    log = read_log(folder.log)
    assert (kinds(log), log.ranges) == (["torn"], [(0, 1)])
    assert log.findings[0].what.endswith("rows 2 to 4 before it belong to a parcel whose end is not there")


def test_what_an_older_driver_wrote_after_it_was_replaced_is_ignored(folder: Folder) -> None:
    folder.manifest(1)
    folder.manifest(2)
    folder.put(0, segment(0, [frame(0, 2, group=True), frame(2, 2, group=True, cursor="old"), commit(3)]))
    folder.put(1, segment(4, [frame(4, 5, group=True)], number=1))
    new = [frame(2, 1, group=True, cursor="new")]
    folder.put(0, segment(2, new, epoch=2, cursors={"0": "taken over"}), epoch=2)
    log = read_log(folder.log)
    assert (kinds(log), log.ranges) == (["ignored", "ignored"], [(0, 2)])
    assert (log.committed, log.cursors) == (-1, {"0": "new"})
    assert [one.rows for one in log.segments] == [2, 0, 1]
    assert "rows 2 to 3 here do not count" in log.findings[0].what


def test_an_older_driver_s_rows_end_where_the_first_segment_of_any_newer_one_begins(folder: Folder) -> None:
    folder.manifest(3)
    folder.put(0, segment(0, [frame(0, 2, group=True), frame(2, 9, group=True)]))
    folder.put(0, segment(2, [frame(2, 3, group=True)], epoch=2), epoch=2)
    folder.put(1, segment(5, [frame(5, 1, group=True), frame(6, 1, group=True)], epoch=2, number=1), epoch=2)
    folder.put(0, segment(6, [frame(6, 2, group=True)], epoch=3), epoch=3)
    log = read_log(folder.log)
    assert (kinds(log), log.ranges) == (["ignored", "ignored"], [(0, 7)])
    assert [one.rows for one in log.segments] == [2, 3, 1, 2]


def test_what_is_broken_behind_a_takeover_loses_nothing(folder: Folder) -> None:
    folder.manifest(2)
    folder.put(0, segment(0, [frame(0, 2, group=True), b"x" * 50, frame(9, group=True)]))
    folder.put(0, segment(2, [frame(2, group=True)], epoch=2), epoch=2)
    log = read_log(folder.log)
    assert (kinds(log), log.ranges) == (["ignored", "ignored"], [(0, 2)])


def test_a_cursor_alone_moves_the_cursor_and_no_row(folder: Folder) -> None:
    folder.manifest(shards=2)
    alone = [frame(2, 0, cursor={"id": 7}), frame(2, 0, cursor=None, note=b'{"shard":1,"cursor":null}')]
    folder.put(0, segment(0, [frame(0, 2, group=True, cursor={"id": 1}), *alone, frame(2, 1)]))
    log = read_log(folder.log)
    assert (log.findings, log.ranges) == ([], [(0, 2)])
    assert log.cursors == {"0": {"id": 7}, "1": None}


def test_commits_count_wherever_they_stand(folder: Folder) -> None:
    folder.manifest()
    folder.put(0, segment(0, [frame(0, 4, group=True), commit(2), commit(1), frame(4, 1, group=True)]))
    log = read_log(folder.log)
    assert (log.findings, log.committed, log.rows, log.waiting) == ([], 2, 5, 2)


# Garbage


@pytest.mark.parametrize("length", [2**31 - 1, -1, -(2**31), 97 << 20])
@pytest.mark.parametrize("field", ["stored", "noted", "raw"])
def test_a_length_that_is_garbage_is_said_and_not_allocated(folder: Folder, field: str, length: int) -> None:
    folder.manifest()
    folder.put(0, segment(0, [frame(0, group=True), frame(1, group=True, **{field: length})]))
    tracemalloc.start()
    try:
        log = read_log(folder.log)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert (kinds(log), log.ranges) == (["torn"], [(0, 0)])


def test_a_header_of_4_gb_is_said_and_not_allocated(folder: Folder) -> None:
    folder.manifest()
    file = folder.put(0, b"HWLOG\0\0\1" + struct.pack("<II", 2**32 - 1, 0) + b"x" * 100)
    assert kinds(read_log(folder.log)) == ["torn"]
    os.truncate(file, 80 << 20)  # with holes, and as long as a header of 70 MiB says
    with file.open("r+b") as opened:
        opened.write(b"HWLOG\0\0\1" + struct.pack("<II", 70 << 20, 0))
    tracemalloc.start()
    try:
        (found,) = read_log(folder.log).findings
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert found.what == "its header is said to be of 73400320 bytes, which is not believable"


def test_a_note_of_more_than_16_mib_is_not_read(folder: Folder) -> None:
    folder.manifest()
    file = folder.put(0, segment(0, [frame(0, group=True), frame(1, noted=17 << 20)]))
    os.truncate(file, 18 << 20)
    tracemalloc.start()
    try:
        (found,) = read_log(folder.log).findings
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert (found.kind, found.what) == ("torn", "the head of the frame is not believable")


def test_a_large_payload_is_checked_in_pieces(folder: Folder) -> None:
    folder.manifest()
    folder.put(0, segment(0, [frame(0, 5, group=True, payload=bytes(48 << 20))]))
    tracemalloc.start()
    try:
        log = read_log(folder.log)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert (log.findings, log.rows) == ([], 5)


@pytest.mark.parametrize(
    "note", [b"x", b"{}", b"[]", b'{"shard":"0","cursor":1}', b'{"shard":0}', b"[" * 9999]
)
def test_a_note_that_is_not_understood_is_damage(folder: Folder, note: bytes) -> None:
    """Its CRC is right, so no write was torn."""
    folder.manifest()
    folder.put(0, segment(0, [frame(0, group=True), frame(1, note=note)]))
    log = read_log(folder.log)
    assert (kinds(log), lost(log)) == (["damage"], [(1, None)])


quick = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)


@quick
@given(garbage=st.binary(max_size=300), at=st.integers(0, 10**6), splice=st.booleans())
def test_any_bytes_give_a_statement(folder: Folder, garbage: bytes, at: int, splice: bool) -> None:
    folder.manifest()
    data = segment(0, [frame(0, 2, group=True, cursor=1), frame(2, 1, group=True), frame(3, 1, group=True)])
    at %= len(data)
    new = data[:at] + garbage + (data[at:] if splice else b"")
    folder.put(0, new)
    log = read_log(folder.log)
    if new != data and log.rows != 4:
        assert log.findings or data.startswith(new)
    folder.put(0, garbage)
    assert {"damage", "torn"} & {*kinds(read_log(folder.log))}


@quick
@given(garbage=st.binary(max_size=200), version=st.sampled_from([b"", b"v1\n{}\n", b"v1\n"]))
def test_any_bytes_in_spark_s_files_give_a_statement(folder: Folder, garbage: bytes, version: bytes) -> None:
    (folder.path / "offsets" / "3").write_bytes(version + garbage)
    (folder.path / "commits" / "2").write_bytes(garbage)
    for verb in ("show", "verify"):
        assert main(["checkpoint", verb, str(folder.path)]) == 0


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
    said = json.loads(headwater("show", folder.path, "--json")[1])
    assert said["sources"][0]["again"] == {"batch": 0, "rows": [3, 5], "complete": True, "missing": []}
    assert said["spark"] == {"offset": 0, "commit": None, "again": 0, "problem": None}


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
    said = json.loads(headwater("show", folder.path, "--json")[1])
    assert said["spark"] == {"offset": 1, "commit": 1, "again": None, "problem": None}


def test_a_batch_without_rows_of_a_source_says_so(folder: Folder, headwater: Headwater) -> None:
    sound(folder)
    folder.offset(1, offset(1))
    assert "again       batch 1: no rows of this source\n" in headwater("show", folder.path)[1]


@pytest.mark.parametrize(
    ("first", "spark", "told"),
    [
        (20, 1, "Spark goes on after row 1, the log in sources/0 begins with row 20; rows 2 to 19 are lost"),
        (0, 8, "Spark has rows up to 8, the log in sources/0 ends before row 2; rows 2 to 8 are lost"),
    ],
)
def test_a_log_that_does_not_reach_to_where_spark_stands_is_damage(
    folder: Folder, headwater: Headwater, first: int, spark: int, told: str
) -> None:
    folder.manifest()
    folder.put(0, segment(first, [frame(first, 2, group=True)]))
    folder.offset(0, offset(spark))
    folder.committed(0)
    status, out, _ = headwater("verify", folder.path)
    assert (status, out.splitlines()[1]) == (1, f"     damage: offsets/0 at byte 0: {told}")


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
    said = json.loads(headwater("show", folder.path, "--json")[1])
    assert [source["kind"] for source in said["sources"]] == ["memory", "other", "other"]
    status, out, _ = headwater("verify", folder.path)
    assert (status, out) == (0, f"ok   {folder.path} has no log of headwater, so nothing to verify\n")


def test_a_source_with_a_name_is_known_by_its_run(folder: Folder, headwater: Headwater) -> None:
    sound(folder)
    folder.log.rename(folder.path / "sources" / "mine")
    folder.offset(0, "-", offset(1))
    folder.offset(1, "-", offset(6))
    said = json.loads(headwater("show", folder.path, "--json")[1])
    other, mine = said["sources"]
    assert (other["folder"], other["kind"]) == ("sources/0", "other")
    assert (mine["folder"], mine["kind"], mine["damage"]) == ("sources/mine", "log", [])
    assert mine["again"] == {"batch": 1, "rows": [2, 6], "complete": True, "missing": []}


# The path


def test_the_path_may_be_a_uri_of_a_file(folder: Folder, headwater: Headwater) -> None:
    sound(folder)
    for uri in (f"file:{folder.path}", f"file://{folder.path}", f"{folder.path}/"):
        status, out, _ = headwater("show", uri)
        assert (status, out.splitlines()[0]) == (0, f"checkpoint  {folder.path}")


def test_a_path_that_is_no_checkpoint_is_named_with_what_is_expected(
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
        (file, f"the checkpoint {file} is no folder. {expected}"),
        (folder.path / "offsets", f"{folder.path}/offsets is no checkpoint of a query: "),
        (folder.log, "it has neither offsets nor sources, it is the log of one source. Fix: "),
        ("s3a://bucket/x", "the checkpoint s3a://bucket/x is not on a local disk. Fix: copy the folder "),
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
    assert err.startswith(f"headwater: {file} cannot be read: Is a directory. Fix: ")


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
    shutil.copytree(GOLDEN, folder.log)
    assert headwater("verify", folder.path)[0] == 0
    assert 'of shard 1: "b-5"' in headwater("show", folder.path)[1]

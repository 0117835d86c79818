"""The applications in `examples/`, each run as it is, in a process of its own, and what they write."""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nbformat
import pytest
from nbclient import NotebookClient
from processes import ROOT, running
from servers import PASSWORD, redis_program, redis_server

import headwater as hw
from headwater.sim import Cut, RsvpSim, WikimediaSim

EXAMPLES = ROOT / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))
NOTEBOOK = EXAMPLES / "first-steps.ipynb"
NOON = datetime(2024, 5, 31, 12, tzinfo=timezone.utc)


def command(example: str, *arguments: str) -> list[str]:
    return [sys.executable, str(EXAMPLES / example), *arguments]


@pytest.fixture
def env(clean_env: dict[str, str]) -> dict[str, str]:
    return {**clean_env, "TZ": "UTC"}


# The programs


@pytest.mark.process
@pytest.mark.parametrize(
    ("example", "row"),
    [("hello.py", r"\| *8\| +64\|"), ("rsvps.py", r"\|(yes|no) *\|\d +\|\S.*\|\S")],
    ids=["hello", "rsvps"],
)
def test_rows_are_shown_in_the_console(example: str, row: str, env: dict[str, str], tmp_path: Path) -> None:
    with running(command(example), tmp_path / "example.log", env) as process:
        process.until("a row", lambda: re.search(row, process.output), 120)


@pytest.mark.process
def test_rsvps_to_json_goes_on_after_a_kill_without_gap_or_repeat(
    env: dict[str, str], tmp_path: Path
) -> None:
    def rsvps() -> list[tuple[int, int]]:
        return [(row["rsvp_id"], row["mtime"]) for row in written_rows(tmp_path / "out" / "rsvps")]

    with RsvpSim(seed=3, rate=50, faults=[Cut(after=100)]) as sim:
        begin = command("rsvps_to_json.py", str(tmp_path / "out"), "--url", sim.url, "--seconds", "300")
        with running(begin, tmp_path / "first.log", env) as first:
            first.until("RSVPs", rsvps, 120)
        before = rsvps()
        with running(begin, tmp_path / "second.log", env) as second:
            second.until("more RSVPs", lambda: len(rsvps()) > len(before), 120)
        found = rsvps()
        begun_at = sim.sent[0]
        sent = [sim.record(n) for n in range(begun_at, begun_at + len(found))]
    assert Counter(found) == Counter((record["rsvp_id"], record["mtime"]) for record in sent)
    assert Counter(before) <= Counter(found)


@pytest.mark.process
def test_rsvps_to_json_shows_with_a_simulator_that_it_goes_on(env: dict[str, str], tmp_path: Path) -> None:
    begin = command("rsvps_to_json.py", "out", "--seconds", "16")
    with running(begin, tmp_path / "example.log", env) as process:
        said = re.findall(
            r"^(\d+) RSVPs in out/rsvps, (\d+) different ones$", process.wait(120), re.MULTILINE
        )
    (_, first), (written, different) = said
    assert int(first) < int(different) == int(written) == len(written_rows(tmp_path / "out" / "rsvps"))


def written_rows(folder: Path) -> list[dict[str, Any]]:
    """What Spark's file sink has written in batches that are done, in any order."""
    logs = [log.read_text().splitlines()[1:] for log in (folder / "_spark_metadata").glob("[0-9]*")]
    paths = {json.loads(line)["path"] for lines in logs for line in lines}
    return [json.loads(line) for path in paths for line in Path(urlsplit(path).path).read_text().splitlines()]


@pytest.mark.process
def test_trending_topics_are_those_with_the_most_rsvps(env: dict[str, str], tmp_path: Path) -> None:
    """Nine seconds of RSVPs close the two windows that end two seconds or more before the last of them."""
    with RsvpSim(seed=3, rate=0, count=9000, start=NOON) as sim:
        begin = command("trending_topics.py", "--url", sim.url, "--windows", "2")
        with running(begin, tmp_path / "example.log", env) as process:
            said = process.wait(120)
        records = [sim.record(n) for n in range(9000)]
    shown = [line for line in said.splitlines() if re.match(r"  \d\. |\d\d:\d\d:\d\d to ", line)]
    assert shown == [
        "11:59:57 to 12:00:03",
        *top_topics(records, -3, 3),
        "12:00:00 to 12:00:06",
        *top_topics(records, 0, 6),
    ]


def top_topics(records: list[dict[str, Any]], start: int, end: int) -> Iterator[str]:
    counts: Counter[str] = Counter()
    for record in records:
        if start <= record["mtime"] / 1000 - NOON.timestamp() < end and record["response"] == "yes":
            counts.update(topic["topic_name"] for topic in record["group"]["group_topics"])
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:5]
    yield from (f"  {rank}. {topic:<24}{count:>5}" for rank, (topic, count) in enumerate(most, 1))


@pytest.mark.process
def test_the_dashboard_counts_edits_of_people_and_bots_and_no_canaries(
    env: dict[str, str], tmp_path: Path
) -> None:
    with WikimediaSim(seed=3, rate=0, count=3000, start=NOON, faults=[Cut(after=1000)]) as sim:
        people, bots = edits([sim.record(n) for n in range(3000)])
        total = str(people.total() + bots.total())
        begin = command("wikimedia_dashboard.py", "--url", sim.url, "--edits", total)
        with running(begin, tmp_path / "example.log", env) as process:
            said = process.wait(120)
    table = said[said.rindex("edits by people + bots") :]
    rows = re.findall(r"^(\w+) +(\d+) \+ (\d+)$", table, re.MULTILINE)
    assert re.search(r"^wiki +12:00:00$", table, re.MULTILINE)
    assert {wiki: (int(of_people), int(of_bots)) for wiki, of_people, of_bots in rows} == {
        wiki: (people[wiki], bots[wiki]) for wiki in people | bots
    }
    assert [wiki for wiki, *_ in rows] == sorted(people, key=lambda wiki: (-people[wiki] - bots[wiki], wiki))


def edits(records: list[dict[str, Any]]) -> tuple[Counter[str], Counter[str]]:
    real = [
        record
        for record in records
        if record["meta"]["stream"] == "mediawiki.recentchange"
        and record["meta"]["domain"] != "canary"
        and record["type"] in ("edit", "new")
    ]
    by = [Counter(record["wiki"] for record in real if record["bot"] is bot) for bot in (False, True)]
    return by[0], by[1]


@pytest.mark.process
def test_parquet_has_each_row_once_though_the_killed_batch_has_left_files(
    env: dict[str, str], tmp_path: Path
) -> None:
    with running(command("exactly_once_parquet.py"), tmp_path / "example.log", env) as process:
        said = process.wait(240)
    killed, ended = re.findall(r"^(?:killed|ended), with (\d+) files .* and (\d+) beside", said, re.MULTILINE)
    assert 2 <= int(killed[0]) < int(ended[0])
    assert 1 <= int(killed[1]) <= int(ended[1])
    first, second = re.findall(r"^the source is asked for what comes after (\w+)$", said, re.MULTILINE)
    assert (first, second.isdigit()) == ("None", True)
    assert "\n8000 rows: lost 0, repeated or invented 0\n" in said


@pytest.mark.process
@pytest.mark.parametrize(
    ("old", "new", "said", "status"),
    [
        ("", "", "1000 events over 4 connections, the last one for /subscribe?cursor=1717156800122889", 0),
        ("time > since", "time >= since", "1003 events over 4 connections", 1),
    ],
    ids=["as it is", "that drops no repeats"],
)
def test_the_websocket_example_tells_whether_events_are_lost_or_repeated(
    old: str, new: str, said: str, status: int, env: dict[str, str], tmp_path: Path
) -> None:
    changed_example("websocket_source.py", old, new, tmp_path / "example.py")
    with running([sys.executable, "example.py"], tmp_path / "example.log", env) as process:
        assert process.exit_code(120) == status, process.ending
    assert f"\n{said}" in process.output


@pytest.mark.process
@pytest.mark.parametrize(
    ("old", "new", "rows", "status"),
    [("", "", "8000 rows", 0), ("file.seek(start - 1)", "file.seek(start)", r"\d+ rows", 1)],
    ids=["as it is", "that loses a line at each cut"],
)
def test_the_folder_log_tells_whether_lines_are_lost_or_repeated(
    old: str, new: str, rows: str, status: int, env: dict[str, str], tmp_path: Path
) -> None:
    changed_example("folder_log.py", old, new, tmp_path / "example.py")
    with running([sys.executable, "example.py"], tmp_path / "example.log", env) as process:
        assert process.exit_code(240) == status, process.ending
    assert re.search(rf"^{rows} for 8000 lines, and 1000 at most in a batch$", process.output, re.MULTILINE)
    assert re.findall(r"^\d+ lines in \d+ batches, of (\d) files$", process.output, re.MULTILINE) == [
        "3",
        "4",
    ]


@pytest.mark.process
@pytest.mark.parametrize(
    ("old", "new", "rows", "status"),
    [
        ("", "", "8000 rows", 0),
        ("in self._entries(p, start, end):", "in self._entries(p, start, end - 1):", r"\d+ rows", 1),
    ],
    ids=["as it is", "that leaves out the end of a range"],
)
def test_the_redis_example_tells_whether_entries_are_lost_or_repeated(
    old: str, new: str, rows: str, status: int, env: dict[str, str], tmp_path: Path
) -> None:
    changed_example("redis_streams.py", old, new, tmp_path / "example.py")
    with redis_server(tmp_path / "redis") as server:
        begin = [sys.executable, "example.py", server.url]
        with running(begin, tmp_path / "example.log", env) as process:
            assert process.exit_code(240) == status, process.ending
        assert server.client.dbsize() == 0
    assert re.search(rf"^{rows} for 8000 entries, and \d+ at most in a batch$", process.output, re.MULTILINE)
    assert PASSWORD not in process.output


@pytest.mark.process
def test_the_redis_example_brings_its_own_redis(env: dict[str, str], tmp_path: Path) -> None:
    redis_program()
    with running(command("redis_streams.py"), tmp_path / "example.log", env) as process:
        said = process.wait(240)
    assert "\n8000 rows for 8000 entries, " in said


def changed_example(example: str, old: str, new: str, copy: Path) -> None:
    program = (EXAMPLES / example).read_text(encoding="utf-8")
    assert old in program
    copy.write_text(program.replace(old, new) if old else program, encoding="utf-8")


# The notebook


@pytest.fixture
def notebook() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.mark.process
def test_the_notebook_runs_from_top_to_bottom(notebook: Any, env: dict[str, str], tmp_path: Path) -> None:
    client = NotebookClient(notebook, timeout=180, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env={**env, "TMPDIR": str(tmp_path)})
    printed = "\n".join(text for cell in code_cells(notebook) for text in printed_by(cell))
    assert "[(0, 0), (2, 4), (4, 16), (6, 36)]" in printed
    assert re.search(r"FeedStatus\(source='powers', query='seen', .*state='running'", printed)
    assert '"source":"powers"' in printed
    (shown,) = re.findall(r"cursor +of shard 0: (\d+)", printed)
    assert re.search(rf"^it goes on after {shown}$", printed, re.MULTILINE)
    squares, cubes = (
        tuple(map(int, row)) for row in re.findall(r"^\| *(\d+)\| *(\d+)\| *(\d+)\|$", printed, re.MULTILINE)
    )
    assert squares == (squares[1] + 1, squares[1], squares[1] ** 2)
    assert cubes == (cubes[1] + 1, cubes[1], cubes[1] ** 3)
    assert cubes[1] > int(shown)


def test_the_notebook_has_no_output_stored(notebook: Any) -> None:
    nbformat.validate(notebook)
    assert [cell for cell in code_cells(notebook) if cell.outputs or cell.execution_count] == []


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed_by(cell: Any) -> Iterator[str]:
    """Results, and what was printed; not what Spark has logged."""
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stdout":
            yield output.text
        elif "data" in output:
            yield output.data["text/plain"]


# All of them


def python_of(file: Path) -> str:
    if file.suffix == ".py":
        return file.read_text(encoding="utf-8")
    lines = "\n".join(cell.source for cell in code_cells(nbformat.read(file, as_version=4))).splitlines()
    return "\n".join(line for line in lines if not line.startswith("%"))


@pytest.mark.parametrize("file", [*PROGRAMS, NOTEBOOK], ids=lambda file: file.name)
def test_an_example_uses_public_names_only(file: Path) -> None:
    for node in ast.walk(ast.parse(python_of(file))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("headwater"):
            assert {alias.name for alias in node.names} <= {*importlib.import_module(node.module).__all__}
            assert not [part for part in node.module.split(".") if part.startswith("_")]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "hw":
            assert node.attr in hw.__all__


@pytest.mark.parametrize("file", PROGRAMS, ids=lambda file: file.name)
def test_an_example_says_how_it_is_run(file: Path) -> None:
    said = ast.get_docstring(ast.parse(python_of(file))) or ""
    assert re.search(rf"Run this file|make {file.stem}|{file.name}", said)


def test_the_page_lists_every_example() -> None:
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    files = [file for kind in ("*.py", "*.ipynb", "scala/*.scala") for file in EXAMPLES.glob(kind)]
    listed = set(re.findall(r"^\| \[[^]]+\]\(([^)]+)\)", page, re.MULTILINE))
    assert listed == {str(file.relative_to(EXAMPLES)) for file in files}

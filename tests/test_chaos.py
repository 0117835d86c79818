"""kill -9: rows survive it, in their order, once. And the oracle that says so sees it when they do not."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos import sink
from chaos.found import Disk, Held, stands_at
from chaos.oracle import judge, live, partitioned, resumable
from chaos.plan import CYCLE, NAMED, Plan, plan, plans
from chaos.rounds import TESTS, Harness, Outcome
from chaos.run import growth, missed
from chaos.sink import Written
from cluster import Cluster, events, standalone_cluster
from processes import APPS, running, spark_environment


def written(*batches: list[int], attempts: dict[int, list[list[int]]] | None = None) -> Written:
    numbered = dict(enumerate(batches))
    return Written(numbered, {number: [ids] for number, ids in numbered.items()} | (attempts or {}))


def test_rows_in_order_are_exact() -> None:
    assert resumable(written([0, 1], [], [2]), end=3).is_exact
    assert live(written([0, 1], [], [2]), [[0, 1], [2]]).is_exact


@pytest.mark.parametrize(
    ("batches", "end", "what", "which"),
    [
        ([[0, 2]], 3, "lost", [1]),
        ([[0, 1]], 3, "lost", [2]),
        ([[], [1]], 2, "lost", [0]),
        ([[0, 1], [1, 2]], 3, "repeated", [1]),
        ([[0, 0, 1]], 2, "repeated", [0]),
        ([[0, 2, 1]], 3, "reordered", [1]),
        ([[2], [0, 1]], 3, "reordered", [0, 1]),
        ([[0, 1, 7]], 2, "invented", [7]),
        ([[0, -2]], 1, "invented", [-2]),
    ],
)
def test_the_oracle_names_rows_that_are_not_what_was_given(
    batches: list[list[int]], end: int, what: str, which: list[int]
) -> None:
    verdict = resumable(written(*batches), end)
    assert not verdict.is_exact
    assert getattr(verdict, what) == which
    assert f"{what} {len(which)} ({which[0]}" in str(verdict)


@pytest.mark.parametrize(
    ("batches", "what", "which"),
    [
        ([[0, 10, 1]], None, []),
        ([[1, 0], [10]], None, []),
        ([[10, 0, 1]], "reordered", [0]),
        ([[0, 10]], "lost", [1]),
        ([[0, 10, 1, 1]], "repeated", [1]),
        ([[0, 10, 20, 1]], "invented", [20]),
        ([[0, 10, 2, 1]], "invented", [2]),
        ([[0, 10, -1, 1]], "invented", [-1]),
    ],
)
def test_partitions_are_exact_each_by_itself(
    batches: list[list[int]], what: str | None, which: list[int]
) -> None:
    verdict = partitioned(written(*batches), {0: 2, 1: 1}, most=10)
    assert verdict.is_exact is (what is None)
    assert what is None or getattr(verdict, what) == which


@pytest.mark.parametrize("first", [[0], [1, 0], [0, 1, 2], []])
def test_the_oracle_sees_a_batch_that_was_not_the_same_twice(first: list[int]) -> None:
    verdict = resumable(written([0, 1], attempts={0: [first, [0, 1]]}), end=2)
    assert verdict.differing == [0]
    assert not verdict.is_exact


def test_the_oracle_asks_for_the_rows_of_an_attempt_whose_batch_never_came() -> None:
    assert live(written([0], attempts={1: [[1, 2]]}), [[0, 1, 2]]).lost == [1, 2]


def test_a_live_source_may_lose_the_end_of_a_run_and_nothing_else() -> None:
    assert live(written([0, 1], [4, 5]), [[0, 1, 2, 3], [4, 5, 6]]).is_exact
    assert live(written([0, 1], [4]), [[0, 1], [2, 3], [4]]).is_exact
    assert live(written([0, 1, 3], [4]), [[0, 1, 2, 3], [4]]).lost == [2]
    assert live(written([0, 1], [5]), [[0, 1], [4, 5]]).lost == [4]
    assert live(written([0, 0]), [[0]]).repeated == [0]
    assert live(written([1, 0]), [[0, 1]]).reordered == [0]
    assert live(written([0, 1]), [[0]]).invented == [1]


def test_the_sink_keeps_every_attempt_and_the_last_one_as_the_batch(tmp_path: Path) -> None:
    told: list[str] = []
    into = sink.Sink(tmp_path, told.append)
    into.write(3, [1, 2])
    into.write(3, [1])
    assert sink.read(tmp_path) == Written({3: [1]}, {3: [[1, 2], [1]]})
    assert told == [sink.BEFORE, sink.AFTER] * 2


def test_where_a_kill_came_is_told_by_the_files(tmp_path: Path) -> None:
    def put(name: str, text: str = "") -> None:
        (tmp_path / "numbers" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "numbers" / name).write_text(text)

    offset = '{"v":1,"source":"numbers","run":"0123456789abcdef","seq":12,"durability":"log"}'
    log = f"Retrieving data from numbers[]: Some({offset.replace('12,', '9,')}) -> {offset}\n"
    assert stands_at(tmp_path, "numbers", log) == "nothing"
    put("checkpoint/commits/6")
    put("checkpoint/offsets/6")
    put("checkpoint/offsets/7", f"v1\n{{}}\n{offset}")
    assert stands_at(tmp_path, "numbers", "") == "offsets"
    assert stands_at(tmp_path, "numbers", log.replace('"seq":12', '"seq":123')) == "offsets"
    assert stands_at(tmp_path, "numbers", log) == "before_sink"
    put("sink/batch-00000007.json", "[]")
    assert stands_at(tmp_path, "numbers", log) == "after_sink"
    put("checkpoint/commits/7")
    assert stands_at(tmp_path, "numbers", log) == "commits"


def outcome(kind: Plan, stood_at: str = "offsets", threads: int = 50, size: int = 1 << 20) -> Outcome:
    return Outcome(kind, stood_at, Held(threads, 200, 20, 30), Disk(size, 40, 4), 10.0)


def test_what_grows_from_round_to_round_is_named() -> None:
    kinds = list(plans(30, seed=1))
    assert growth([outcome(kind) for kind in kinds]) == []
    (threads,) = growth([outcome(kind, threads=50 + kind.number) for kind in kinds])
    assert threads.startswith("threads of the JVM grew")
    (size,) = growth([outcome(kind, size=kind.number << 20) for kind in kinds])
    assert size.startswith("bytes of the checkpoints grew")


def test_a_moment_that_no_kill_came_at_is_named() -> None:
    kinds = list(plans(len(CYCLE), seed=1))
    assert missed([outcome(kind, stood_at="offsets") for kind in kinds]) == [
        "after_sink",
        "before_sink",
        "commits",
    ]
    assert missed([outcome(kind, stood_at=kind.point) for kind in kinds]) == []


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with tempfile.TemporaryDirectory(prefix="chaos-tmp-") as temporary:
        yield Harness(tmp_path, Path(temporary))


@pytest.mark.process
@pytest.mark.parametrize("query", ["numbers", "shards"])
def test_rows_survive_kill_9_before_and_after_the_sink(query: str, harness: Harness) -> None:
    """`make chaos` has every moment, many times over."""
    dice = random.Random(7)
    number = 0
    for point in [sink.BEFORE, sink.AFTER]:
        hit = False
        for _ in range(4):  # a kill that came too late says nothing of its moment
            hit = hit or harness.play(plan(number, point, query, dice)).is_hit
            number += 1
            if hit:
                break
        assert hit, f"no kill came at '{point}': {NAMED[point]}"
    harness.drain()
    verdicts = judge(harness.folder)
    for name, verdict in verdicts.items():
        assert verdict.is_exact, f"{name}: {verdict}"
        assert verdict.rows > 100
    assert verdicts[query].rerun > 0


@pytest.mark.process
def test_rows_in_memory_do_not_survive_and_the_oracle_sees_it(harness: Harness, tmp_path: Path) -> None:
    forgetful = Harness(harness.folder, harness.temporary, durability="memory")
    forgetful.play(plan(0, sink.BEFORE, "numbers", random.Random(7)))
    forgetful.drain()
    verdict = judge(tmp_path)["numbers"]
    assert verdict.repeated  # it began again from its start
    assert verdict.differing  # and the batch that had been planned was empty


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.mark.process
@pytest.mark.parametrize(
    ("whom", "reason"), [("executor", "ExecutorLostFailure"), ("worker", "ExceptionFailure")]
)
def test_on_a_cluster_a_task_killed_with_the_log_in_use_costs_no_row(
    whom: str, reason: str, cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "events").mkdir()
    command = [sys.executable, str(APPS / "log_on_cluster.py"), cluster.url, str(tmp_path), whom]
    held = tmp_path / "held"
    with running(command, tmp_path / "reader.log", spark_environment(PYTHONPATH=str(TESTS))) as driver:
        driver.until("a held task", held.exists, 90)
        os.kill(int(held.read_text()), signal.SIGKILL)
        driver.wait(120)
    found = sink.read(tmp_path / "sink")
    assert resumable(found, end=5000).is_exact
    assert [len(ids) for ids in found.batches.values()] == [1000] * 5
    ended = [event for event in events(tmp_path / "events") if event["Event"] == "SparkListenerTaskEnd"]
    assert {"Success", reason} <= {event["Task End Reason"]["Reason"] for event in ended}
    assert "driver" not in {event["Task Info"]["Executor ID"] for event in ended}
    offset = json.loads((tmp_path / "check/offsets/0").read_text().splitlines()[-1])
    assert offset["durability"] == "log"

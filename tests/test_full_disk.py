"""A checkpoint on a small disk: the log leaves room for Spark's own files."""

import random
import shutil
import string
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from processes import wait_until
from pyspark.sql import SparkSession
from test_log import Checkpointed, Sink

import headwater as hw

DISK = 16 << 20
ROWS = 30_000


@hw.source("n LONG, word STRING")
def full_disk_words(*, since: int | None = None) -> Iterator[Any]:
    """Twice as much as the disk holds, and nothing that can be compressed."""
    letters = string.ascii_letters + string.digits
    for first in range(0 if since is None else since + 1, ROWS, 100):
        rows = [(n, "".join(random.choices(letters, k=1000))) for n in range(first, first + 100)]
        yield hw.At(rows[-1][0], rows)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no small disk without the rights to mount one: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_query_on_a_disk_that_its_log_fills_goes_on_and_gets_every_row_once(
    spark_session: SparkSession, disk: Path
) -> None:
    free: list[int] = []

    def until_held_back(batch: int) -> None:
        if batch == 0:
            wait_until(
                lambda: any(feed.blocked > 0 for feed in hw.feeds() if feed.source == "full_disk_words"),
                lambda: f"the feed is not held back: {hw.feeds()}",
            )
        free.append(shutil.disk_usage(disk).free)

    sink = Sink(columns=["n"], after=until_held_back)
    checkpoint = Checkpointed(spark_session, disk / "checkpoint", sink)
    with checkpoint.running(full_disk_words()) as query:
        checkpoint.until(query, ROWS)
        assert query.exception() is None
    assert sink.rows == [(n,) for n in range(ROWS)]
    assert min(free) < DISK // 8 + (1 << 20), "the disk was never full"
    assert min(free) >= DISK // 16, "too little was left for Spark"


def fill(file: Path) -> None:
    with suppress(OSError), file.open("wb", buffering=0) as out:
        while True:
            out.write(bytes(4096))


def test_a_start_on_a_full_disk_names_the_path_and_what_to_do(
    spark_session: SparkSession, disk: Path
) -> None:
    checkpoint = Checkpointed(spark_session, disk / "checkpoint", Sink(columns=["n"]))
    with checkpoint.running(full_disk_words()) as query:
        checkpoint.until(query, 100)
    fill(disk / "other")
    message = checkpoint.failure(full_disk_words())
    assert f"{disk}/checkpoint/sources/0/" in message
    assert "No space left on device. Free space on this disk, then start the query again" in message
    (disk / "other").unlink()
    before = len(checkpoint.sink.rows)
    with checkpoint.running(full_disk_words()) as query:
        checkpoint.until(query, before + 1)
    rows = checkpoint.sink.rows
    assert rows == [(n,) for n in range(len(rows))]

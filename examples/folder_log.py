"""A folder of append-only files, read in parallel: each `*.log` is a partition, and bytes are its offsets.

    python examples/folder_log.py

It is a Kafka in miniature. A producer in this file appends lines to three logs, in pieces that end anywhere,
and begins a fourth one later. A query reads what there is by then; started again, it goes on with the rest.
A batch has at most 1000 lines, and its files are cut into six ranges, for tasks side by side. In the end the
rows are compared with the lines: the exit status is 1 if they differ.
"""

import itertools
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

import headwater as hw

SCHEMA = "file STRING, position LONG, line STRING"
LINES, PER_BATCH = 2000, 1000
BLOCK = 1 << 16


class FolderLog(hw.PartitionedSource, name="folder_log", schema=SCHEMA, identity=("folder",)):
    """Lines of the files in a folder that all executors see. A line is there once its newline is.

    Files only grow: one that is cut off or deleted has lost rows. There is no `at`, as no file tells when a
    line came: `startFrom` takes no time here. A line that is no UTF-8 is a bad row, for `onBadRow`.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def partitions(self) -> list[str]:
        return sorted(name for name in os.listdir(self._folder) if name.endswith(".log"))

    def earliest(self, p: str) -> int:
        return 0

    def latest(self, p: str) -> int:
        with open(self._folder / p, "rb") as file:
            end = file.seek(0, os.SEEK_END)
            while end:  # back, block by block, to the last newline
                start = max(0, end - BLOCK)
                file.seek(start)
                if found := file.read(end - start).rfind(b"\n") + 1:
                    return start + found
                end = start
        return 0

    def after(self, p: str, start: int, rows: int) -> int:
        end = self.latest(p)
        for position, line in itertools.islice(self._lines(p, start), rows):
            end = position + len(line)
        return end

    def read(self, p: str, start: int, end: int) -> Iterator[tuple[str, int, str]]:
        for position, line in itertools.takewhile(lambda one: one[0] < end, self._lines(p, start)):
            yield p, position, line[:-1].decode(errors="surrogateescape")

    def _lines(self, p: str, start: int) -> Iterator[tuple[int, bytes]]:
        """Those that begin at `start` or behind it; so each is in one range, wherever ranges are cut."""
        with open(self._folder / p, "rb") as file:
            if start:
                file.seek(start - 1)
                file.readline()  # the rest of a line that began before, or but its newline
            position = file.tell()
            for line in file:
                if line.endswith(b"\n"):
                    yield position, line
                position += len(line)


def produce(folder: Path, names: str, start: float, end: float) -> None:
    """Append that part of its lines to each log, a little to one after the other."""
    texts = {name: b"".join(b"%s %d\n" % (name.encode(), n) for n in range(LINES)) for name in names}
    left = {name: text[int(len(text) * start) : int(len(text) * end)] for name, text in texts.items()}
    while any(left.values()):
        for name, text in left.items():
            with open(folder / f"{name}.log", "ab") as file:
                file.write(text[:1000])
            left[name] = text[1000:]


def run(spark: SparkSession, folder: Path) -> list[int]:
    """Read what there is by now, behind what the run before has read. Gives the lines of each batch."""
    source = FolderLog(folder=str(folder / "logs"))
    stream = hw.stream(spark, source, max_rows_per_trigger=PER_BATCH, min_partitions=6)
    writer = stream.writeStream.format("parquet").option("path", f"{folder}/rows")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()  # raises what the query fails with
    batches = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    print(f"{sum(batches)} lines in {len(batches)} batches, of {len(source.partitions())} files", flush=True)
    return batches


def main() -> int:
    builder = SparkSession.builder.master("local[2]").appName("folder log")
    spark = hw.session(builder.config("spark.ui.showConsoleProgress", "false"))
    with tempfile.TemporaryDirectory(prefix="headwater-logs-") as name:
        folder = Path(name)
        logs = folder / "logs"
        logs.mkdir()
        produce(logs, "abc", 0, 0.5)
        meanwhile = threading.Thread(target=produce, args=(logs, "abc", 0.5, 0.8))
        meanwhile.start()
        batches = run(spark, folder)
        meanwhile.join()
        produce(logs, "abc", 0.8, 1)
        produce(logs, "d", 0, 1)
        batches += run(spark, folder)
        table = spark.read.parquet(f"{name}/rows").orderBy("file", "position")
        rows = [(row.file, row.line) for row in table.collect()]
        spark.stop()
    expected = [(f"{name}.log", f"{name} {n}") for name in "abcd" for n in range(LINES)]
    print(f"{len(rows)} rows for {len(expected)} lines, and {max(batches)} at most in a batch")
    return int(rows != expected or max(batches) > PER_BATCH)


if __name__ == "__main__":
    sys.exit(main())

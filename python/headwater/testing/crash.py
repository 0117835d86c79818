"""What a crash of the driver leaves: the files of the query's checkpoint, and the rows in its sink."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

__all__ = ["BatchSink", "batch_ids", "copy_checkpoint", "replace_checkpoint"]

# What Spark writes into a checkpoint. Other files in the folder belong to the test.
_ENTRIES = ("offsets", "commits", "metadata", ".metadata.crc", "state", "sources")


class BatchSink:
    """For `foreachBatch`: an idempotent sink. A batch that is run again replaces the rows that it had.

    `hold` stops Spark where it is: a call that runs, or comes later, does not return until `release`. So at
    most one more batch begins, and none ends. After `freeze` no rows are added.
    """

    def __init__(self, batches: dict[int, list[Row]]) -> None:
        """`batches` has the rows of earlier runs, by batch id."""
        self._batches = batches
        self._changed = threading.Condition()
        self._is_held = self._is_frozen = False
        self._last_done: int | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        with self._changed:
            self._wait_while_held()
        try:
            rows = frame.collect()
        except Exception:
            if self._is_frozen:  # cancelled by the end of `kill`, which nobody needs to hear of
                return
            raise
        with self._changed:
            if not self._is_frozen:
                self._batches[batch] = rows
            self._wait_while_held()
            self._last_done = batch

    @property
    def rows(self) -> list[Row]:
        """The rows of all batches, in the order of the batches."""
        with self._changed:
            return [row for _, rows in sorted(self._batches.items()) for row in rows]

    def hold(self) -> int | None:
        """Returns the last batch for which a call has returned: Spark will commit it, but no other."""
        with self._changed:
            self._is_held = True
            return self._last_done

    def freeze(self) -> None:
        with self._changed:
            self._is_frozen = True

    def release(self) -> None:
        with self._changed:
            self._is_held = False
            self._changed.notify_all()

    def _wait_while_held(self) -> None:
        self._changed.wait_for(lambda: not self._is_held)


def batch_ids(checkpoint: Path, log: str) -> set[int]:
    """The batches in `offsets` or in `commits`."""
    folder = checkpoint / log
    return {int(file.name) for file in folder.iterdir() if file.name.isdigit()} if folder.is_dir() else set()


def copy_checkpoint(checkpoint: Path, copy: Path) -> bool:
    """Copies the files of a running query. False if Spark wrote meanwhile: then the copy is of no use.

    A copy takes time, and a crash does not. What Spark has written must therefore be the same before and
    after. The source's log may grow in between, as it then has the rows of every offset that was copied. It
    may end within a row, as after a crash.
    """
    before = batch_ids(checkpoint, "offsets"), batch_ids(checkpoint, "commits")
    shutil.rmtree(copy, ignore_errors=True)
    try:
        for entry in _ENTRIES:
            file = checkpoint / entry
            if file.is_dir():
                shutil.copytree(file, copy / entry)
            elif file.exists():
                copy.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, copy / entry)
    except (FileNotFoundError, shutil.Error):  # renamed or deleted after the folder was listed
        return False
    return before == (batch_ids(checkpoint, "offsets"), batch_ids(checkpoint, "commits"))


def replace_checkpoint(checkpoint: Path, copy: Path) -> None:
    """Puts the copy in the place of a checkpoint that no query uses any more."""
    for entry in _ENTRIES:
        file = checkpoint / entry
        if file.is_dir():
            shutil.rmtree(file)
        else:
            file.unlink(missing_ok=True)
        if (copy / entry).exists():
            shutil.move(copy / entry, file)

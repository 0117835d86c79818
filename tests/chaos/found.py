"""What can be seen from outside: how far a killed query had come, and what processes and checkpoints hold."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from chaos.plan import COMMITS, OFFSETS
from chaos.sink import AFTER, BEFORE, has_batch


def stands_at(folder: Path, query: str, log: str) -> str:
    """Where the newest batch stood when its driver was killed: by files, and Spark's word on `getBatch`."""
    checkpoint = folder / query / "checkpoint"
    planned, done = newest(checkpoint / "offsets"), newest(checkpoint / "commits")
    if planned < 0:
        return "nothing"
    if planned == done:
        return COMMITS
    if has_batch(folder / query / "sink", planned):
        return AFTER
    offset = (checkpoint / "offsets" / str(planned)).read_text().splitlines()[-1]
    got = re.search(rf"Retrieving data from .*-> {re.escape(offset)}", log)
    return BEFORE if got else OFFSETS


def newest(folder: Path) -> int:
    """The number of the newest batch in one of Spark's logs, -1 if there is none."""
    names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isdigit()), default=-1)


@dataclass(frozen=True)
class Held:
    """By both processes of a running driver."""

    jvm_threads: int
    jvm_files: int
    python_threads: int
    python_files: int

    @staticmethod
    def by(python: int, jvm: int) -> Held:
        return Held(_threads(jvm), _files(jvm), _threads(python), _files(python))


def _threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def _files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@dataclass(frozen=True)
class Disk:
    """What checkpoints hold, but for the temporary files that a killed Spark leaves in its own folders."""

    bytes: int
    files: int
    segments: int

    @staticmethod
    def of(folder: Path) -> Disk:
        files = [
            file for file in folder.glob("*/checkpoint/**/*") if file.is_file() and not _is_sparks_rest(file)
        ]
        segments = [file for file in files if file.suffix == ".segment"]
        return Disk(sum(file.stat().st_size for file in files), len(files), len(segments))


def _is_sparks_rest(file: Path) -> bool:
    return file.parent.name in ("offsets", "commits") and ".tmp" in file.name


def members(group: int) -> list[int]:
    """The processes of a group that live."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(of) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found

"""What Spark itself keeps in a checkpoint: in `offsets` the batches begun, in `commits` those done."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater._log.texts import parsed, shortened

__all__ = ["Batch", "Offset", "batch", "batches"]

_MOST = 16 << 20
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Offset:
    """The position after row `seq`. `log`: its rows are on disk, else in the memory of a driver."""

    source: str
    run: str
    seq: int
    log: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """By source, None where Spark has none, a text where it is another's. With a `problem` there are none."""

    number: int
    offsets: tuple[Offset | str | None, ...]
    problem: str | None = None


def batches(folder: Path) -> list[int]:
    """By number. Spark's checksums and leftovers have other names."""
    try:
        return sorted(int(path.name) for path in folder.iterdir() if _NUMBER.fullmatch(path.name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def batch(folder: Path, number: int) -> Batch | None:
    """None where there is no such file; a file that is not understood says so in `problem`."""
    try:
        with (folder / str(number)).open("rb") as file:
            data = file.read(_MOST + 1)
    except FileNotFoundError:
        return None
    name = f"{folder.name}/{number}"
    if len(data) > _MOST:
        return Batch(number, (), f"{name} is not understood: it is larger than {_MOST} bytes")
    lines = [line.decode("utf-8", "replace") for line in data.splitlines()] or [""]
    if lines[0] != "v1":
        told = f"its first line is '{shortened(lines[0])}', this headwater reads v1"
        return Batch(number, (), f"{name} is not understood: {told}")
    return Batch(number, tuple(_offset(line) for line in lines[2:]))


def _offset(line: str) -> Offset | str | None:
    if line == "-":
        return None
    try:
        said = parsed(line.encode("utf-8"))
    except ValueError:
        return line
    return _ours(said) or line


def _ours(said: Any) -> Offset | None:
    if not isinstance(said, dict) or said.get("v") != 1:
        return None
    source, run, seq = said.get("source"), said.get("run"), said.get("seq")
    if not isinstance(source, str) or not isinstance(run, str) or type(seq) is not int or seq < 0:
        return None
    return Offset(source, run, seq, said.get("durability") == "log")

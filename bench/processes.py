"""Processes as the operating system sees them."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["compiler_seconds", "cpu_seconds", "resident_bytes"]

_PROC = Path("/proc")

# In /proc/PID/stat, behind the command. The times are the process's own, and of its children that have ended.
_PARENT = 1
_TIMES = slice(11, 15)
_OWN_TIMES = slice(11, 13)


def cpu_seconds() -> float:
    """What this process and all below it, the JVM and Spark's Python workers, have used of all cores."""
    stats = _all_stats()
    ticks, family = 0, [os.getpid()]
    for pid in family:
        ticks += sum(map(int, stats[pid][_TIMES]))
        family += [child for child, stat in stats.items() if int(stat[_PARENT]) == pid]
    return ticks / os.sysconf("SC_CLK_TCK")


def compiler_seconds(jvm: int) -> float:
    """What of it were the threads of a JVM that compile.

    They must not end by themselves: `-XX:-UseDynamicNumberOfCompilerThreads`.
    """
    ticks = 0
    for thread in (_PROC / str(jvm) / "task").iterdir():
        try:
            command, _, stat = (thread / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:  # It has just ended.
            continue
        if command.startswith(("C1 Compiler", "C2 Compiler")):
            ticks += sum(map(int, stat.split()[_OWN_TIMES]))
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    pages = int((_PROC / str(pid) / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _all_stats() -> dict[int, list[str]]:
    stats = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            try:
                # The command, in brackets, may hold anything.
                stats[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # It has just ended.
                continue
    return stats

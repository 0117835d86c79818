"""One round: a driver is started, killed at a moment, and what it leaves behind is looked at."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from processes import QUICK_START, Process, running, spark_environment, wait_until

from chaos.found import Disk, Held, members, stands_at
from chaos.plan import COMMITS, DELETING, FRAME, NAMED, NARROW, OFFSETS, OPENING, RANDOM, SEGMENT, Plan
from chaos.sink import AFTER, BEFORE
from chaos.watch import APPEARED, CREATED, DELETED, MODIFIED, Watch

TESTS = Path(__file__).resolve().parent.parent

# The folder of the checkpoint, what happens there, and to which files.
SEEN = {
    OFFSETS: ("offsets", APPEARED, r"\d+"),
    COMMITS: ("commits", APPEARED, r"\d+"),
    DELETING: ("sources/0", DELETED, r".*\.segment"),
    OPENING: ("sources/0", APPEARED, r"manifest.*"),
    SEGMENT: ("sources/0", CREATED, r".*\.segment"),
    FRAME: ("sources/0", MODIFIED, r".*\.segment"),
}


@dataclass(frozen=True)
class Outcome:
    plan: Plan
    stood_at: str
    held: Held | None
    """None when it was killed before all queries ran."""

    disk: Disk
    seconds: float

    @property
    def is_hit(self) -> bool:
        """Whether the kill came at the moment that was meant; the files tell, for those of a batch."""
        return self.plan.point not in NAMED or self.plan.point in (self.stood_at, DELETING)


@dataclass(frozen=True)
class Harness:
    """`folder` outlives the rounds, `temporary` has a short name: sockets lie in it."""

    folder: Path
    temporary: Path
    durability: str = "log"
    api: str = ""
    """v1 | v2; if empty, the rounds take turns, and so each goes on with what the other left."""

    def play(self, plan: Plan) -> Outcome:
        began = time.monotonic()
        kill = f"{plan.query}:{plan.point}:{plan.skip}" if plan.point in (BEFORE, AFTER) else "::0"
        api = self.api or ("v2", "v1")[plan.number % 2]
        with self._driver(str(plan.number), plan.pace, plan.width, api, kill) as driver:
            held = None if plan.kills_early else Held.by(**_pids(driver))
            self._kill(plan, driver)
            wait_until(lambda: not members(driver.popen.pid), lambda: driver.ending, timeout=90)
            stood_at = stands_at(self.folder, plan.query, driver.output)
        return Outcome(plan, stood_at, held, Disk.of(self.folder), time.monotonic() - began)

    def drain(self) -> None:
        """The clean run at the end: all that is durable is read, and a little more comes."""
        with self._driver("drain", "drain", NARROW, self.api or "v2") as driver:
            assert "DRAINED" in driver.wait(180), driver.ending

    def _kill(self, plan: Plan, driver: Process) -> None:
        if plan.point in SEEN:
            self._kill_when_seen(plan, driver)
        elif plan.point == RANDOM:
            self._kill_after_a_while(plan, driver)
        else:
            assert driver.exit_code(60) == -signal.SIGKILL, driver.ending

    def _kill_when_seen(self, plan: Plan, driver: Process) -> None:
        below, what, names = SEEN[plan.point]
        seen = 0

        def is_it(name: str) -> bool:
            nonlocal seen
            seen += re.fullmatch(names, name) is not None
            return seen > plan.skip

        with Watch(self.folder / plan.query / "checkpoint" / below, what) as watch:
            came = watch.until(is_it, lambda: _kill_group(driver), lambda: driver.popen.poll() is None)
        assert came, f"the moment '{plan.point}' did not come\n{driver.ending}"

    def _kill_after_a_while(self, plan: Plan, driver: Process) -> None:
        with suppress(subprocess.TimeoutExpired):
            code = driver.popen.wait(abs(plan.delay))
            raise AssertionError(f"exit code {code}, before it was killed\n{driver.ending}")
        if plan.whom == "group":
            _kill_group(driver)
        else:
            os.kill(_pids(driver)[plan.whom], signal.SIGKILL)

    @contextmanager
    def _driver(self, number: str, pace: str, width: int, api: str, kill: str = "::0") -> Iterator[Process]:
        env = spark_environment(
            PYTHONPATH=str(TESTS),
            TMPDIR=str(self.temporary),
            SPARK_LOCAL_DIRS=str(self.temporary),
            SPARK_SUBMIT_OPTS=f"{QUICK_START} -Djava.io.tmpdir={self.temporary}",
            CHAOS_FOLDER=str(self.folder),
            CHAOS_ROUND=number,
            CHAOS_PACE=pace,
            CHAOS_WIDTH=str(width),
            CHAOS_KILL=kill,
            CHAOS_DURABILITY=self.durability,
            CHAOS_API=api,
        )
        command = [sys.executable, "-m", "chaos.driver"]
        with running(command, self.folder / f"driver-{number}.log", env) as driver:
            yield driver


def _kill_group(driver: Process) -> None:
    os.killpg(driver.popen.pid, signal.SIGKILL)


def _pids(driver: Process) -> dict[str, int]:
    found: Callable[[], re.Match[str] | None] = lambda: re.search(r"RUNNING (.*)\n", driver.output)  # noqa: E731
    line = driver.until("all queries run", found, 120)
    return {name: int(pid) for name, pid in re.findall(r"(\w+)=(\d+)", line[1])}

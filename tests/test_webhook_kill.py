"""Callers of a webhook while its driver and its JVM are killed with SIGKILL, again and again."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from processes import APPS, Process, running

from headwater.sim import Cut, CutMidRecord, Repeat, Reset, WebhookCallers

PER_ROUND = 200


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def kill_all(driver: Process) -> None:
    os.killpg(driver.popen.pid, signal.SIGKILL)


def kill_python(driver: Process) -> None:
    driver.popen.kill()


def jvm_of(driver: Process) -> int | None:
    found = re.search(r"^JVM (\d+)$", driver.output, re.MULTILINE)
    return int(found[1]) if found else None


def kill_jvm(driver: Process) -> None:
    pid = jvm_of(driver)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


KILLS: list[Callable[[Process], None]] = [kill_all, kill_jvm, kill_python, kill_all, kill_jvm]


def rows_in(folder: Path) -> Counter[tuple[int, float]]:
    """Of a sink that is keyed by batch id."""
    return Counter((row[0], row[1]) for file in folder.glob("*.json") for row in json.loads(file.read_text()))


def test_every_request_with_a_200_is_in_the_sink_once(own_spark: dict[str, str], tmp_path: Path) -> None:
    """1,000 keyed requests of callers who repeat, disconnect and retry; five kills while they call."""
    sink, port, dice = tmp_path / "sink", free_port(), random.Random(1)
    sink.mkdir()
    command = [sys.executable, str(APPS / "webhook_app.py"), str(sink), str(port)]
    faults = [Cut(20, times=2), Reset(40, times=2), CutMidRecord(60, times=2), Repeat(80, count=20, times=2)]
    everybody: list[WebhookCallers] = []

    def call(stack: ExitStack, count: int) -> WebhookCallers:
        seed, more = len(everybody), {"faults": faults, "clients": 4} if count > 1 else {}
        callers = WebhookCallers(f"http://127.0.0.1:{port}/", seed, 0, count, **more)
        everybody.append(stack.enter_context(callers))
        return callers

    with ExitStack() as stack:
        for number, kill in enumerate(KILLS):
            with running(command, tmp_path / f"driver-{number}.log", own_spark) as driver:
                driver.until("its JVM", lambda driver=driver: jvm_of(driver), timeout=240)
                if number == 0:  # Spark itself does not survive a kill within its very first offset
                    call(stack, 1)
                    driver.until("a batch", lambda: rows_in(sink), timeout=240)
                callers, enough = call(stack, PER_ROUND), dice.randrange(1, PER_ROUND - 50)
                driver.until(
                    "responses",
                    lambda callers=callers, enough=enough: len(callers.answers) >= enough,
                    timeout=240,
                )
                kill(driver)
                driver.exit_code(60)
        unanswered = [PER_ROUND - len(callers.answers) for callers in everybody[1:]]
        with running(command, tmp_path / "last.log", own_spark) as driver:
            for callers in everybody:
                driver.until("all responses", lambda callers=callers: callers.wait(0.05), timeout=240)
            records = [callers.record(n) for callers in everybody for n in callers.answers]
            driver.until("all rows", lambda: sum(rows_in(sink).values()) >= len(records), timeout=240)
        statuses = Counter(status for callers in everybody for status in callers.answers.values())
        assert statuses == {200: len(KILLS) * PER_ROUND + 1}
        assert any(unanswered), "no kill came while callers were waiting"
    stored, expected = rows_in(sink), Counter((record["id"], record["total"]) for record in records)
    assert expected - stored == Counter(), "lost"
    assert stored - expected == Counter(), "repeated or invented"

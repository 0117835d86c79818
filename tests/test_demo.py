"""`make demo`, as it is run, and the part of it that judges."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from processes import ROOT, running

DEMO = ROOT / "examples" / "demo.py"


@pytest.mark.process
def test_the_demo_kills_its_query_and_finds_nothing_lost_or_repeated(
    clean_env: dict[str, str], tmp_path: Path
) -> None:
    with running([sys.executable, str(DEMO), "--seconds", "8"], tmp_path / "demo.log", clean_env) as demo:
        said = demo.wait(400)
    (before, missed), (made,), (total,) = (
        [int(number.replace(",", "")) for number in re.search(pattern, said).groups()]  # type: ignore[union-attr]
        for pattern in (
            r"kill +([\d,]+) were .*, ([\d,]+) were made while",
            r"feed +([\d,]+) RSVPs over",
            r"table +([\d,]+) RSVPs after",
        )
    )
    assert "result  lost 0, repeated 0, invented 0\n" in said
    assert 0 < before < before + missed <= total == made
    assert re.search(r"feed +[\d,]+ RSVPs over [3-9] connections, [1-9]\d* of them sent again", said)
    assert re.search(r"\nus +\d+ .*\d +[A-Z0-9] +[\d,]+   [A-Za-z0-9]{5}\n", said)
    assert said.index("RSVPs per country") < said.index("SIGKILL: ") < said.rindex("RSVPs per country")


@pytest.fixture(scope="module")
def demo() -> Any:
    spec = importlib.util.spec_from_file_location("headwater_demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ([(1, 10), (2, 20), (1, 30)], {}),
        ([(1, 30), (2, 20), (1, 10)], {}),
        ([(1, 10), (1, 30)], {"lost": [(2, 20)]}),
        ([(1, 10), (2, 20), (1, 30), (2, 20)], {"repeated": [(2, 20)]}),
        ([(1, 10), (2, 20), (1, 30), (2, 21)], {"invented": [(2, 21)]}),
        ([], {"lost": [(1, 10), (2, 20), (1, 30)]}),
    ],
)
def test_the_judge_finds_what_is_wrong(demo: Any, found: list[Any], wrong: dict[str, Any]) -> None:
    verdict = demo.judge([(1, 10), (2, 20), (1, 30)], found)
    assert {what: keys for what, keys in verdict.items() if keys} == wrong


@pytest.mark.parametrize(
    ("made", "found", "said"),
    [
        (0, 0, "lost 0, repeated 0, invented 0"),
        (0, 1, "lost 0, repeated 0, invented 1"),
        (2, 1, "lost 1, repeated 0, invented 0"),
        (2, 2, None),
    ],
)
def test_the_demo_fails_when_the_table_is_not_what_was_made(
    demo: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], made: int, found: int, said: str | None
) -> None:
    """Nothing of it was sent: nobody has asked."""
    with demo.RsvpSim(rate=0, count=2) as sim:
        keys = [[record["rsvp_id"], record["mtime"]] for record in map(sim.record, range(found))]
        rows = [{"window": "2024-05-31 12:00:00", "country": "us", "rsvps": len(keys), "keys": keys}]
        (tmp_path / "rsvps.json").write_text(demo.json.dumps({"by": 1, "batch": 0, "rows": rows}))
        status = demo.Demo(tmp_path, sim)._summary(before=0, missed=0, total=made)
    assert status == (1 if said else 0)
    assert f"{said or 'lost 0, repeated 0, invented 0'}\n" in capsys.readouterr().out


class Terminal:
    """Shows what was written to it: text that wraps, and the two commands with which the demo moves."""

    def __init__(self, columns: int) -> None:
        self.lines = [""]
        self._columns = columns
        self._row = 0

    def write(self, output: str) -> None:
        for command, count, text in re.findall(r"(\x1b\[(\d*)[AJ])|([^\x1b])", output):
            if command.endswith("A"):
                self._row -= int(count)
                assert self._row >= 0
            elif command:
                del self.lines[self._row :]
                self.lines.append("")
            elif text == "\n" or (text != "\r" and len(self.lines[self._row]) == self._columns):
                self._row += 1
                self.lines[self._row :] = [text.strip("\n")]
            elif text != "\r":
                self.lines[self._row] += text


DRAWN = """
screen = demo.Screen()
screen.say("Spark starts")
for batch in range(3):
    screen.draw([f"batch {batch}", *(f"row {n} " + "x" * 100 for n in range(5))])
screen.say("SIGKILL")
screen.draw([])
for batch in range(3, 6):
    screen.draw([f"batch {batch}", *(f"row {n} " + "x" * 100 for n in range(40))])
screen.say("result  lost 0, repeated 0, invented 0")
"""


def draw(stdout: int, **env: str) -> None:
    script = f"import sys; sys.path.insert(0, {str(DEMO.parent)!r}); import demo\n{DRAWN}"
    size_of_the_runner = ("COLUMNS", "LINES")
    inherited = {name: value for name, value in os.environ.items() if name not in size_of_the_runner}
    subprocess.run([sys.executable, "-c", script], stdout=stdout, env={**inherited, **env}, check=True)


def test_on_a_terminal_a_table_is_drawn_over_the_one_before_and_the_last_lines_stay() -> None:
    """Lines that are too long for the terminal, and tables that are too high for it, are cut."""
    columns, rows = 60, 12
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
    with os.fdopen(ours, "rb", buffering=0) as output:
        chunks: list[bytes] = []
        reader = threading.Thread(target=lambda: chunks.extend(read_all(output)), daemon=True)
        reader.start()
        draw(theirs)
        os.close(theirs)
        reader.join(60)
    terminal = Terminal(columns)
    terminal.write(b"".join(chunks).decode())
    assert all(len(line) <= columns for line in terminal.lines)
    shown = [line.rstrip("x").rstrip() for line in terminal.lines if line]
    assert shown == [
        "Spark starts",
        "batch 2",
        *(f"row {n}" for n in range(5)),
        "SIGKILL",
        "batch 5",
        *(f"row {n}" for n in range(rows - 3)),
        "result  lost 0, repeated 0, invented 0",
    ]


def read_all(terminal: Any) -> Iterator[bytes]:
    with suppress(OSError):  # EIO: the other end was closed
        while chunk := terminal.read(4096):
            yield chunk


def test_in_a_pipe_nothing_is_drawn_over(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out:
        draw(out.fileno())
    text = (tmp_path / "out").read_text()
    assert "\x1b" not in text
    assert "x" * 100 in text
    assert text.splitlines()[0] == "Spark starts"
    assert text.endswith("\nresult  lost 0, repeated 0, invented 0\n\n")


@pytest.mark.parametrize("batch", [0, 1_234])
def test_the_table_fits_into_80_columns(demo: Any, batch: int) -> None:
    rows = [
        {"window": f"2024-05-31 12:00:{n}0", "country": "us", "rsvps": 99_999, "keys": []} for n in range(6)
    ]
    words = [{"first": "Q", "words": 999_999, "like": "abcde"}]
    lines = demo.tables({"rows": rows, "batch": batch}, {"rows": words, "batch": batch})
    assert max(map(len, lines)) <= 80

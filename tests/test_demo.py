"""`make demo`, as it is run, and the part of it that judges."""

from __future__ import annotations

import importlib.util
import re
import sys
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

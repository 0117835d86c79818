"""`query.stop()` and Ctrl-C in processes of their own: they are as quiet as with Spark's `rate`."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from docs import blocks
from processes import APPS, ROOT, running, spark_environment

pytestmark = pytest.mark.process

STOPS = 40
"""Of all sources together. `python tests/apps/stops.py FOLDER rate,log,memory,partitioned 100` runs more."""

SPARKS_OWN = {
    "DataWritingSparkTask",
    "ShuffleBlockFetcherIterator",
    "TorrentBroadcast",
    "Utils",
    "WriteToDataSourceV2Exec",
}
"""Classes of Spark that log an ERROR when a batch is cancelled, whatever its source is."""


def test_stops_at_random_moments_are_as_quiet_as_with_rate(tmp_path: Path) -> None:
    sources = ["rate", "log", "memory", "partitioned"]
    command = [sys.executable, str(APPS / "stops.py"), str(tmp_path), ",".join(sources), str(STOPS // 4)]
    with running(command, tmp_path / "out.log", spark_environment()) as app:
        app.wait(400)
    results = json.loads((tmp_path / "stops.json").read_text())
    for source in sources[1:]:
        result = results[source]
        assert result["stops"] == STOPS // 4
        assert result["exceptions"] == result["refused"] == [], source
        assert result["dataLoss"] == 0, source
        loggers = Counter(re.match(r"ERROR (\w+)", line).group(1) for line in result["errors"])  # type: ignore[union-attr]
        assert set(loggers) <= SPARKS_OWN, f"{source}: {result['errors']}"


def after_interrupt(source: str, folder: Path) -> str:
    """What a script printed that reads a source until Ctrl-C, from that moment on."""
    command = [sys.executable, str(APPS / "awaiting.py"), source]
    with running(command, folder / f"{source}.log", spark_environment(PYTHONPATH=str(APPS))) as app:
        app.until("its first batch", lambda: "READY" in app.output, timeout=120)
        os.killpg(app.popen.pid, signal.SIGINT)  # as a terminal sends it: to all processes of the script
        assert app.exit_code(60) in (-signal.SIGINT, 130), app.ending
        return app.output.partition("READY")[2]


@pytest.mark.parametrize("source", ["log", "memory", "partitioned"])
def test_ctrl_c_says_so_in_one_line_and_nothing_else_comes_from_headwater(
    source: str, tmp_path: Path
) -> None:
    output = after_interrupt(source, tmp_path)
    assert output.count("interrupted: stopping 1 feed\n") == 1, output
    assert "KeyboardInterrupt" in output
    assert not re.search(r"headwater\.\w+Exception|FeedThread|DataLoss|Feed.*failed", output), output


def test_the_first_example_of_the_readme_ends_quietly(tmp_path: Path) -> None:
    script = tmp_path / "hello.py"
    script.write_text(next(block.text for block in blocks(ROOT / "README.md") if block.language == "python"))
    with running([sys.executable, str(script)], tmp_path / "hello.log", spark_environment()) as app:
        output = app.wait(120)
    assert "Batch: 1" in output
    assert "DataLossException" not in output
    errors = re.findall(r"^\S+ \S+ ERROR (\w+)", output, re.MULTILINE)
    assert set(errors) <= SPARKS_OWN, output

"""`spark-submit --jars`, on this machine: all that Spark needs to know `random_alpha` is the jar."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from processes import EXAMPLES_JAR, JAR, QUIET, ROOT, SUBMIT, running, spark_environment, submit
from words import ALPHABET, last_seq, written_rows

pytestmark = pytest.mark.process

LOCAL = ["--master", "local[2]", "--jars", str(JAR)]
SCALA_APP = ["--class", "RandomAlphaApp", str(EXAMPLES_JAR)]
PYTHON_APP = [str(ROOT / "examples" / "random_alpha_app.py")]


def check_rows(folder: Path, length: int, at_least: int) -> None:
    """As many rows as the offsets say, each of them new, of the right form, in the order of their making."""
    rows = written_rows(folder / "rows")
    assert len(rows) == last_seq(folder / "checkpoint", folder / "rows") + 1 >= at_least
    values = [row["value"] for row in rows]
    assert {len(value) for value in values} == {length}
    assert set("".join(values)) <= set(ALPHABET)
    assert len(set(values)) == len(values)
    times = [datetime.fromisoformat(row["timestamp"].replace("Z", "+00:00")) for row in rows]
    assert times == sorted(times)


@pytest.mark.parametrize("app", [SCALA_APP, PYTHON_APP], ids=["scala", "python"])
def test_a_submitted_app_writes_rows_of_the_right_length(app: list[str], tmp_path: Path) -> None:
    output = submit([*LOCAL, *app, "12", "1000", "60", str(tmp_path)], tmp_path)
    assert " rows " in output
    check_rows(tmp_path, length=12, at_least=1000)


@pytest.mark.parametrize("app", [SCALA_APP, PYTHON_APP], ids=["scala", "python"])
def test_an_app_whose_query_fails_ends_with_an_error(app: list[str], tmp_path: Path) -> None:
    """A batch of this checkpoint did not finish, and its rows were in the memory of a process now gone."""
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"3c4b2c3e-5d4e-4f0b-9d3a-2f8a1f6f0d11"}')
    (checkpoint / "offsets" / "0").write_text(
        'v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{},"sourceMetadataInfo":{}}\n'
        '{"v":1,"source":"random_alpha","run":"0123456789abcdef","seq":41}'
    )
    command = [SUBMIT, *QUIET, *LOCAL, *app, "5", "10", "60", str(tmp_path)]
    with running(command, tmp_path / "submit.log", spark_environment()) as process:
        assert process.exit_code(60) == 1
        assert "lost the rows 0 to 41" in process.output


def test_without_a_folder_the_rows_go_to_the_console(tmp_path: Path) -> None:
    output = submit([*LOCAL, *PYTHON_APP, "7", "100", "60"], tmp_path)
    assert "Batch: 0" in output
    shown = [line.split("|")[2] for line in output.splitlines() if line.startswith("|20")]
    assert shown
    assert {len(value) for value in shown} == {7}

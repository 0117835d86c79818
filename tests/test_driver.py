"""The process that drives Spark, and its JVM: they connect, and neither outlives the other."""

import os
import re
import signal
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from processes import APPS, JAR, QUIET, SUBMIT, Process, Run, running, spark_environment, wait_until

pytestmark = pytest.mark.process

SOURCE = """
    import itertools, socket

    @hw.source("n LONG")
    def early(count: int = 5):
        yield from range(count)

    def rows_of_source(spark, name, table):
        reader = spark.readStream.format("headwater").option("source", name)
        query = reader.load().writeStream.format("memory").queryName(table).trigger(availableNow=True).start()
        assert query.awaitTermination(60), query.status
        return [row[0] for row in spark.table(table).collect()]
"""


def test_sources_are_formats_of_every_session_of_the_process(run: Run) -> None:
    script = """
        first = hw.session(builder())
        seen = [first.readStream.format("early").load().columns, rows_of_source(first, "early", "a")]
        callback_server = first.sparkContext._gateway._callback_server is not None
        first.stop()

        @hw.source("word STRING")
        def between():
            yield "x"

        second = hw.session(builder())
        seen += [second.readStream.format("between").load().columns, rows_of_source(second, "between", "b")]
        seen += [in_other_thread(lambda: second.readStream.format("early").load().columns)]
        second.stop()
        alive = [t.name for t in threading.enumerate() if t.name.startswith("headwater-feed")]
        report({"seen": seen, "callback_server": callback_server, "alive": alive})
    """
    result = run(dedent(SOURCE) + dedent(script))
    assert result["seen"] == [["n"], [0, 1, 2, 3, 4], ["word"], ["x"], ["n"]]
    assert not result["callback_server"]
    assert result["alive"] == []


def test_a_loopback_port_is_used_where_there_are_no_unix_sockets(run: Run) -> None:
    script = """
        from headwater.spark import attach as attach_module
        del socket.AF_UNIX
        spark = hw.session(builder())
        rows = rows_of_source(spark, "early", "a")
        report({"rows": rows, "endpoint": attach_module.current()[1]._address.endpoint})
    """
    result = run(dedent(SOURCE) + dedent(script))
    assert result["rows"] == [0, 1, 2, 3, 4]
    assert re.fullmatch(r"tcp:\d+", result["endpoint"])


def test_sources_are_formats_if_the_jar_is_on_the_class_path(run: Run) -> None:
    script = f"""
        spark = hw.session(builder().config("spark.driver.extraClassPath", {str(JAR)!r}))
        rows = rows_of_source(spark, "early", "a")
        report({{"rows": rows, "named": spark.readStream.format("early").load().columns}})
    """
    assert run(dedent(SOURCE) + dedent(script)) == {"rows": [0, 1, 2, 3, 4], "named": ["n"]}


def started(process: Process) -> dict[str, int]:
    line = process.until("the query runs", lambda: re.search(r"RUNNING (.*)", process.output), 120)
    return {name: int(pid) for name, pid in re.findall(r"(\w+)=(\d+)", line[1])}


def is_alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_the_jvm_ends_when_python_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, str(APPS / "python_feed.py")]
    with running(command, tmp_path / "app.log", spark_environment()) as app:
        pids = started(app)
        os.kill(pids["python"], signal.SIGKILL)
        wait_until(lambda: not is_alive(pids["jvm"]), lambda: app.ending, timeout=30)


def test_spark_submit_ends_when_its_python_is_killed(tmp_path: Path) -> None:
    command = [SUBMIT, *QUIET, "--jars", str(JAR), str(APPS / "python_feed.py")]
    with running(command, tmp_path / "app.log", spark_environment()) as app:
        pids = started(app)
        os.kill(pids["python"], signal.SIGKILL)
        wait_until(lambda: not is_alive(pids["jvm"]), lambda: app.ending, timeout=30)


def test_python_ends_when_the_jvm_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, str(APPS / "python_feed.py")]
    with running(command, tmp_path / "app.log", spark_environment()) as app:
        pids = started(app)
        os.kill(pids["jvm"], signal.SIGKILL)
        assert app.exit_code(60) != 0

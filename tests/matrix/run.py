"""Runs the smoke suite on each line of Spark that is named, and says in one line how each went.

run.py 4.0 4.1 …    each line has its virtual environment in .venvs/spark-<line>
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SUITES = ("smoke.py", "python_sources.py", "adapters.py")
TIMEOUT = 360.0  # seconds


def run(line: str) -> bool:
    python = ROOT / ".venvs" / f"spark-{line}" / "bin" / "python"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    env |= {"PYTHONPATH": str(ROOT / "python"), "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    suite = [
        str(python),
        "-m",
        "pytest",
        "-c",
        str(HERE / "pytest.ini"),
        "-p",
        "no:cacheprovider",
    ]
    began = time.monotonic()
    process = subprocess.Popen(
        [*suite, *(str(HERE / name) for name in SUITES)],
        env=env,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=TIMEOUT)
        ended = f"exit code {process.returncode}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        ended = f"stopped after {TIMEOUT:.0f} s"
    passed = process.returncode == 0
    if not passed:
        print(output)
    summary = output.strip().splitlines()[-1].strip("= ") if passed else ended
    release = subprocess.run(
        [str(python), "-c", "import pyspark; print(pyspark.__version__)"], capture_output=True, text=True
    ).stdout.strip()
    result = "ok    " if passed else "FAILED"
    print(f"Spark {release or line}: {result} {time.monotonic() - began:5.1f} s  {summary}", flush=True)
    return passed


if __name__ == "__main__":
    results = [run(line) for line in sys.argv[1:]]
    sys.exit(0 if results and all(results) else 1)

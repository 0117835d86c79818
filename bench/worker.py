"""One measurement, in a process and a JVM of its own: `worker.py KIND CASE SETTINGS OUT`.

SETTINGS is JSON, and OUT the file that gets the result, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import delay
import idle
import memory
import throughput
from cases import CASES
from settings import Settings
from spark import new_session, versions

MEASURES = {"throughput": throughput, "delay": delay, "idle": idle, "memory": memory}


def main(kind: str, name: str, settings: str, out: str) -> None:
    measure = MEASURES[kind]
    case = next(case for case in CASES[kind] if case.name == name)
    spark = new_session(measure.HEAP, measure.JAVA_OPTIONS)
    sample = measure.measure(spark, case, Settings(**json.loads(settings)))
    Path(out).write_text(json.dumps({"sample": sample, "versions": versions(spark)}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

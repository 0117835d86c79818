"""One measurement, in a process and a JVM of its own: `worker.py KIND CASE[,CASE…] SETTINGS OUT`.

SETTINGS is JSON, and OUT the file that gets the result, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import delay
import idle
import memory
import messages
import partitions
import real_time
import redis_messages
import startup
import still
import throughput
import web
import webhook
from cases import CASES
from settings import Settings
from spark import new_session, versions

KINDS: dict[str, Any] = {
    "throughput": throughput,
    "web": web,
    "webhook": webhook,
    "messages": messages,
    "redis": redis_messages,
    "partitions": partitions,
    "delay": delay,
    "real_time": real_time,
    "idle": idle,
    "still": still,
    "startup": startup,
    "memory": memory,
}


def main(kind: str, names: str, settings: str, out: str) -> None:
    cases = [case for case in CASES[kind] if case.name in names.split(",")]
    spark = new_session(KINDS[kind].HEAP, KINDS[kind].JAVA_OPTIONS)
    how = Settings(**json.loads(settings))
    if kind == "delay":
        samples = delay.measure(spark, cases, how)
    else:
        samples = {case.name: KINDS[kind].measure(spark, case, how) for case in cases}
    Path(out).write_text(json.dumps({"samples": samples, "versions": versions(spark)}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

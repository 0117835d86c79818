"""Makes an archive of Spark's classes as a JVM has read and checked them: with it, JVMs start faster.

`python class_archive.py FILE`. Where the file is not there, or does not fit, the tests' JVMs do without.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from processes import IN_SHORT, spark_environment

_PROGRAM = """
import sys
import headwater as hw
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, window

@hw.source("n LONG, at TIMESTAMP, text STRING")
def numbers(*, since=None):
    from datetime import datetime, timezone
    yield hw.At(1, [(n, datetime.now(timezone.utc), str(n)) for n in range(100)])

spark = hw.session(SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false"))
folder = sys.argv[1]

def run(name, frame):
    def each(batch, number):
        batch.persist()
        batch.selectExpr("n + 1").collect()
        batch.write.mode("append").json(f"{folder}/{name}")
        batch.unpersist()
    checked = frame.writeStream.option("checkpointLocation", f"{folder}/{name}-checkpoint")
    query = checked.outputMode("update").foreachBatch(each).trigger(availableNow=True).start()
    query.awaitTermination()
    return query.lastProgress

rows = spark.readStream.format("numbers").load()
run("plain", rows)
run("counted", rows.groupBy(window(col("at"), "1 minute"), (col("n") % 3).alias("n")).count())
words = spark.readStream.format("random_alpha").option("len", 5).option("availableNowWait", "1s").load()
words.writeStream.format("memory").queryName("words").trigger(availableNow=True).start().awaitTermination()
spark.sql("SELECT count(*) FROM words").collect()
gateway = spark.sparkContext._gateway
spark.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()  # it writes the archive at its end
"""


def main(archive: Path) -> None:
    archive.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        unfinished = Path(folder) / "classes.jsa"
        options = f'{IN_SHORT} -XX:ArchiveClassesAtExit="{unfinished}" -Xlog:disable'
        env = spark_environment(SPARK_SUBMIT_OPTS=options)
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, folder], env=env, capture_output=True, text=True
        )
        if not unfinished.exists():
            sys.exit(f"there will be no archive of Spark's classes: {done.stdout}\n{done.stderr}")
        os.replace(unfinished, archive)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

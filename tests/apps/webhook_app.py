"""A driver to be killed: a webhook into a folder with a file for each batch. `webhook_app.py FOLDER PORT`."""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater.sources import webhook

FOLDER, PORT = Path(sys.argv[1]), int(sys.argv[2])


def write(frame: DataFrame, batch: int) -> None:
    """An attempt that is repeated replaces the file of the one before."""
    rows = [[row.id, row.total] for row in frame.collect()]
    # If the JVM is gone, there may be too few rows, and this raises.
    frame.sparkSession.sparkContext._jvm.java.lang.System.nanoTime()
    part = FOLDER / f"{batch}.part"
    part.write_text(json.dumps(rows))
    os.replace(part, FOLDER / f"{batch}.json")


spark = hw.session(SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false"))
orders = hw.stream(spark, webhook(port=PORT, decode="json", schema="id LONG, total DOUBLE"))
query = (
    orders.writeStream.foreachBatch(write).option("checkpointLocation", str(FOLDER / "checkpoint")).start()
)
print("JVM", spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid(), flush=True)
query.awaitTermination()

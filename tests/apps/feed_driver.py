"""A driver to be killed: reads a built-in source into JSON files, one for each batch, until it is killed.

python feed_driver.py SOURCE OPTIONS CHECKPOINT SINK, where OPTIONS is a JSON object of Spark's options. A
batch that is run again replaces its file. It prints RUNNING once the query was started.
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import headwater as hw

name, options, checkpoint, sink = sys.argv[1:]


def write(frame: DataFrame, batch: int) -> None:
    rows = [row.asDict(recursive=True) for row in frame.collect()]
    file = Path(sink, f"{batch:06}.json")
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(rows, default=str))
    os.replace(unfinished, file)


Path(sink).mkdir(exist_ok=True)
spark = hw.session(SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false"))
stream = spark.readStream.format(name).options(**json.loads(options)).load()
query = stream.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()
print("RUNNING", flush=True)
query.awaitTermination()

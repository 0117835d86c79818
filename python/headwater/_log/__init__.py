"""The log of a source in a checkpoint, read without Spark and without changing anything."""

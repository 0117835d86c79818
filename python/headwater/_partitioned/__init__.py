"""A partitioned source at work: what its partitions have is watched on the driver, and tasks read it."""

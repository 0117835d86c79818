"""The Spark session, its JVM, and how headwater gets into them."""

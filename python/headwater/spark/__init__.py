"""The Spark session, its JVM, and how headwater's jar gets into them."""

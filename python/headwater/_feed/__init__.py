"""A source at work: threads, policies, and the way of its rows to the JVM."""

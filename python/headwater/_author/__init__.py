"""What an author of a source writes, and what is known of it without Spark."""

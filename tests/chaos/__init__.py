"""kill -9 at every moment that matters, restarts on the same checkpoint, and what became of the rows."""

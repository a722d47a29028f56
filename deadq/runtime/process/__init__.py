"""A child of the process runner: one plain handler at a time, on the main thread."""

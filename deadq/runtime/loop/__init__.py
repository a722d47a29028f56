"""A child on an event loop: coroutine functions as tasks, plain ones in threads."""

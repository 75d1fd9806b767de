"""queue.manager, the one process that decides."""

"""The schedule server: puts messages when schedules are due."""

"""Queues in memory: tables, transitions, the engine that alone writes them, redo, rebuild,
views."""

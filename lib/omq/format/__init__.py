"""Bytes: every on-disk, in-memory and wire layout of omq, and the only place that calls
`struct`."""

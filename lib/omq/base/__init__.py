"""The lowest layer: errors, limits, names, clock, checksum, paths, configuration, events, faults.

Nothing here knows a file format, a queue's content or another process.
"""

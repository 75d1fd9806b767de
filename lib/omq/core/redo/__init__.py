"""Redo: what journal frames do to the records of the Message Pool, up to a checkpoint."""

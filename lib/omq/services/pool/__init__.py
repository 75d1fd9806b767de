"""pool.writer: checkpoints, bodies, files that retire."""

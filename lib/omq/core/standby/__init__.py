"""The pool of a standby: redo that never ends, and the promotion."""

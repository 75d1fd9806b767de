"""The trigger monitor: starts programs when queues ask for them."""

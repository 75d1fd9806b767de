"""Look: what tools show of an instance, whether it lives or not."""

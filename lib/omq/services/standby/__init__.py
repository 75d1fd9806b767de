"""The standby of an instance: what its primary sends, and what it makes of it."""

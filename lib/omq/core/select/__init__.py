"""Selectors: conditions on messages, as JMS has them (a subset of SQL-92)."""

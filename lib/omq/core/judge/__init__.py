"""Judge: what is damaged or missing in a spool, and what it means; for the start and for tools."""

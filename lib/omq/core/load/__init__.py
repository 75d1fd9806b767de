"""Load: from the files of a spool to an index, at a start or for a tool."""

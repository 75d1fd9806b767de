"""Check: index, Message Pool and journal must be as they should, and agree."""

"""Commands for messages: put them, read them, take them over from elsewhere."""

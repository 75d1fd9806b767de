"""Who starts and stops the daemons: the embedded supervisor, or systemd."""

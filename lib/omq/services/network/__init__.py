"""What servers of the network share: listening, TLS, passwords, files that hold secrets."""

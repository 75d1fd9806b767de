"""The mail services: SMTP in and out, routing, Maildirs, reports."""

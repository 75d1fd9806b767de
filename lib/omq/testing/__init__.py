"""Tests of programs that use omq: a real instance in a temporary spool, started once a session.

`omq.testing.plugin` has the fixtures for pytest; `omq.testing.instance.LiveInstance` is what they
give, usable without pytest too. TESTING.md is the guide. Importing this imports nothing else.
"""

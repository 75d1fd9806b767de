"""Clients and workers of job queues, each a process of its own: what job_queues starts.

Said to a client on standard input, a line each: `put COUNT BATCH`; it answers with a line when all
are put as durably as the system makes it. A worker does each job with a function that counts, and
makes the file PLACE.N when it has counted N of the arguments MARKS.
"""

"""Journal archives that were made, not recorded: synthetic traffic, every kind of message, planted
faults, and the truth about them. The tests and benchmarks of the analytics read them.
"""

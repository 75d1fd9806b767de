"""Tools around omq: what is installed besides the package `omq` lies under this one name.

Each package has a folder of its own in the source (setup.py says which): omqdump, omqtest
in tools/, omqrecover in recovery/, omqspark in spark/.
"""

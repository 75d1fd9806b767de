"""omq's journal archive on Spark: a data source, the pipeline's tables, audit, replay, report.

Modules without Spark (decode, plan, replay, generator, simulate) are plain functions over numpy and
Arrow, tested without a JVM; the others take and give DataFrames. No master is named anywhere.
"""

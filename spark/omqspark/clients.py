"""Names of programs: who a client of an epoch is, for the tables that people read.

Each archive file names its readers and each client whose messages were put in it, so names of
earlier batches are needed for what happened then to messages that are still open, and for nothing
else: OUT/clients/batch=N holds those of the events in OUT/open/batch=N. A client has the name that
it had first, whichever files a batch has.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StringType, StructField, StructType

from omqtools.omqspark.engine import F

CLIENTS: Final = StructType([
    StructField("epoch", LongType()), StructField("client", LongType()),
    StructField("kind", StringType()), StructField("name", StringType()),
    StructField("lsn", LongType())])
KEY: Final = ("epoch", "client", "kind")
PRODUCER, READER = "program", "reader"  # kinds, as in the table `names`


def client_names(names: DataFrame, before: DataFrame | None) -> DataFrame:
    """CLIENTS of the rows of a `names` table, and of those that an earlier batch has kept."""
    told = names.where(f"kind IN ('{PRODUCER}', '{READER}') AND bad IS NULL").select(
        "epoch", F.col("key").alias("client"), "kind", F.col("text").alias("name"), "lsn")
    told = told if before is None else told.unionByName(before)
    return told.groupBy(*KEY).agg(F.min_by("name", "lsn").alias("name"), F.min("lsn").alias("lsn"))


def needed(clients: DataFrame, still: DataFrame) -> DataFrame:
    """Those that the events of open messages speak of."""
    return clients.join(still.select("epoch", "client").distinct(), ["epoch", "client"],
                        "left_semi").select(*CLIENTS.names)


def with_name(frame: DataFrame, clients: DataFrame, kind: str, epoch: str, client: str,
              column: str) -> DataFrame:
    """With the name of the client in two columns; null: there is none, or nobody said it."""
    own = clients.where(F.col("kind") == kind).select(
        F.col("epoch").alias(epoch), F.col("client").alias(client), F.col("name").alias(column))
    return frame.join(own, [epoch, client], "left").select(*frame.columns, column)

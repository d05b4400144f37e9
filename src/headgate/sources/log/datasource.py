"""The Spark streaming source `pglog`: `spark.readStream.format("pglog")`."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from headgate.sources.kafka.datasource import TopicsStreamReader, WholeBatchesReader
from headgate.sources.kafka.options import BATCHES
from headgate.sources.kafka.rows import SCHEMA
from headgate.sources.kafka.whole import BATCH_SCHEMA
from headgate.sources.log.options import LogSourceOptions
from headgate.sources.log.tables import LogTables

__all__ = ["LogDataSource"]


class LogDataSource(DataSource):
    """The messages of topics of the log in PostgreSQL."""

    @classmethod
    def name(cls) -> str:
        return "pglog"

    def schema(self) -> str:
        options = LogSourceOptions.from_spark(self.options)  # a mistake is found before the query starts
        return BATCH_SCHEMA if options.unit == BATCHES else SCHEMA

    def streamReader(self, schema: StructType) -> TopicsStreamReader:
        options = LogSourceOptions.from_spark(self.options)
        kind = WholeBatchesReader if options.unit == BATCHES else TopicsStreamReader
        return kind(LogTables(options), options)

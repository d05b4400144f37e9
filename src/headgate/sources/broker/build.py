"""From the configuration to a `broker` source."""

from __future__ import annotations

import json

from headgate.sources.broker.section import BrokerSourceSection
from headgate.sources.broker.source import BrokerSource
from headgate.sources.context import SourceContext

__all__ = ["build"]


def build(section: BrokerSourceSection, context: SourceContext) -> BrokerSource:
    options = {
        "url": context.database(section.url),
        "schema": section.broker_schema,
        "group": section.group,
        "owner": context.owner,
        "subscribe": ",".join(section.topics),
        "condition": section.condition,
        "params": json.dumps(section.params),
        "maxOffsetsPerTrigger": section.max_rows_per_batch,
        "minPartitions": section.partitions,
        "pollInterval": round(section.poll_interval * 1000),
        "failOnDataLoss": str(section.fail_on_data_loss).lower(),
    }
    return BrokerSource(context.name, {key: str(value) for key, value in options.items()}, context.origin)

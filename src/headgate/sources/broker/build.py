"""From the configuration to a `broker` source."""

from __future__ import annotations

import json

from headgate.config.options import spark_options
from headgate.sources.broker.section import BrokerSourceSection
from headgate.sources.broker.source import BrokerSource
from headgate.sources.context import SourceContext

__all__ = ["build"]


def build(section: BrokerSourceSection, context: SourceContext) -> BrokerSource:
    options = {
        **spark_options(section),
        "url": context.database(section.url),
        "owner": context.owner,
        "params": json.dumps(section.params),
    }
    return BrokerSource(context.name, options, context.origin)

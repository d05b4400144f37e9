"""How much clients may do: limits by user and client id, and the delays that enforce them."""

from __future__ import annotations

from headgate.gateway.quotas.bucket import Bucket
from headgate.gateway.quotas.limits import ANY, Entity, Limit, Limits, Metric
from headgate.gateway.quotas.meter import Meter
from headgate.gateway.quotas.store import QuotaStore

__all__ = ["ANY", "Bucket", "Entity", "Limit", "Limits", "Meter", "Metric", "QuotaStore"]

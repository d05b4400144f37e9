"""What transactions are told when a gateway starts. The names in Kafka's broker settings stand beside each."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TransactionSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Limits and times of transactions."""

    max_timeout_ms: int = 900_000  # transaction.max.timeout.ms
    sweep_interval_s: float = 2.0  # transaction.abort.timed.out.transaction.cleanup.interval.ms

"""What a coordinator is told when it starts. The names in Kafka's broker settings stand beside each."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GroupSettings"]

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Limits and times of consumer groups."""

    min_session_timeout_ms: int = 6_000  # group.min.session.timeout.ms
    max_session_timeout_ms: int = 1_800_000  # group.max.session.timeout.ms
    max_rebalance_timeout_ms: int = 86_400_000  # longer ones are cut, so that no request waits for ever
    initial_rebalance_delay_s: float = 0.1  # group.initial.rebalance.delay.ms: who starts together joins together
    max_members: int = 2_000  # group.max.size
    max_member_bytes: int = 1 << 20  # what one member may say about itself
    max_metadata_bytes: int = 4_096  # offset.metadata.max.bytes
    consumer_session_timeout_s: float = 45.0  # group.consumer.session.timeout.ms
    consumer_heartbeat_interval_s: float = 5.0  # group.consumer.heartbeat.interval.ms
    regex_refresh_s: float = 60.0  # group.consumer.regex.refresh.interval.ms
    offsets_retention_s: float = 7 * _DAY_S  # offsets.retention.minutes
    empty_grace_s: float = 600.0  # an empty group without offsets lives so long
    sweep_interval_s: float = 600.0  # offsets.retention.check.interval.ms
    idle_s: float = 60.0  # a group without members stays in memory so long
    lease_check_s: float = 1.0
    lease_trust_s: float = 5.0  # without a check for so long, another gateway may hold what this one held

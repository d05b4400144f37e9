"""Room on disk: DescribeLogDirs."""

from __future__ import annotations

from headgate.gateway.context import Context, Failures, Handlers
from headgate.gateway.store import Topic
from headgate.wire.kafka import Body, RequestHeader
from headgate.wire.kafka.error_codes import ErrorCode
from headgate.wire.kafka.messages.storage import (
    DescribedLogDir,
    DescribedLogDirPartition,
    DescribedLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

__all__ = ["FAILURES", "HANDLERS"]

_LOG_DIR = "postgresql"  # the log has no directory of its own


async def describe_log_dirs(context: Context, header: RequestHeader, request: DescribeLogDirsRequest) -> Body:
    """How many bytes partitions hold. Each gateway names those that it leads, because tools add the answers up."""
    wanted = await _wanted(context, request)
    sizes = await context.store.sizes([topic for topic, _ in wanted])
    topics = [
        DescribedLogDirTopic(
            name=topic.name,
            partitions=tuple(
                DescribedLogDirPartition(partition_index=index, partition_size=sizes.get(topic.parts[index], 0))
                for index in indexes
                if context.cluster.leader_of(topic.parts[index]).node_id == context.cluster.node_id
            ),
        )
        for topic, indexes in wanted
    ]
    found = tuple(topic for topic in topics if topic.partitions)
    return DescribeLogDirsResponse(results=(DescribedLogDir(log_dir=_LOG_DIR, topics=found),))


async def _wanted(context: Context, request: DescribeLogDirsRequest) -> list[tuple[Topic, list[int]]]:
    if request.topics is None:
        return [(topic, list(range(len(topic.parts)))) for topic in await context.store.catalog.all()]
    found = [(await context.store.catalog.find(asked.topic), asked.partitions) for asked in request.topics]
    return [
        (topic, [index for index in indexes if 0 <= index < len(topic.parts)])
        for topic, indexes in found
        if topic is not None
    ]


def _failed(request: DescribeLogDirsRequest, code: ErrorCode, message: str | None) -> Body:
    # Java's client takes an answer in which a directory is for one, and one without any for a lack of rights.
    results = (DescribedLogDir(error_code=code, log_dir=_LOG_DIR),)
    is_denied = code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return DescribeLogDirsResponse(error_code=code, results=() if is_denied else results)


HANDLERS: Handlers = {DescribeLogDirsRequest: describe_log_dirs}
FAILURES: Failures = {DescribeLogDirsRequest: _failed}

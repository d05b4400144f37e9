"""Steering pipelines: what the HTTP interface and the commands do to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from headgate.config import Config
from headgate.destinations.base import Destination
from headgate.model import ConfigError, OccupiedError, UsageError
from headgate.model.address import Address
from headgate.model.dead_letter import DeadLetter, Selection
from headgate.pipeline.routing.replay import replay
from headgate.pipeline.routing.runtime import Routing
from headgate.pipeline.routing.settings import RoutingSettings, routing_settings
from headgate.pipeline.sampling import explain_samples
from headgate.pipeline.state import StateFile
from headgate.pipeline.supervisor import Supervisor
from headgate.spool.dead_letters import DeadLetters

__all__ = ["NotFoundError", "PipelineControl"]

_REPLAY_CHUNK = 1000
_REPLAY_WAIT_S = 30.0


class NotFoundError(UsageError, kind=UsageError.kind):
    """There is no such pipeline or dead letter."""


class PipelineControl:
    """The pipelines of one running headgate, by name; a source's name stands for the pipeline that reads it."""

    def __init__(
        self,
        config: Config,
        supervisors: Sequence[Supervisor],
        reread: Callable[[], Config] | None = None,
        adopt: Callable[[Config], None] = lambda config: None,
    ) -> None:
        self._config = config
        self._reread = reread
        self._adopt = adopt  # told of a configuration that is in use now
        self._supervisors = {supervisor.spec.name: supervisor for supervisor in supervisors}

    def find(self, key: str) -> Supervisor:
        by_source = {each.spec.source.name: each for each in self._supervisors.values()}
        found = self._supervisors.get(key) or by_source.get(key)
        if found is None:
            known = ", ".join(self._supervisors) or "none"
            raise NotFoundError(f"there is no pipeline {key}", remedy=f"pipelines that run: {known}")
        return found

    def all(self) -> list[dict[str, Any]]:
        return [self._summary(supervisor) for supervisor in self._supervisors.values()]

    def get(self, key: str) -> dict[str, Any]:
        """Everything about one pipeline; secrets in its configuration are masked."""
        supervisor = self.find(key)
        name = supervisor.spec.name
        section = self._config.pipelines[name]
        settings = {
            "pipeline": section.model_dump(mode="json"),
            "source": self._config.sources[section.source].model_dump(mode="json"),
            "destinations": {
                each: self._config.destinations[each].model_dump(mode="json") for each in section.destinations
            },
        }
        mode = str(supervisor.spec.source.mode())
        return supervisor.report.as_dict() | {"mode": mode, "config": settings}

    def destinations(self, key: str | None = None) -> list[dict[str, Any]]:
        """Where rows went, with circuit and counts; of all pipelines or one."""
        chosen = [self.find(key)] if key else list(self._supervisors.values())
        found = []
        for supervisor in chosen:
            table = supervisor.routing.table.describe() if supervisor.routing else _configured(supervisor)
            found += [{"pipeline": supervisor.spec.name, **entry} for entry in table]
        return found

    def kinds(self) -> dict[str, dict[str, str]]:
        """The types of the sources and destinations of the pipelines that run, by their names."""
        config, running = self._config, [self._config.pipelines[name] for name in self._supervisors]
        return {
            "sources": {each.source: config.sources[each.source].type for each in running},
            "destinations": {name: config.destinations[name].type for each in running for name in each.destinations},
        }

    def destination(self, name: str) -> Destination:
        """A destination of a pipeline that runs."""
        for supervisor in self._supervisors.values():
            for destination in supervisor.spec.destinations:
                if destination.name == name:
                    return destination
        raise NotFoundError(f"there is no destination {name}", remedy="list them: GET /destinations")

    def batches(self, key: str) -> list[dict[str, Any]]:
        """What Spark says of the last batches, oldest first: durations by phase in milliseconds, rows, offsets."""
        return self.find(key).progress()

    def offsets(self, key: str) -> dict[str, Any]:
        """How far a pipeline has come: the state on disk, and what Spark says of the source."""
        supervisor = self.find(key)
        state = StateFile(supervisor.spec.state_path).read()
        report, progress = supervisor.reporter.report, supervisor.progress()
        source = progress[-1]["sources"][0] if progress else {}
        return {
            "pipeline": supervisor.spec.name,
            "state": None
            if state is None
            else {"source": state.source, "query_id": state.query_id, "batch_id": state.batch_id, "rows": state.rows},
            "end_offset": source.get("endOffset"),
            "latest_offset": source.get("latestOffset"),
            "reached": supervisor.reached(),
            "lag_rows": report.lag_rows,
            "lag_bytes": report.lag_bytes,
            "lag_seconds": report.lag_seconds,
        }

    def order(self, key: str, order: str) -> dict[str, Any]:
        """`pause`, `resume`, `restart` or `stop`."""
        supervisor = self.find(key)
        {
            "pause": supervisor.pause,
            "resume": supervisor.resume,
            "restart": supervisor.restart,
            "stop": supervisor.stop,
        }[order]()
        return {"pipeline": supervisor.spec.name, "order": order, "status": supervisor.reporter.report.status.value}

    def abandon(self, key: str, batch_id: int | None = None) -> dict[str, Any]:
        """Give up the batch that keeps failing, if it is this one. Its rows are lost."""
        supervisor = self.find(key)
        abandoned = supervisor.abandon(batch_id)
        if abandoned is None:
            which = "no batch" if batch_id is None else f"batch {batch_id}"
            is_not = "" if batch_id is None else "not "
            raise OccupiedError(
                f"{which} of {supervisor.spec.name} is {is_not}failing",
                remedy="there is nothing to abandon; see failing_batch in its status",
            )
        return {"pipeline": supervisor.spec.name, "abandoned_batch": abandoned}

    def reload(self) -> dict[str, Any]:
        """Read the configuration again and use its routes, mappings and lists; on any error everything stays."""
        if self._reread is None:
            raise UsageError("this headgate has no configuration file", remedy="restart it with other settings")
        config = self._reread()
        prepared = [
            (supervisor, self._prepare(supervisor, config))
            for supervisor in self._supervisors.values()
            if supervisor.routing and supervisor.spec.name in config.pipelines
        ]
        epochs = {}
        for supervisor, settings in prepared:
            assert supervisor.routing is not None
            epochs[supervisor.spec.name] = supervisor.routing.reload(settings)
            supervisor.halt_following()
            supervisor.failing_batch.wake()
        self._adopt(_with_routes(self._config, config))
        return {"epochs": epochs, "needs_restart": _other_changes(self._config, config)}

    def _prepare(self, supervisor: Supervisor, config: Config) -> RoutingSettings:
        name = supervisor.spec.name
        where = f"pipelines.{name}"
        assert supervisor.routing is not None
        section = config.pipelines[name]
        if not section.routed:
            raise ConfigError("the pipeline has no routes any more", where=where, remedy="restart headgate for that")
        settings = routing_settings(section, supervisor.spec.source.mode(), where=where)
        if settings.paths != supervisor.routing.settings.paths:
            raise ConfigError(
                "the columns or fields that routes look at have changed",
                where=where,
                remedy="restart headgate for that",
            )
        return settings

    def dead_letters(self, key: str) -> DeadLetters:
        found = self.find(key).spec.dead_letters
        assert found is not None
        return found

    def replay(
        self,
        key: str,
        chosen: Selection,
        *,
        to: Address | None = None,
    ) -> dict[str, Any]:
        """Send dead letters on."""
        supervisor = self.find(key)
        routing = _routing(supervisor)
        delivered, after = 0, 0
        kept: Counter[str] = Counter()
        while letters := self._letters(key, chosen, after):
            after = letters[-1].number
            query = supervisor.query
            if query is not None and not query.hold_delivery(_REPLAY_WAIT_S):
                raise OccupiedError("a batch is being delivered", remedy="pause the pipeline, or try again")
            try:
                result = replay(letters, self.dead_letters(key), supervisor.spec.destinations, routing.settings, to)
            finally:
                if query is not None:
                    query.delivery_lock.release()
            delivered += result.delivered
            kept.update(result.kept)
            if chosen.numbers:
                break
        return {"pipeline": supervisor.spec.name, "delivered": delivered, "kept": dict(kept)}

    def _letters(self, key: str, chosen: Selection, after: int) -> list[DeadLetter]:
        store = self.dead_letters(key)
        if not chosen.numbers:
            return store.list(reason=chosen.reason, after=after, limit=_REPLAY_CHUNK)
        found = [letter for number in chosen.numbers if (letter := store.get(number)) is not None]
        if len(found) < len(chosen.numbers):
            raise NotFoundError("some of these dead letters do not exist", remedy="list them: headgate dlq list")
        return found

    def explain(self, key: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Where sample rows would go now."""
        supervisor = self.find(key)
        routing = _routing(supervisor)
        explained, remarks = explain_samples(supervisor.spark, supervisor.spec, rows, routing.settings, routing.table)
        return {"rows": [each.as_dict() for each in explained], "remarks": remarks}

    def _summary(self, supervisor: Supervisor) -> dict[str, Any]:
        report = supervisor.reporter.report
        return {
            "pipeline": report.pipeline,
            "source": report.source,
            "destinations": list(report.destinations),
            "status": report.status.value,
            "mode": str(supervisor.spec.source.mode()),
            "rows_total": report.rows_total,
            "error": report.error,
        }


def _routing(supervisor: Supervisor) -> Routing:
    if supervisor.routing is None:
        raise UsageError(
            f"the rows of {supervisor.spec.name} do not say where they go",
            remedy="add routing to the pipeline; see docs/routing.md",
        )
    return supervisor.routing


def _configured(supervisor: Supervisor) -> list[dict[str, Any]]:
    report = supervisor.reporter.report
    return [
        {"destination": each.name, "stream": None, "topic": supervisor.spec.topic, "rows_total": report.rows_total}
        for each in supervisor.spec.destinations
    ]


def _with_routes(old: Config, new: Config) -> Config:
    """The old configuration with the routes of the new one: what is in use after a reload."""
    pipelines = {
        name: section.model_copy(
            update={"routing": new.pipelines[name].routing, "transforms": new.pipelines[name].transforms}
        )
        if section.routed and name in new.pipelines
        else section
        for name, section in old.pipelines.items()
    }
    return old.model_copy(update={"pipelines": pipelines})


def _other_changes(old: Config, new: Config) -> list[str]:
    """What a reload does not apply."""
    changed = [
        name for name in type(new).model_fields if name != "pipelines" and getattr(old, name) != getattr(new, name)
    ]
    for name, section in new.pipelines.items():
        before = old.pipelines.get(name)
        if before is None:
            changed.append(f"pipelines.{name}")
            continue
        same = section.model_copy(update={"routing": before.routing, "transforms": before.transforms})
        plain = [each for each in section.transforms if each.type != "route"]
        if same != before or plain != [each for each in before.transforms if each.type != "route"]:
            changed.append(f"pipelines.{name}")
    return changed + [f"pipelines.{name}" for name in old.pipelines if name not in new.pipelines]

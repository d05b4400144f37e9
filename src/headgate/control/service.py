"""The running service: embedded servers, Spark, pipelines and the control plane, started and stopped in order."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from headgate import __version__
from headgate.config import Config
from headgate.config.needs import needs_of
from headgate.control.broker import BrokerProcess
from headgate.control.checks.before import look_before
from headgate.control.dashboard import Stores
from headgate.control.gateway import GatewayProcess
from headgate.control.http import ControlServer
from headgate.control.pipelines import PipelineControl
from headgate.control.registry import RegistryProcess
from headgate.control.relay import RelayProcess
from headgate.control.runfile import RunFile
from headgate.control.spark import begin_java, open_spark
from headgate.control.stack import open_stack
from headgate.control.state_lock import StateLock
from headgate.destinations.nats import JetStream, NatsDestination
from headgate.embedded import Endpoints, Stack
from headgate.gateway.configured import options_from
from headgate.model import ConfigError, HeadgateError, Status
from headgate.pipeline.assemble import assemble
from headgate.pipeline.compile import compile_decoders
from headgate.pipeline.daemons import IdleDaemons
from headgate.pipeline.jvm import ArchiveMaker
from headgate.pipeline.prestart import prestart_workers
from headgate.pipeline.report import Report
from headgate.pipeline.session import SparkSession, close_session
from headgate.pipeline.spec import PipelineSpec
from headgate.pipeline.supervisor import Supervisor
from headgate.pipeline.turns import StartTurns
from headgate.registry.configured import registry_options
from headgate.snapshots import SnapshotService, open_snapshot_services
from headgate.sources.postgres_snapshot.plan import table_name

__all__ = ["Service"]

_log = logging.getLogger("headgate")

_STOP_TIMEOUT_S = 60.0
_LAGS = ("lag_rows", "lag_bytes", "lag_seconds")


def _served(spec: PipelineSpec, served: SnapshotService | None) -> PipelineSpec:
    """A description is in its bucket before the first row of its shape is in the stream."""
    return spec if served is None else replace(spec, before_batch=served.schemas.publish)


class Service:
    """Everything `headgate run` runs."""

    def __init__(
        self,
        config: Config,
        *,
        until_caught_up: bool = False,
        progress: Callable[[str], None] = lambda text: None,
        prepare: Callable[[Endpoints], None] = lambda endpoints: None,
        reread: Callable[[], Config] | None = None,
    ) -> None:
        self._config = config
        self._reread = reread  # the configuration as it is now, for a reload
        self._reload = threading.Event()
        self._until_caught_up = until_caught_up
        self._progress = progress
        self._prepare = prepare  # what somebody wants done between the servers' start and the pipelines'
        self._stop = threading.Event()
        self._started_at = time.time()
        self._stack: Stack | None = None
        self._spark: SparkSession | None = None
        self._archive_maker = ArchiveMaker()
        self._idle_daemons: IdleDaemons | None = None
        self._server: ControlServer | None = None
        self._gateway: GatewayProcess | None = None
        self._broker: BrokerProcess | None = None
        self._registry: RegistryProcess | None = None
        self._relay: RelayProcess | None = None
        self._run_file = RunFile(config.project.data_dir)
        self._state_lock = StateLock(config.project.data_dir)
        self._phase: Literal["starting", "running", "stopping"] = "starting"
        self._doing = "opening servers"  # what a start is about
        self.endpoints: Endpoints | None = None
        self.supervisors: list[Supervisor] = []
        self.snapshot_services: dict[str, SnapshotService] = {}

    def start(self) -> None:
        """Start everything, in the order in which one thing needs another. On an error, what ran is stopped."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        config = self._config
        has_pipelines = any(pipeline.enabled for pipeline in config.pipelines.values())
        has_server = any(each.enabled for each in (config.gateway, config.broker, config.registry, config.relay))
        if not has_pipelines and not has_server:
            raise ConfigError("there is no enabled pipeline", remedy="add a table [pipelines.NAME]; see: headgate init")
        self._state_lock.acquire()
        self._start_control()
        if has_pipelines:
            begin_java(config)  # servers start beside it
            compile_decoders(config)
        self._stack, self.endpoints = self._open_servers(config)
        self._prepare(self.endpoints)
        specs = self._look_first(self.endpoints) if has_pipelines else []
        self._start_gateway(self.endpoints)
        self._start_broker(self.endpoints)
        self._start_registry(self.endpoints)
        self._start_relay()
        if has_pipelines:
            self._start_pipelines(specs)
        self._phase = "running"
        _log.info("started", extra={"pipelines": len(self.supervisors), "control": self.url, "version": __version__})

    def _start_control(self) -> None:
        """First of all, so that whoever asks during a long start is told how far it is."""
        control = self._config.control
        token = control.token.get_secret_value() if control.token else None
        self._server = ControlServer(self, control.host, control.port, token)
        self._server.start()
        self._run_file.write(self._server.url)

    def _say(self, doing: str) -> None:
        self._doing = doing
        self._progress(doing)

    def _open_servers(self, config: Config) -> tuple[Stack | None, Endpoints]:
        needs = needs_of(config)
        starting = [
            name
            for name, is_embedded in (
                ("PostgreSQL", needs.postgres and config.postgres.embedded),
                ("NATS", needs.nats and config.nats.embedded),
            )
            if is_embedded
        ]
        if starting:
            self._say(f"starting {' and '.join(starting)}")
        return open_stack(config, needs)

    def _start_gateway(self, endpoints: Endpoints) -> None:
        if not self._config.gateway.enabled:
            return
        self._say("starting the gateway")
        url = endpoints.postgres_url or self._config.postgres.url.get_secret_value()
        self._gateway = GatewayProcess(options_from(self._config.gateway, url))
        self._gateway.start()

    def _start_broker(self, endpoints: Endpoints) -> None:
        if not self._config.broker.enabled:
            return
        self._say("starting the broker")
        url = endpoints.postgres_url or self._config.postgres.url.get_secret_value()
        options = self._config.broker.options(url)
        self._broker = BrokerProcess(options)
        self._broker.start()

    def _start_registry(self, endpoints: Endpoints) -> None:
        if not self._config.registry.enabled:
            return
        self._say("starting the registry")
        url = endpoints.postgres_url or self._config.postgres.url.get_secret_value()
        self._registry = RegistryProcess(registry_options(self._config.registry, url))
        self._registry.start()

    def _start_relay(self) -> None:
        if not self._config.relay.enabled:
            return
        from headgate.relay.configured import settings_from  # needs the extra `relay`

        self._say("starting the relay")
        self._relay = RelayProcess(settings_from(self._config.relay, self._config.project.data_dir / "relay"))
        self._relay.start()

    def _look_first(self, endpoints: Endpoints) -> list[PipelineSpec]:
        """Starting Spark takes long: whatever would end a pipeline for good is told before, and all at once."""
        config = self._config
        self._say("looking at servers")
        specs = assemble(
            config,
            nats_url=endpoints.nats_url or config.nats.url.get_secret_value(),
            postgres_url=endpoints.postgres_url or config.postgres.url.get_secret_value(),
            until_caught_up=self._until_caught_up,
        )
        look_before(config, endpoints, specs)
        return specs

    def _start_pipelines(self, specs: list[PipelineSpec]) -> None:
        config = self._config
        self._say("starting Spark")
        self._spark = open_spark(config, following=sum(spec.follows for spec in specs))
        prestart_workers(self._spark)
        self.snapshot_services = open_snapshot_services(config, specs, self._spark)
        specs = [_served(spec, self.snapshot_services.get(spec.name)) for spec in specs]
        turns = StartTurns()
        self.supervisors = [Supervisor(spec, self._spark, turns) for spec in specs]
        self._say("starting pipelines")
        for supervisor in self.supervisors:
            supervisor.start()
        for served in self.snapshot_services.values():
            served.start()
        if not self._until_caught_up:
            self._archive_maker.start(Path(os.environ["JAVA_HOME"]))  # as the session has set it
            self._idle_daemons = IdleDaemons(self._spark)
            self._idle_daemons.start()

    @property
    def url(self) -> str:
        assert self._server is not None
        return self._server.url

    def reports(self) -> list[Report]:
        return [supervisor.report for supervisor in self.supervisors]

    def status(self) -> dict[str, Any]:
        """What `/status` and `headgate status` show."""
        return {
            "project": self._config.project.name,
            "version": __version__,
            "pid": os.getpid(),
            "phase": self._phase,
            "doing": self._doing if self._phase == "starting" else None,
            "uptime_seconds": round(time.time() - self._started_at, 1),
            "spark": {"master": self._config.spark.master},
            "pipelines": [report.as_dict() for report in self.reports()],
            "gateway": self._gateway.status() if self._gateway else None,
            "broker": self._broker.status() if self._broker else None,
            "registry": self._registry.status() if self._registry else None,
            "relay": self._relay.status() if self._relay else None,
        }

    def gateway_metrics(self) -> dict[str, Any] | None:
        """What the gateway has counted; None without one."""
        return self._gateway.metrics() if self._gateway else None

    def registry_metrics(self) -> dict[str, Any] | None:
        """What the registry has counted; None without one."""
        return self._registry.metrics() if self._registry else None

    def relay_metrics(self) -> dict[str, Any] | None:
        """What the relay has counted; None without one."""
        return self._relay.metrics() if self._relay else None

    def broker_metrics(self) -> dict[str, Any] | None:
        """What the broker has counted; None without one."""
        return self._broker.metrics() if self._broker else None

    def stores(self) -> Stores:
        """What of the service is in PostgreSQL, for those who look at it."""
        config = self._config
        url = (self.endpoints and self.endpoints.postgres_url) or config.postgres.url.get_secret_value()
        broker_url = config.broker.url.get_secret_value() if config.broker.url else url
        return Stores(
            url if self._gateway else None, broker_url if self.endpoints else None, config.broker.broker_schema
        )

    def control(self) -> PipelineControl:
        """What steers the pipelines."""
        return PipelineControl(self._config, self.supervisors, self._reread, self._adopt)

    def _adopt(self, config: Config) -> None:
        self._config = config

    def stream_info(self, stream: str) -> dict[str, Any] | None:
        """What NATS says of a stream that one of our destinations writes to; None for any other."""
        destinations = (d for supervisor in self.supervisors for d in supervisor.spec.destinations)
        for destination in destinations:
            if isinstance(destination, NatsDestination) and destination.options.stream == stream:
                with JetStream.open(destination.options) as jetstream:
                    info = jetstream.stream_info(stream)
                return {k: v for k, v in asdict(info).items() if k != "config"} if info else None
        return None

    def snapshots(self) -> list[dict[str, Any]]:
        """Every snapshot that is remembered, newest first."""
        found = [(name, job) for name, served in self.snapshot_services.items() for job in served.jobs()]
        found.sort(key=lambda each: each[1].id, reverse=True)
        return [{"pipeline": name} | job.as_dict() for name, job in found]

    def request_snapshot(self, table: str, **options: Any) -> dict[str, Any]:
        """Ask for a snapshot; the answer is what a request over NATS gets."""
        schema, name = table_name(table)
        for served in self.snapshot_services.values():
            served.schemas.publish()
            if (schema, name) in served.schemas.tables:
                job, shared = served.request(schema, name, **options)
                return served.answer(job, shared=shared)
        known = sorted(".".join(each) for b in self.snapshot_services.values() for each in b.schemas.tables)
        raise ConfigError(
            f"no pipeline publishes a table {schema}.{name}",
            remedy=f"published tables: {', '.join(known)}" if known else "is a CDC pipeline to NATS running?",
        )

    def cancel_snapshot(self, snapshot_id: str) -> dict[str, Any] | None:
        """End a snapshot; None if there is none of that id."""
        for name, served in self.snapshot_services.items():
            job = served.cancel(snapshot_id)
            if job is not None:
                return {"pipeline": name} | job.as_dict()
        return None

    def request_stop(self) -> None:
        """Ask for a stop; safe in a signal handler and from any thread."""
        self._stop.set()

    def request_reload(self) -> None:
        """Ask for the configuration to be read again; safe in a signal handler."""
        self._reload.set()

    def _reload_now(self) -> None:
        """A mistake in the new configuration is told, and the old one stays."""
        self._reload.clear()
        try:
            done = self.control().reload()
        except HeadgateError as error:
            _log.error("reload failed; everything stays as it was", extra={"error": error.as_dict()})
        else:
            _log.info("reloaded", extra=done)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until a stop is asked for or every pipeline has ended; tells the metrics at their interval."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        interval_s = self._config.logging.metrics_interval
        next_line = time.monotonic() + interval_s
        while not self._stop.wait(0.25):
            now = time.monotonic()
            if self._reload.is_set():
                self._reload_now()
            if self._has_ended():
                return True
            if deadline is not None and now >= deadline:
                return False
            if interval_s and now >= next_line:
                next_line = now + interval_s
                self._log_metrics()
        return True

    def _has_ended(self) -> bool:
        """Whether no pipeline runs any more. A server alone runs until a stop is asked for."""
        if not self.supervisors and not self._until_caught_up:
            return False
        return all(supervisor.reporter.report.status.ended for supervisor in self.supervisors)

    def _log_metrics(self) -> None:
        for report in self.reports():
            fields = {
                "pipeline": report.pipeline,
                "status": report.status.value,
                "rows_total": report.rows_total,
                "rows_per_second": round(report.rows_per_second, 1),
                **{name: value for name in _LAGS if (value := getattr(report, name)) is not None},
                "batch_ms": round(report.last_batch_seconds * 1000),
                "errors_total": report.errors_total,
            }
            _log.debug("METRICS", extra=fields)

    def first_error(self) -> HeadgateError | None:
        """The error of a pipeline that gave up."""
        for report in self.reports():
            if report.status is Status.ERROR and report.error:
                return HeadgateError.from_text(f"headgate-error: {json.dumps(report.error)}")
        return None

    def stop(self) -> None:
        """Stop everything in reverse order. Idempotent."""
        self._stop.set()
        self._phase = "stopping"
        for served in self.snapshot_services.values():
            served.stop()
        for supervisor in self.supervisors:
            supervisor.stop()
        for supervisor in self.supervisors:
            supervisor.join(_STOP_TIMEOUT_S)
        for server in (self._relay, self._registry, self._gateway, self._broker):
            if server is not None:
                server.stop()
        self._run_file.remove()
        if self._server is not None:
            self._server.stop()
            self._server = None
        self._archive_maker.stop()
        if self._idle_daemons is not None:
            self._idle_daemons.stop()
        if self._spark is not None:
            close_session(self._spark)
            self._spark = None
        if self._stack is not None:
            self._stack.stop()
            self._stack = None
        self._state_lock.release()

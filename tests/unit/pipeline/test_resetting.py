"""A reset begins a new origin of ids, new numbers of batches and a new checkpoint, for every kind of source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from headgate.config import Config
from headgate.pipeline.assemble import assemble
from headgate.pipeline.places import pipeline_dir
from headgate.pipeline.resetting import reset_pipeline, resets_of
from headgate.pipeline.spec import PipelineSpec

SOURCES: dict[str, dict[str, Any]] = {
    "random": {},
    "postgres-poll": {"table": "jobs", "tracking_column": "id"},
    "files": {"path": "/in", "format": "text"},
    "webhook": {},
    "broker": {"group": "g"},
    "kafka": {"servers": "127.0.0.1:1", "topics": ["t"]},
    "log": {"topics": ["t"]},
    "atproto": {"url": "wss://relay.example"},
}


def specs(config: Config) -> dict[str, PipelineSpec]:
    return {spec.name: spec for spec in assemble(config, nats_url=None, postgres_url="postgres://127.0.0.1:1/x")}


def test_nothing_after_a_reset_is_taken_for_something_before(tmp_path: Path) -> None:
    for base in (None, "hdfs://somewhere/checkpoints/"):
        config = Config.model_validate(
            {
                "project": {"name": "shop", "data_dir": tmp_path / (base or "local").replace("/", "")},
                "spark": {"checkpoint_dir": base},
                "sources": {kind: {"type": kind} | more for kind, more in SOURCES.items()},
                "destinations": {"d": {"type": "memory"}},
                "pipelines": {kind: {"source": kind, "destinations": ["d"], "topic": "t"} for kind in SOURCES},
            }
        )
        runs = []
        for _ in range(3):
            runs.append(specs(config))
            for kind in SOURCES:
                reset_pipeline(pipeline_dir(config, kind), keeps_spool=True)
        for kind in SOURCES:
            assert [run[kind].resets for run in runs] == [0, 1, 2]
            for told in (PipelineSpec.origin, lambda spec: spec.checkpoint, lambda spec: spec.first_batch):
                assert len({told(run[kind]) for run in runs}) == 3, (kind, told)
        plugin = [replace(run["random"], renews_origin=True, source=runs[0]["random"].source) for run in runs]
        assert [spec.origin() for spec in plugin] == ["shop-random", "shop-random~000001", "shop-random~000002"]


def test_plans_and_checkpoints_of_before_are_gone_and_the_rest_stays(tmp_path: Path) -> None:
    for name in ("poll", "files", "checkpoint", "checkpoint~000001", "source"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text("x")
    (tmp_path / "state.json").write_text("{}")
    (tmp_path / "dead_letters.sqlite").write_text("")
    reset_pipeline(tmp_path, keeps_spool=True)
    assert {path.name for path in tmp_path.iterdir()} == {"source", "resets", "dead_letters.sqlite"}
    assert resets_of(tmp_path) == 1

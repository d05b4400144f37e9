"""A look at databases and NATS before Spark starts: what is wrong is told in seconds, and all of it at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from headgate.config import Config
from headgate.config.needs import needs_of
from headgate.control.checks.nats import check_nats, check_stream
from headgate.control.checks.run import answer, check_used_postgres, nats_server
from headgate.control.checks.verdict import Check, Outcome
from headgate.destinations.nats import NatsDestination
from headgate.embedded import Endpoints
from headgate.model import HeadgateError, Kind
from headgate.pipeline.spec import PipelineSpec
from headgate.sources.postgres_poll.source import PostgresPollSource

__all__ = ["look_before"]

_log = logging.getLogger(__name__)
_AT_ONCE = 8


def look_before(config: Config, endpoints: Endpoints, specs: Sequence[PipelineSpec]) -> None:
    """Raise one error for everything that waiting would not mend. A server that is only not there yet is waited for."""
    failed = _failures(_looks(config, endpoints, specs))
    if any(spec.state_path.exists() for spec in specs):  # who has read changes waits for a publication to come back
        failed = [replace(each, final=None) if each.subject.startswith("publication ") else each for each in failed]
    failed.sort(key=lambda check: check.final is None)
    if not failed or failed[0].final is None:
        for check in failed:
            _log.warning("not ready", extra={"check": check.subject, "found": check.found, "remedy": check.fix})
        return
    raise _all_of(failed)


def _all_of(failed: list[Check]) -> HeadgateError:
    """One error for all, of the kind of the first."""
    first = failed[0]
    make = HeadgateError.of_kind(first.final or Kind.CONNECT)
    if len(failed) == 1:
        return make(f"{first.subject}: {first.found}", remedy=first.fix)
    lines = [f"\n  {check.subject}: {check.found}\n    try: {check.fix}" for check in failed]
    text = f"{len(failed)} things keep the pipelines from running:{''.join(lines)}"
    return make(text, remedy="mend them; see: headgate check")


def _looks(config: Config, endpoints: Endpoints, specs: Sequence[PipelineSpec]) -> list[Callable[[], Iterable[Check]]]:
    """What to look at; each may wait for a server, so they do it side by side."""
    needs = needs_of(config)
    url = endpoints.postgres_url or config.postgres.url.get_secret_value()
    sources = {spec.source.name: spec.source for spec in specs}
    destinations = {each.name: each for spec in specs for each in spec.destinations}
    return [
        partial(check_used_postgres, config, url, needs),
        *([partial(check_nats, nats_server(config, endpoints.nats_url))] if needs.nats else []),
        *(
            partial(answer, f"source {name}", source.check)
            for name, source in sources.items()
            if isinstance(source, PostgresPollSource)
        ),
        *(partial(check_stream, each) for each in destinations.values() if isinstance(each, NatsDestination)),
    ]


def _failures(looks: list[Callable[[], Iterable[Check]]]) -> list[Check]:
    """What failed, in its order. A server that does not answer is missed by all who need it, and told once."""
    with ThreadPoolExecutor(_AT_ONCE, "look") as pool:
        found = [check for checks in pool.map(lambda look: list(look()), looks) for check in checks]
    failed = [check for check in found if check.outcome is Outcome.FAIL]
    return list({check.found: check for check in reversed(failed)}.values())[::-1]

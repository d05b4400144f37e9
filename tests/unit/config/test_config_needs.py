"""Which of the embedded servers a file uses: nothing is started that nobody asked for."""

from __future__ import annotations

import pytest

from headgate.config import parse
from headgate.config.needs import Needs, needs_of

RANDOM = '[sources.s]\ntype = "random"\n'
CDC = '[sources.s]\ntype = "postgres-cdc"\nslot = "s"\npublication = "p"\n'
POLL = '[sources.s]\ntype = "postgres-poll"\ntable = "t"\ntracking_column = "id"\n'
NATS = '[destinations.d]\ntype = "nats"\nstream = "CDC"\nsubjects = ["cdc.>"]\n'
TABLE = '[destinations.d]\ntype = "table"\npath = "t"\n'
LOG = '[destinations.d]\ntype = "log"\n'
PIPELINE = '[pipelines.p]\nsource = "s"\ndestinations = ["d"]\ntopic = "t"\n'


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        (RANDOM + TABLE + PIPELINE, Needs(postgres=False, nats=False)),
        (RANDOM + NATS + PIPELINE, Needs(postgres=False, nats=True)),
        (RANDOM + LOG + PIPELINE, Needs(postgres=True, nats=False)),
        (POLL + TABLE + PIPELINE, Needs(postgres=True, nats=False)),
        (POLL + 'url = "postgres://elsewhere/shop"\n' + TABLE + PIPELINE, Needs(postgres=False, nats=False)),
        (CDC + NATS + PIPELINE.replace('topic = "t"\n', ""), Needs(postgres=True, nats=True)),
        (CDC + NATS + 'url = "nats://elsewhere"\n' + PIPELINE.replace('topic = "t"\n', ""), Needs(True, False)),
        (CDC + NATS + PIPELINE.replace('topic = "t"\n', "enabled = false\n"), Needs(postgres=False, nats=False)),
        ("[gateway]\nenabled = true\n", Needs(postgres=True, nats=False)),
        ('[broker]\nenabled = true\nurl = "postgres://elsewhere/shop"\n', Needs(postgres=False, nats=False)),
        ("[relay]\nenabled = true\n", Needs(postgres=False, nats=False)),
    ],
    ids=["table", "nats", "log", "poll", "own", "cdc", "own-nats", "off", "gateway", "broker", "relay"],
)
def test_servers_that_a_file_uses(text: str, needs: Needs) -> None:
    assert needs_of(parse(text)) == needs

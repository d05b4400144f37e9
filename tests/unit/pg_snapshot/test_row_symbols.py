"""Kernels for two formats, compiled by two processes, do not get mixed up in a third one that loads both."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from headgate.kernels.changes.row_encoder import RowEncoder
from headgate.wire.pgoutput import Relation, RelationColumn, ReplicaIdentity
from headgate.wire.pgtypes import TypeCatalog

columns = (RelationColumn(True, "id", 20, -1), RelationColumn(False, "n", 25, -1))
relation = Relation(1, "s", "t", ReplicaIdentity.DEFAULT, columns)
for form in sys.argv[1:]:
    (rows,) = RowEncoder(relation, TypeCatalog(), form).encode(b"1\\tx\\n")
    sys.stdout.write(rows[0].as_py().hex() + "\\n")
"""
ROWS = {"json": b'{"id":1,"n":"x"}', "msgpack": b"\x82\xa2id\x01\xa1n\xa1x"}


def test_both_formats_from_disk(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for forms in (["json"], ["msgpack"], ["json", "msgpack"]):
        command = [sys.executable, "-c", PROGRAM, *forms]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
        assert [bytes.fromhex(line) for line in done.stdout.split()] == [ROWS[form] for form in forms]

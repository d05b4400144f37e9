"""`python -m headgate.kernels.changes msgpack`: compiles the decoder of a format and keeps it on disk."""

from __future__ import annotations

import sys
from typing import cast

from headgate.kernels.changes.decoder import compile_ahead
from headgate.kernels.changes.reference import Format
from headgate.kernels.changes.row_encoder import compile_rows_ahead

if __name__ == "__main__":
    wanted = sys.argv[2:]
    compile_ahead(cast(Format, sys.argv[1]), images="images" in wanted, picks="picks" in wanted, keys="keys" in wanted)
    if sys.argv[1] in ("msgpack", "json"):
        compile_rows_ahead("json" if sys.argv[1] == "json" else "msgpack")

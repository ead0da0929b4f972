"""Makes tests/data/checkpoint-v1: a small checkpoint of today, which every later version must be able to open.

    python -m tests.spark.make_old_checkpoint

Run it only to add a checkpoint of a new format version (and then change VERSION): the old ones must stay as they are.
The paths of input files are part of what Spark remembers, so all is made below the neutral BASE.
"""

import shutil
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from tests.conftest import SESSION_SETTINGS
from tests.spark.helpers import join_of, random_batches, run, write_batches

VERSION = "v1"
BASE = Path(f"/tmp/watersmeet-{VERSION}")
KEPT = Path(__file__).parents[1] / "data" / f"checkpoint-{VERSION}"
BATCHES_BEFORE = 3


def old_batches() -> list[dict[str, pa.Table]]:
    """The batches that went into the checkpoint, and two more to go on with."""
    return random_batches(seed=13, streams="ab", batches=BATCHES_BEFORE + 2, rows=12, keys=4, batch_seconds=30)


def old_join(spark: SparkSession, base: Path):
    return join_of(spark, base, "ab").options(slots=2, partitions=16)


def main() -> None:
    builder = SparkSession.builder.master("local[2]")
    for name, value in SESSION_SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    shutil.rmtree(BASE, ignore_errors=True)
    write_batches(BASE, old_batches()[:BATCHES_BEFORE])
    run(old_join(spark, BASE), BASE / "out", BASE / "ck")
    spark.stop()
    shutil.rmtree(KEPT, ignore_errors=True)
    # Checksum files of Hadoop and the lock say nothing that the checkpoint needs.
    shutil.copytree(BASE / "ck", KEPT / "ck", ignore=shutil.ignore_patterns("*.crc", "lock"))
    (KEPT / "README").write_text(
        f"A checkpoint of format {VERSION}, {BATCHES_BEFORE} epochs old, made by tests/spark/make_old_checkpoint.py\n"
        f"below {BASE} (the paths in ck/spark/sources). It is never made again: test_old_checkpoint.py shows that it\n"
        "still opens. The rows that went in are those of `old_batches` there.\n"
    )
    shutil.rmtree(BASE)


if __name__ == "__main__":
    main()

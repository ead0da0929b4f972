"""A driver on a cluster of hosts: joins all there is in `folder/{a,b}` into `folder/out`, and tells where slots ran.

    python -m tests.spark.hosts_program <folder> <options of the join, as JSON>

`folder/progress.json` gets, per line, the `statistics` of a micro-batch and its `durationMs`.
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.helpers import join_of, start
from tests.spark.session import SESSION_SETTINGS
from watersmeet import failpoints


def main(folder: Path, options: dict[str, object]) -> None:
    assert failpoints.VARIABLE not in os.environ
    builder = SparkSession.builder.appName("watersmeet-hosts")
    for name, value in SESSION_SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    within = options.pop("within")
    query = start(join_of(spark, folder, "ab", within=within).options(**options), folder / "out", folder / "ck")
    query.awaitTermination()
    told = [{**progress["statistics"], "durationMs": progress["durationMs"]} for progress in query.recentProgress]
    (folder / "progress.json").write_text("".join(f"{json.dumps(one)}\n" for one in told))
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))

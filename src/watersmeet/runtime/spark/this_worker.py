"""Where a task runs: the host, and the executor, taken from environment variables.

| cluster manager            | the executor's id                                              |
|----------------------------|----------------------------------------------------------------|
| Kubernetes                 | `SPARK_EXECUTOR_ID`                                            |
| standalone, local-cluster  | in the address of the executor's log, `SPARK_LOG_URL_STDERR`   |
| YARN                       | the container, `CONTAINER_ID`                                  |
| local                      | `driver`, as Spark calls it                                    |

Spark gives Python tasks no other information about it.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping

from watersmeet.epoch.task import Worker


def this_worker(environment: Mapping[str, str]) -> Worker:
    return Worker(platform.node(), _executor(environment))


def _executor(environment: Mapping[str, str]) -> str:
    if known := environment.get("SPARK_EXECUTOR_ID"):
        return known
    in_address = re.search(r"[?&]executorId=([^&]+)", environment.get("SPARK_LOG_URL_STDERR", ""))
    return in_address[1] if in_address else environment.get("CONTAINER_ID", "driver")

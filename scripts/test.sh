#!/usr/bin/env bash
# All tests: those that need Spark, and beside them, in a process of its own, all others. Fails if either fails.
#
#   scripts/test.sh PYTHON [pytest arguments]
set -uo pipefail

python=$1
shift
others=$(mktemp)
trap 'rm -f "$others"' EXIT

echo "tests that need no Spark run beside the others; what they say follows at the end"
"$python" -m pytest -q -m "not spark" "$@" >"$others" 2>&1 &
"$python" -m pytest -q -m spark "$@"
spark_code=$?
wait $!
others_code=$?
cat "$others"
[ "$spark_code" -eq 0 ] && [ "$others_code" -eq 0 ]

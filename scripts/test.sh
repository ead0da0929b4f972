#!/usr/bin/env bash
# All tests, in three processes side by side: those that share a Spark session, those that start and kill processes of
# their own, and those that need no Spark. Fails if any of them fails. Variants marked `long` are left to `make soak`.
#
#   scripts/test.sh PYTHON [pytest arguments]
set -uo pipefail

python=$1
shift
said=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$said"' EXIT

echo "scenarios, tests that kill processes and tests that need no Spark run beside the others; what they say follows at the end"
"$python" -m pytest -q -m "(chaos or scenario) and not long" tests/spark "$@" >"$said/chaos" 2>&1 &
chaos=$!
"$python" -m pytest -q -m "not spark and not long" --ignore tests/spark "$@" >"$said/others" 2>&1 &
others=$!
code=0
"$python" -m pytest -q -m "spark and not chaos and not scenario and not long" tests/spark "$@" || code=1
wait "$chaos" || code=1
wait "$others" || code=1
cat "$said/chaos" "$said/others"
exit "$code"

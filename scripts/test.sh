#!/usr/bin/env bash
# All tests, in four processes side by side: two halves of those that need a Spark session, those that start and kill
# processes of their own, and those that need no Spark. Fails if any of them fails.
#
#   scripts/test.sh PYTHON [pytest arguments]
set -uo pipefail

python=$1
shift
said=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$said"' EXIT

echo "three other parts of the tests run beside this one; what they say follows at the end"
"$python" -m pytest -q -m "chaos" tests/spark "$@" >"$said/1" 2>&1 &
parts=($!)
"$python" -m pytest -q -m "not spark" --ignore tests/spark "$@" >"$said/2" 2>&1 &
parts+=($!)
"$python" -m pytest -q -m "spark and not chaos" tests/spark/test_[a-d]*.py "$@" >"$said/3" 2>&1 &
parts+=($!)
code=0
"$python" -m pytest -q -m "spark and not chaos" tests/spark/test_[!a-d]*.py "$@" || code=1
for part in "${parts[@]}"; do
    wait "$part" || code=1
done
cat "$said"/*
exit "$code"

#!/usr/bin/env bash
# All tests, in three processes side by side that take about as long: tests on Spark; those that start and kill processes
# of their own, scenarios on Spark and the slow tests on Spark; and those that need no Spark. Fails if any of them fails.
# Variants marked `long` are left to `make soak`.
#
# Files of tests are in memory where there is enough: the tests of syncing look at calls, not at disks. They are removed
# if all tests pass.
#
#   scripts/test.sh PYTHON [pytest arguments]
set -uo pipefail

python=$1
shift
said=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$said"' EXIT
files=
free_kb=$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)
if [ -w /dev/shm ] && [ "${free_kb:-0}" -gt $((8 << 20)) ]; then
    files=$(mktemp -d /dev/shm/watersmeet-test-XXXXXX)
    chmod 755 "$files" # other users must come to what tests share with them
    export TMPDIR=$files
fi

echo "slow tests on Spark and tests that need no Spark run beside the others; what they say follows at the end"
"$python" -m pytest -q -m "(chaos or scenario or slow) and not long" tests/spark "$@" >"$said/slow" 2>&1 &
slow=$!
"$python" -m pytest -q -m "not spark and not long" --ignore tests/spark "$@" >"$said/others" 2>&1 &
others=$!
code=0
"$python" -m pytest -q -m "spark and not (chaos or scenario or slow or long)" tests/spark "$@" || code=1
wait "$slow" || code=1
wait "$others" || code=1
cat "$said/slow" "$said/others"
if [ -n "$files" ]; then
    [ "$code" = 0 ] && rm -rf "$files" || echo "the files of the tests are kept in $files"
fi
exit "$code"

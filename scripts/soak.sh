#!/usr/bin/env bash
# The long campaigns: the property tests with thousands of examples and checkpoints with thousands of flipped bits,
# two processes side by side; spilling queries of a thousand epochs, in process and on Spark, that must stay flat; then
# drivers on Spark that are killed at random moments. The last line has the figures. Fails if any of them fails.
#
#   scripts/soak.sh PYTHON [all|inprocess]
#
# WATERSMEET_EXAMPLES is the number of examples per property (2000 if not set), WATERSMEET_KILLS that of kills of
# one query (20; five times as many over eight kinds of query),
# WATERSMEET_EPOCHS that of epochs of a long run (1000).
set -uo pipefail

python=$1
part=${2:-all}
export WATERSMEET_EXAMPLES=${WATERSMEET_EXAMPLES:-2000} WATERSMEET_KILLS=${WATERSMEET_KILLS:-20}
export WATERSMEET_EPOCHS=${WATERSMEET_EPOCHS:-1000}
said=$(mktemp -d)
trap 'rm -rf "$said"' EXIT
began=$SECONDS

campaign() { # NAME, then arguments of pytest
    local name=$1 code=0
    shift
    "$python" -m pytest -q --timeout 0 --hypothesis-show-statistics "$@" >"$said/$name" 2>&1 || code=1
    [ "$code" = 0 ] || touch "$said/$name.failed"
    echo "$name: $(tail -n 1 "$said/$name")"
}

properties=tests/properties
(
    campaign engine "$properties/test_engine_equals_oracle.py"
    campaign damage "$properties/test_damaged_checkpoints.py"
    campaign changes "$properties/test_query_changes.py"
) &
engine=$!
(
    campaign aggregates "$properties/test_aggregates_equal_oracle.py"
    campaign protocol "$properties/test_protocol_equals_oracle.py"
    campaign models "$properties/test_execution_models.py"
    campaign power "$properties/test_power_cuts.py"
    campaign optimiser "$properties/test_reoptimizer.py"
) &
others=$!
wait "$engine" "$others"
# Alone: what they hold is compared with what they held before.
campaign long-runs -s "$properties/test_long_runs.py"
grep -A 11 'second tenth  ' "$said/long-runs"
if [ "$part" = all ]; then
    campaign long-run-on-spark -s -m chaos tests/spark/test_long_run.py
    grep -A 11 'second tenth  ' "$said/long-run-on-spark"
    campaign kills -m chaos tests/spark/test_crashes.py -k random
    campaign long -m long tests
    WATERSMEET_KILLS=$((5 * WATERSMEET_KILLS)) campaign kinds -m chaos tests/spark/test_kill_campaign.py
fi

failed=$(find "$said" -name '*.failed' | wc -l)
for log in "$said"/*.failed; do
    [ -e "$log" ] && cat "${log%.failed}"
done
examples=$(cat "$said"/* | grep -oE '[0-9]+ (passing|failing)' | awk '{ sum += $1 } END { print sum + 0 }')
echo "soak: $examples examples, $((SECONDS - began)) s, $failed campaigns failed"
[ "$failed" = 0 ]

#!/usr/bin/env bash
# The long campaigns: the three property tests with thousands of examples, two processes side by side; then drivers on
# Spark that are killed at random moments. The last line has the figures. Fails if any of them fails.
#
#   scripts/soak.sh PYTHON [all|inprocess]
#
# WATERSMEET_EXAMPLES is the number of examples per property (2000 if not set), WATERSMEET_KILLS that of kills (20).
set -uo pipefail

python=$1
part=${2:-all}
export WATERSMEET_EXAMPLES=${WATERSMEET_EXAMPLES:-2000} WATERSMEET_KILLS=${WATERSMEET_KILLS:-20}
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
) &
engine=$!
(
    campaign aggregates "$properties/test_aggregates_equal_oracle.py"
    campaign protocol "$properties/test_protocol_equals_oracle.py"
) &
others=$!
wait "$engine" "$others"
if [ "$part" = all ]; then
    campaign kills -m chaos tests/spark/test_crashes.py -k random
fi

failed=$(find "$said" -name '*.failed' | wc -l)
for log in "$said"/*.failed; do
    [ -e "$log" ] && cat "${log%.failed}"
done
examples=$(cat "$said"/* | grep -oE '[0-9]+ (passing|failing)' | awk '{ sum += $1 } END { print sum + 0 }')
echo "soak: $examples examples, $((SECONDS - began)) s, $failed campaigns failed"
[ "$failed" = 0 ]

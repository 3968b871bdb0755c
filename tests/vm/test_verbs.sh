#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The tests of transports and collectives over verbs, and what becomes of it when memory cannot be locked. At the end
# no receiver was ever not ready, and no write was given up.
set -uo pipefail
failed=0
export SPARRING_TEST_LIMIT=200 SPARRING_TEST_TRANSPORTS=verbs SPARRING_TEST_SCALE=${SPARRING_TEST_SCALE:-0.1}
counters=/sys/class/infiniband/rxe0/ports/1/hw_counters

# check TEXT COMMAND...
check() {
    local text=$1 output start=$SECONDS
    shift
    if output=$("$@" 2>&1); then
        echo "ok: $text ($((SECONDS - start)) s)"
    else
        printf 'FAILED: %s\n%s\n' "$text" "$output"
        failed=1
    fi
}

# with_little_memlock TRANSPORTS: root may lock what it wants, unless it gives that up
with_little_memlock() {
    SPARRING_TRANSPORTS=$1 prlimit --memlock=65536 setpriv --bounding-set -ipc_lock \
        tools/sparring-run -n 2 -- tools/sparring-perf -b 64K -e 64K -n 2 -c 1 2>&1
}
falls_back() {
    local output
    output=$(with_little_memlock verbs,epoll) && grep -q 'limit of locked memory is 64 KiB.*ulimit -l' <<<"$output" &&
        grep -q 'transport epoll' <<<"$output"
}
says_why_not() {
    local output
    output=$(with_little_memlock verbs)
    [ $? -ne 0 ] && grep -q 'limit of locked memory is 64 KiB.*ulimit -l' <<<"$output"
}

# rxe of this kernel cannot: one line says so for each rank, and the job runs
says_no_paging() {
    local output
    output=$(SPARRING_VERBS_ODP=yes tools/sparring-run -n 2 -- tools/sparring-perf -b 64K -e 64K -n 2 -c 1 \
        --transport verbs 2>&1) && grep -q 'transport verbs' <<<"$output" &&
        [ "$(grep -c 'VERBS_ODP: rxe0 does not page on demand; buckets are pinned' <<<"$output")" = 2 ]
}

for test in transport_tcp transport_tcp_door matrix sendrecv job; do
    check "test_$test over verbs" tests/run-test "tests/multi/test_$test"
done
check "50 forks in the middle of collectives" \
    env SPARRING_TEST_SCALE=0.005 tests/run-test tests/multi/test_forks
check "without locked memory another transport is used" falls_back
check "without locked memory verbs alone says why not" says_why_not
if tools/sparring-info | grep -q '^ *on demand  *no$'; then
    check "paging on demand is asked for and not there" says_no_paging
fi
check "no receiver was not ready" grep -qx 0 $counters/send_rnr_err
check "no write was given up" grep -qx 0 $counters/retry_exceeded_err
exit $failed

#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# The tests of transports and collectives over verbs, connected by cards and by rdma_cm, the same bits over all
# transports, counters of trouble that stay as they are while all is well, and what becomes of a job when memory cannot
# be locked or there is no rdma_cm.
set -uo pipefail
failed=0
export SPARRING_TEST_LIMIT=200 SPARRING_TEST_SCALE=${SPARRING_TEST_SCALE:-0.1}
counters=/sys/class/infiniband/rxe0/ports/1/hw_counters
[ -d $counters ] || { echo "FAILED: there is no rxe0"; exit 1; } # nothing below would be over verbs
trouble() {
    (cd $counters && grep . send_rnr_err retry_rnr_exceeded_err retry_exceeded_err)
}

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
over_verbs() {
    SPARRING_TEST_TRANSPORTS=verbs tests/run-test "tests/multi/test_$1"
}
# Up to 3 ranks; all of it takes six minutes (docs/testing.md).
matrix() {
    SPARRING_TEST_SCALE=0.4 over_verbs matrix
}
by_cm() {
    SPARRING_VERBS_CONNECT=cm "$@"
}
# Ninety of them; ten thousand take seven minutes (docs/testing.md).
forks() {
    SPARRING_TEST_SCALE=0.03 over_verbs forks
}
# It mostly waits, for strangers who say nothing: five seconds, times the factor.
doors() {
    SPARRING_TIME_FACTOR=5 over_verbs transport_tcp_door
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
# Another folder of devices, for this job alone.
without_cm() {
    local output
    output=$(SPARRING_VERBS_CONNECT=cm SPARRING_LOG=warn,net=debug unshare -m sh -c 'mount -t tmpfs none /mnt &&
        cp -a /dev/infiniband/uverbs* /mnt && mount --bind /mnt /dev/infiniband &&
        tools/sparring-run -n 2 -- tools/sparring-perf -b 64K -e 64K -n 1 --transport verbs' 2>&1) &&
        grep -q 'connected without rdma_cm: there is no rdma_cm (modprobe rdma_ucm' <<<"$output" &&
        grep -q 'queue pair .* by cards' <<<"$output"
}

before=$(trouble)
check "test_matrix over verbs" matrix
check "test_split over verbs" over_verbs split
check "test_sendrecv over verbs, by rdma_cm" by_cm over_verbs sendrecv
check "the same bits over all transports, nothing allocated or registered in steady state" \
    tests/run-test tests/multi/test_steady
check "test_dmabuf over verbs" over_verbs dmabuf
check "test_forks over verbs" forks
check "no receiver was not ready, and no write was given up" test "$before" = "$(trouble)"

log=$(mktemp)
doors >"$log" 2>&1 &
doors=$!
check "test_transport_tcp over verbs" over_verbs transport_tcp
check "test_job over verbs, by rdma_cm" by_cm over_verbs job
wait "$doors"
code=$?
check "test_transport_tcp_door over verbs" sh -c "cat $log; exit $code"
check "without locked memory another transport is used" falls_back
check "without locked memory verbs alone says why not" says_why_not
check "without rdma_cm the cards do" without_cm
exit $failed

#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Verbs between two hosts, which are guests: messages beyond the 8 MiB of soft-RoCE, two devices at once, rdma_cm and
# what becomes of it behind a firewall, a network that loses, doubles, corrupts and reorders packets, a cable that is
# pulled and put back, a host that dies. Boots the guests itself, once: `test_verbs_hosts.sh --outside` is the part
# beside them.
set -uo pipefail
failed=0
here=$PWD
vm=$here/tools/sparring-vm

if [ "${1-}" != --outside ]; then
    command -v qemu-system-x86_64 >/dev/null || exit 77
    exec "$vm" --guests 2 --rails 2 --smp 1 --mem 1500M --timeout "${VM_LIMIT:-280}" --outside -- "$0" --outside
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export SPARRING_LOG=warn,init=info,net=info SPARRING_EXPEL=2s
# The ranks: their deadlines. sparring-run: what it gives them after a failure, half a second times this, so that they
# can say whom they have lost although the remote shell of that rank has ended.
ranks_factor=5
export SPARRING_TIME_FACTOR=60

# run PROGRAM...: $job_ranks ranks on each host; job OPTIONS-OF-SPARRING-PERF...
job_ranks=1
run() {
    timeout 120 tools/sparring-run --hosts "guest0:$job_ranks,guest1:$job_ranks" -e SPARRING_TIME_FACTOR=$ranks_factor \
        -- "$@" 2>&1
}
job() {
    run "$here/tools/sparring-perf" "$@"
}

# check TEXT PATTERN... : all of them are in $output
check() {
    local text=$1 pattern
    shift
    for pattern; do
        if ! grep -qE "$pattern" <<<"$output"; then
            printf 'FAILED: %s: there is no "%s" in:\n%s\n' "$text" "$pattern" "$output"
            failed=1
            return
        fi
    done
    echo "ok: $text (at $SECONDS s)"
}
right='Out of bounds values : 0 OK'
in_time='during .* after ([0-9]{1,4}|1[0-4][0-9]{3}) ms:'

# await NUMBER PATTERN: until as many lines of the job in the background say so; 60 s.
await() {
    for _ in $(seq 600); do
        [ "$(grep -c -- "$2" "$folder/log")" -lt "$1" ] || return
        sleep 0.1
    done
}
# start OPTIONS...: a job in the background, which is under way when this returns.
start() {
    job "$@" >"$folder/log" &
    job=$!
    await 1 'verbs to'
    sleep 3
}
# The output and the exit code of what was started.
finish() {
    local code
    wait "$job"
    code=$?
    output=$(cat "$folder/log" && echo "exit code $code")
}
on_both() {
    "$vm" exec 0 "$@" && "$vm" exec 1 "$@"
}

output=$(job allreduce -b 32M -e 32M -n 1 -w 0)
check "32 MiB are summed" 'verbs to 1 ranks' ' 33554432 .* 0 ' "$right"
output=$(job sendrecv -b 16M -e 16M -n 1 -w 0)
check "16 MiB are sent" 'verbs to 1 ranks' ' 16777216 .* 0 ' "$right"
job_ranks=2
output=$(job allreduce --algo all -b 64K -e 64K -n 1 -w 0)
check "every dense algorithm, two ranks on each host" 'verbs to 2 ranks' ' direct ' ' ring ' ' hierarchical ' \
    ' halving ' ' doubling ' ' tree ' "$right"
output=$(job sparse_allreduce --algo all --elements 256K --density 1% -n 1 -w 0)
check "every sparse algorithm, two ranks on each host" 'verbs to 2 ranks' ' direct ' ' hierarchical ' ' hosts ' \
    ' allgather ' ' doubling ' ' ring ' ' relay ' ' union ' ' blocks ' ' server ' ' dense ' "$right"
output=$(job compressed_allreduce --elements 256K --codec topk:ratio=1%+fp16 --buckets 8 -n 1 -w 0)
check "eight buckets at once, two ranks on each host" 'verbs to 2 ranks' '8 buckets: .* one at a time' "$right"
output=$(job compressed_allreduce --elements 256K --codec topk:ratio=1%,union=hosts+fp16 --algo hosts -n 2 -w 0)
check "the largest sums of each host, two ranks on each" 'verbs to 2 ranks' ' hosts ' "$right"
job_ranks=1
counters=/sys/class/infiniband/rxe0/ports/1/hw_counters
output=$(on_both cat $counters/send_rnr_err $counters/retry_exceeded_err | tr '\n' ' ')
check "no receiver was not ready, no write was given up" '^0 0 0 0 $'

output=$("$vm" exec 0 "$here/tests/vm/test_verbs_lanes" 2>&1)
check "links of several queue pairs" 'PASSED  \] 5 test'
output=$(SPARRING_VERBS_RAILS=2 SPARRING_VERBS_QPS=2 job allreduce -b 1M -e 1M -n 2 -w 1)
check "right results over two devices" 'rxe0:1' 'rxe1:1' ' 1048576 .* 0 ' "$right"
output=$(on_both cat /sys/class/infiniband/rxe1/ports/1/hw_counters/sent_pkts | tr '\n' ' ')
check "and the second one had its share" '^[0-9]{3,} [0-9]{3,} $'

export SPARRING_VERBS_CONNECT=cm
output=$(SPARRING_LOG=warn,net=debug SPARRING_VERBS_RAILS=2 SPARRING_VERBS_QPS=2 \
    job allreduce -b 256K -e 256K -n 2 -w 1)
check "rdma_cm connects two queue pairs on each of two devices" ' 262144 .* 0 ' "$right" \
    'rank 1: rxe0:1 .* by rdma_cm' 'rank 0: rxe1:1 .* by rdma_cm'
on_both tc qdisc add dev eth0 clsact
on_both tc filter add dev eth0 ingress protocol ip flower ip_proto udp dst_port 4791 action drop
output=$(SPARRING_VERBS_TIMEOUT=12 SPARRING_INIT_TIMEOUT=3s job allreduce -b 4K -e 4K -n 2 -w 1)
check "behind a firewall rdma_cm is given up, then the job" 'rdma_cm: not connected in time .5 s.; .* without it' \
    'rank [01]: rank [01] .* was lost during .* or a firewall drops UDP port 4791'

# meanwhile COMMAND...: what happens while rdma_cm asks for connections in vain.
meanwhile() {
    SPARRING_LOG=warn,net=debug SPARRING_INIT_TIMEOUT=6s job allreduce -b 64K -e 64K -n 10 >"$folder/log" &
    job=$!
    await 2 'rdma_cm listens'
    sleep 1
    "$@"
    local start=$SECONDS
    finish
    output+=$'\n'"after $((SECONDS - start)) s"
}
meanwhile "$vm" control cut
check "a cable that is pulled meanwhile" 'rank [01] \(host guest[01]\)' 'exit code 1' 'after ([0-9]|[12][0-9]) s'
"$vm" control restore
meanwhile "$vm" exec 1 sh -c 'for p in /proc/[0-9]*; do
    case $(readlink $p/exe) in */sparring-perf | */lt-sparring-perf) kill -9 ${p#/proc/} ;; esac; done'
check "a rank that is killed meanwhile" 'rank 0: .*rank 1 \(host guest1\)' 'after [0-9] s'
on_both tc qdisc del dev eth0 clsact
unset SPARRING_VERBS_CONNECT

# The limit is the heartbeat's then, 10 s; the device gives up after 15 s, by default after 4.
export SPARRING_VERBS_TIMEOUT=19
start allreduce -b 256K -e 256K -n 200 -w 1
"$vm" control cut 1
sleep 1.5
"$vm" control restore
finish
unset SPARRING_VERBS_TIMEOUT
check "a job goes on when the cable is put back in time" ' 262144 .* 0 ' "$right" 'exit code 0'

on_both ip link set eth0 mtu 1500
for network in 'loss 0.5% duplicate 1% corrupt 0.1%' 'delay 2ms reorder 99% gap 50'; do
    "$vm" control degrade "$network"
    output=$(job allreduce -b 4K -e 256K -f 8 -n 3 -w 1)
    check "right results with RoCE MTU 1024 and $network" 'MTU 1024' ' 262144 .* 0 ' "$right"
done
"$vm" control degrade none
on_both ip link set eth0 mtu 9000

start allreduce -b 64K -e 64K -n 100000 -w 1 -c 0
"$vm" control cut
finish
# The device gives up after 4 s, the heartbeat after 10.
check "both name the other one in time when the cable is pulled" 'rxe0:1 .*: port error' \
    "rank 1: rank 0 \(host guest0\) was lost $in_time" "rank 0: rank 1 \(host guest1\) was lost $in_time"
"$vm" control restore

run "$here/tests/vm/two_communicators" >"$folder/log" &
job=$!
await 2 ': sums'
"$vm" control cut
await 2 'RANK_LOST'
"$vm" control restore
finish
check "the same processes make a new communicator when the cable is back" 'rank 0: .*RANK_LOST: .*rank 1 .* was lost' \
    'rank 1: .*RANK_LOST: .*rank 0 .* was lost' 'rank 0: 20 right sums over verbs' 'rank 1: 20 right sums over verbs' \
    'exit code 0'

# Both halves lose the other one; that with rank 0 goes on, and waits for newcomers first.
job_ranks=2
SPARRING_INIT_TIMEOUT=2s start allreduce --elastic -b 64K -e 64K -n 400
job_ranks=1
"$vm" control cut
finish
check "of two halves one goes on when the cable is pulled" 'waits for newcomers' \
    '400 iterations of 65536 bytes, 2 ranks, 2 deaths survived, 0 wrong' \
    'rank 3: the other ranks go on without this one'
"$vm" control restore
output=$(job allreduce -b 64K -e 64K -n 2)
check "the next job finds the cable in its place" 'MTU 4096' 'verbs to 1 ranks' ' 65536 .* 0 ' "$right"

start allreduce -b 64K -e 64K -n 100000 -w 1 -c 0
"$vm" control kill 1
finish
check "the survivor names who died, in time" "rank 0: rank 1 \(host guest1\) was lost $in_time"
exit $failed

#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# sparring-info and its doctor where there is RDMA: what they show of a good soft-RoCE device, and of one after
# the other fault that a user may have. Every fault is taken back.
set -uo pipefail
failed=0
info=tools/sparring-info
poor=tests/cli/test_sparring_info # --poor nobody: as a user who may lock 64 KiB
output=

# shows TEXT PATTERN: the last output has a line like that.
shows() {
    if grep -qE -- "$2" <<<"$output"; then
        echo "ok: $1"
    else
        printf 'FAILED: %s: no line like "%s" in\n%s\n' "$1" "$2" "$output"
        failed=1
    fi
}
# doctor CODE [COMMAND...]: its output, and its exit code.
doctor() {
    local wanted=$1 code
    shift
    output=$("$@" $info --doctor 2>&1)
    code=$?
    [ "$code" -eq "$wanted" ] || {
        printf 'FAILED: exit code %d instead of %d:\n%s\n' "$code" "$wanted" "$output"
        failed=1
    }
}

output=$($info)
shows "the device" '^rxe0 .*soft, on eth0.*uverbs0'
shows "the port" 'port 1 .*active, Ethernet, MTU 4096 of 4096, .*8 MiB.*over eth0'
shows "the GID of the address that TCP uses" '^\*   GID [0-9]+ +RoCE v2 10\.9\.0\.1 of eth0, usable'
shows "another usable GID" '^    GID [0-9]+ +RoCE v2 fe80:.* usable: RoCE v2, IPv6'
shows "inline data were tried" 'inline [1-9]'
shows "memory was registered" 'registration +2 MiB were registered'
shows "no paging on demand" 'on demand +no$'
shows "no dmabuf, and why" 'dmabuf +no: '
shows "that instructions are emulated" '^cpus .*; .* emulated$'
shows "verbs between hosts" '^this host - a host like it: verbs$'
shows "not within one" '^this host - this host: shm$'
output=$($info --json - | python3 -c '
import json, sys
r = json.load(sys.stdin)["rdma"]
print(r["usable"], [g["address"] for p in r["devices"][0]["ports"] for g in p["gids"] if g["chosen"]])')
shows "JSON" "^True \\['10.9.0.1'\\]$"
output=$(tools/sparring-run -n 2 -- $info --transport verbs)
shows "the ranks of a job" '^guest0 - guest0 \(1\): verbs$'

chosen=$($info | sed -n 's/^chosen  *//p')
output=$(SPARRING_LOG=info tools/sparring-run -n 2 -- tools/sparring-perf -b 4K -e 4K -n 1 --transport verbs 2>&1)
chosen=${chosen//(/\\(}
shows "a job uses what it shows" "verbs: ${chosen//)/\\)}"

doctor 0
shows "all is well" '^# 0 problems, 0 pieces of advice'
shows "no firewall" '^firewall +ok: '

doctor 1 $poor --poor nobody
shows "little memory to lock" '^memlock +problem: only 64 KiB'
shows "and to register" '^rdma-memory +problem: rxe0 registers no 2 MiB: no: Cannot allocate memory'

# Just enough for a job of two, and a little less: what the doctor says, and what a job does.
locked() {
    prlimit --memlock="$1" setpriv --bounding-set -ipc_lock "${@:2}"
}
two() {
    locked "$1" tools/sparring-run -n 2 -- tools/sparring-perf -b 4M -e 4M -n 1 -w 0 --transport verbs,epoll 2>&1
}
doctor 0 locked 3932160
shows "enough for slots, not for buckets" '^memlock +advice: only 3840 KiB .*are copied$'
output=$(two 3932160)
shows "and so it is" 'transport verbs,'
doctor 1 locked 3670016
shows "not enough for slots" '^memlock +problem: only 3584 KiB .*TCP is used instead$'
output=$(two 3670016)
shows "and so it is" 'transport epoll,'

chmod 600 /dev/infiniband/uverbs0
doctor 1 $poor --poor nobody
chmod 666 /dev/infiniband/uverbs0
shows "no rights" '^rdma-rights +problem: /dev/infiniband/uverbs0 of rxe0: Permission denied'
shows "and what to do" 'remedy: chmod 666 /dev/infiniband/uverbs0'

chmod 600 /dev/infiniband/rdma_cm
doctor 1 $poor --poor nobody
chmod 666 /dev/infiniband/rdma_cm
shows "no rights to rdma_cm" '^rdma-rights +advice: /dev/infiniband/rdma_cm, which .*=cm needs: Permission denied'
shows "and what to do" 'remedy: chmod 666 /dev/infiniband/rdma_cm'

doctor 1 env SPARRING_VERBS_GID=30
shows "a GID that is not there" '^rdma-port +problem: rxe0:1 has no GID that can be used'
doctor 1 env SPARRING_TRANSPORTS=verbs SPARRING_VERBS_DEVICES=mlx5_0
shows "a device that is not there" '^rdma-port +problem: .*mlx5_0'

ip link set eth0 mtu 1500
doctor 0
ip link set eth0 mtu 9000
shows "small packets are one piece of advice" '^# 0 problems, 1 piece of advice'
shows "small packets" '^rdma-mtu +advice: rxe0 port 1 sends packets of 1024 bytes'

output=$(unshare --net sh -c "ip link set lo up; $info")
shows "another network namespace has no device" '^not usable +the RDMA devices belong to another network namespace$'
output=$(SPARRING_LOG=warn tools/sparring-run -n 2 --emulate 1gbit -- $info 2>&1)
shows "nor has an emulated network" '^h0 - h1 \(1\): (uring|epoll)$'

ip link set eth0 down
doctor 1
ip link set eth0 up
shows "the port is down" '^rdma-port +problem: rxe0:1 is not active'

# shellcheck disable=SC2016 # for sh
doctor 1 unshare --mount sh -c 'mount -t tmpfs none /etc/libibverbs.d && exec "$@"' sh
shows "one problem" '^# 1 problem,'
shows "no driver of libibverbs" '^rdma +problem: libibverbs sees none of 1 device$'
shows "and where it comes from" 'remedy: apt-get install ibverbs-providers'

rdma link delete rxe0
doctor 0
shows "no device" '^rdma +does not apply: this host has no RDMA device'
doctor 1 env SPARRING_TRANSPORTS=verbs,epoll
shows "no device, but asked for" '^rdma +problem: this host has no RDMA device'
shows "how to get one" 'remedy: .*rdma link add rxe0 type rxe netdev eth0'
rdma link add rxe0 type rxe netdev eth0
for _ in 1 2 3 4 5 6 7 8 9 10; do
    grep -qx '0000:0000:0000:0000:0000:ffff:0a09:0001' /sys/class/infiniband/rxe0/ports/1/gids/* && break
    sleep 0.3
done
doctor 0
output=$($info) # what comes after this test needs it
shows "the device is back" '^rxe0 .*soft, on eth0'
exit $failed

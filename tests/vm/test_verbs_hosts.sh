#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Verbs between two hosts, which are guests: right results over a network that loses, doubles, corrupts and reorders
# packets, and names when the cable is pulled. Boots the guests itself.
set -uo pipefail
command -v qemu-system-x86_64 >/dev/null || exit 77
failed=0
here=$PWD

# job SECONDS OPTIONS-OF-SPARRING-VM... -- OPTIONS-OF-SPARRING-PERF...
job() {
    local seconds=$1 vm=()
    shift
    while [ "$1" != -- ]; do
        vm+=("$1")
        shift
    done
    shift
    tools/sparring-vm --guests 2 --smp 1 --mem 1500M --timeout "$seconds" "${vm[@]}" --outside -- \
        tools/sparring-run --hosts guest0:1,guest1:1 --rsh "$here/tools/sparring-vm exec" \
        -e SPARRING_LOG=warn,init=info -e SPARRING_TIME_FACTOR=5 -- "$here/tools/sparring-perf" allreduce "$@" 2>&1
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
    echo "ok: $text"
}

for network in 'loss 0.5% duplicate 1% corrupt 0.1%' 'delay 2ms reorder 99% gap 50'; do
    output=$(job 240 --mtu 1500 --netem "$network" -- -b 4K -e 256K -f 8 -n 4 -w 1 -c 1)
    check "right results with RoCE MTU 1024 and $network" 'verbs to 1 ranks' ' 262144 .* 0 0.00e' \
        'Out of bounds values : 0 OK'
done
output=$(job 240 --script 't=25 cut' -- -b 64K -e 64K -n 100000 -w 1 -c 0)
check "both name the other one when the cable is pulled" 'rank 1: rank 0 \(host guest0\) was lost' \
    'rank 0: rank 1 \(host guest1\) was lost'
exit $failed

#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# What a guest of sparring-vm has: an active soft-RoCE device that programs of others can use.
set -uo pipefail
failed=0

# check TEXT COMMAND...
check() {
    local text=$1 output
    shift
    if output=$("$@" 2>&1); then
        echo "ok: $text"
    else
        printf 'FAILED: %s\n%s\n' "$text" "$output"
        failed=1
    fi
}

port=/sys/class/infiniband/rxe0/ports/1
address_is_a_gid() { grep -qx '0000:0000:0000:0000:0000:ffff:0a09:0001' $port/gids/*; }
write_bandwidth() {
    local server
    timeout 100 ib_write_bw -d rxe0 -s 65536 -n 100 -F &
    server=$!
    # Until it listens.
    for _ in {1..20}; do
        sleep 1
        timeout 60 ib_write_bw -d rxe0 -s 65536 -n 100 -F 10.9.0.1 && wait "$server" && return
        kill -0 "$server" || return
    done
    return 1
}

check "the port is active" grep -q ACTIVE $port/state
check "RoCE v2 with the guest's address" address_is_a_gid
check "RoCE MTU 4096" sh -c 'ibv_devinfo -d rxe0 | grep -q "active_mtu:.*4096"'
check "memory can be locked without limit" sh -c '[ "$(ulimit -l)" = unlimited ]'
check "counters of not-ready receivers can be read" cat $port/hw_counters/send_rnr_err
check "ib_write_bw runs" write_bandwidth
check "no receiver was not ready" grep -qx 0 $port/hw_counters/send_rnr_err
exit $failed

#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# Tests of collectives and of failures where each link has several TCP connections (transport/lanes/lanes.h).
set -uo pipefail
here=${top_srcdir:-.}
built=${top_builddir:-.}
failed=0

# over TRANSPORT CONNECTIONS TEST...
over() {
    local transport=$1 connections=$2 test output start
    shift 2
    for test in "$@"; do
        start=$SECONDS
        output=$(SPARRING_TEST_TRANSPORTS=$transport SPARRING_SOCKETS=$connections \
            "$here/tests/run-test" "$built/tests/multi/test_$test" 2>&1)
        case $? in
            0) echo "ok: $test, $connections connections by $transport ($((SECONDS - start)) s)" ;;
            77) echo "skipped: $test: $output" ;;
            *)
                printf 'FAILED: %s, %s connections by %s\n%s\n' "$test" "$connections" "$transport" "$output"
                failed=1
                ;;
        esac
    done
}

# With one connection the matrix has more ranks.
export SPARRING_TEST_SCALE=${SPARRING_TEST_SCALE:-0.5}
over epoll 3 matrix shrink leaving grow faults_kill
over uring 2 matrix leaving
exit $failed

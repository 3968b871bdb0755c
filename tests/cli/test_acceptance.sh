#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# tools/acceptance: on two ranks here everything passes; where nothing works everything fails, and it says so.
# shellcheck source=tests/cli/tool.sh
. "$(dirname "$0")/tool.sh"
cd "$top_builddir" || exit 1
tool=("$top_srcdir/tools/acceptance")

run --help
expect_code 0
expect out 'tools/acceptance --hostfile hosts'

refused 2 'on which hosts'

run --elements 64K -n 2
expect_code 0
for stage in doctor 'sparse, all algorithms' 'codec powersgd:rank=4' '8 buckets' 'TCP alone' 'a rank is killed'; do
    expect out "^passed: $stage\$"
done
expect out '^acceptance: [0-9]+ passed, 0 failed, [0-9]+ skipped$'

run --elements 4K -n 1
expect_code 0
expect out '^skipped: a rank is killed: there is one rank$'

run -n 2 --env SPARRING_EAGER=much
expect_code 1
expect out 'SPARRING_EAGER'
expect out '^FAILED: dense, all algorithms$'
expect out '^FAILED: a rank is killed$'
expect out '^acceptance: 0 passed, [0-9]+ failed, 0 skipped$'

exit $failed

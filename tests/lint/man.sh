#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# mandoc's view of the manual pages.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"
lint_need mandoc mandoc

lint_files 'man/*.[1-9]' | xargs -r mandoc -T lint -W warning 2>&1 |
    sed -E 's/^mandoc: ([^:]+:[0-9]+):[0-9]+:/\1:/' >"$findings" || true
lint_end "$findings"

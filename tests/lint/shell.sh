#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Runs shellcheck on every shell script, found by its first line.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"
lint_need shellcheck shellcheck

lint_files '*' | grep -vE '\.(c|h|in|am|ac|m4|mk|md|py|map|png|svg|xz|json|csv|[1-9])$|^tests/fuzz/corpus/' |
    xargs -r awk 'FNR == 1 { if (/^#!.*[\/ ](ba)?sh( |$)|^# shellcheck shell/) print FILENAME; nextfile }' |
    xargs -r -n 8 -P "$(nproc)" shellcheck --severity=warning --format=gcc --external-sources --source-path=. \
        >"$findings" 2>&1 || true
lint_end "$findings"

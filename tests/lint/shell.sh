#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Runs shellcheck on every shell script, found by its first line.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"
lint_need shellcheck shellcheck

{
    lint_files '*' | grep -vE '\.(c|h|in|am|ac|m4|mk|md|py|map|png|svg|xz|json|csv|[1-9])$' | while read -r file; do
        head -n 1 "$file" | tr -d '\0' | grep -qE '^#!.*\b(ba)?sh\b|^# shellcheck shell' && printf '%s\n' "$file"
    done || true
} | xargs -r shellcheck --severity=warning --format=gcc --external-sources --source-path=. >"$findings" || true
lint_end "$findings"

#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Spelling of everything that people read. Words that codespell does not know go to spelling.ignore.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"
lint_need codespell codespell

lint_files '*' | grep -vE '\.(png|svg|xz|bin|csv|json)$|^tests/(golden|fuzz/corpus|fuzz/dict)/' |
    xargs codespell --disable-colors --ignore-words tests/lint/spelling.ignore >"$findings" 2>&1 || true
lint_end "$findings"

#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# libsparring.map lists exactly the functions and variables that include/sparring/*.h declare.
# `map.sh --print` prints the declared names.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"

# A declared function: an spr_ name at brace and parenthesis depth 0, followed by "(", outside of static inline ones.
declared() {
    for header in include/sparring/*.h; do
        ${CC:-cc} -E -P -I include -I "$builddir/include" "$header" | perl -0777 -ne '
            1 while s/\bstatic\s+inline\b[^{;]*(\{(?:[^{}]|(?1))*\})//;
            1 while s/\{[^{}]*\}//g;
            s/\b__attribute__\s*(\((?:[^()]|(?1))*\))//g;
            for (split /;/) {
                next if /^\s*typedef\b/;
                print "$1\n" if /\b(spr_\w+)\s*\(/;
                print "$1\n" if /\bextern\b[^()]*\b(spr_\w+)\s*(?:\[|$)/;
            }'
    done | sort -u
}
if [ "${1-}" = --print ]; then
    declared
    exit
fi
declared >"$findings.declared"
trap 'rm -f "$findings" "$findings".*' EXIT
grep -oE '^ +spr_[a-z0-9_]+' libsparring.map | tr -d ' ' | sort -u >"$findings.map"
comm -23 "$findings.declared" "$findings.map" | while read -r name; do
    where=$(grep -nw "$name" include/sparring/*.h | head -n 1 | cut -d: -f1,2)
    echo "${where:-include/sparring}: $name is declared but not in libsparring.map"
done >>"$findings"
comm -13 "$findings.declared" "$findings.map" | while read -r name; do
    echo "libsparring.map:$(grep -nw "$name" libsparring.map | cut -d: -f1): $name is not declared in include/sparring"
done >>"$findings"
lint_end "$findings"

#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Files up to 800 lines, lines up to 100 columns, functions up to 80 lines (60 is the aim).
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"

lint_files '*.c' '*.h' '*.h.in' '*.py' '*.sh' tools/setup tools/check tools/demo tools/acceptance \
    .ci/run bench/compare bench/mpi-shell |
    xargs perl -CSD -ne '
    chomp;
    (my $wide = $_) =~ s/\t/    /g;
    my $limit = $ARGV =~ /\.(?:c|h|in|py)$/ ? 100 : 120;
    print "$ARGV:$.: line of " . length($wide) . " columns (at most $limit)\n" if length($wide) > $limit;
    if (eof) {
        print "$ARGV:$.: file of $. lines (at most 800)\n" if $. > 800;
        close ARGV;
    }' >"$findings"

# A function: a block at brace depth 0 that follows a closing parenthesis.
lint_files '*.c' '*.h' | xargs perl -0777 -ne '
    s{(/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\x27(?:\\.|[^\x27\\\n])*\x27)}{ (my $t = $1) =~ s/[^\n]/ /g; $t }gse;
    s/^[ \t]*#(?:[^\n]*\\\n)*[^\n]*/my $t = $&; $t =~ s{[^\n]}{ }g; $t/gme;
    s/extern\s+"[^"]*"\s*\{/;/g;
    my ($depth, $line, $start, $name, $before) = (0, 1, 0, "", "");
    while (/([{}\n;])|([^{}\n;]+)/g) {
        if (defined $2) {
            $before .= $2 if $depth == 0;
        } elsif ($1 eq "\n") {
            $line++;
            $before .= " " if $depth == 0;
        } elsif ($1 eq ";") {
            $before = "" if $depth == 0;
        } elsif ($1 eq "{") {
            if ($depth++ == 0) {
                ($name) = $before =~ /\)\s*$/ ? $before =~ /(\w+)\s*\(/ : ();
                $start = $line;
            }
        } elsif (--$depth == 0) {
            my $lines = $line - $start - 1;
            print "$ARGV:$start: function $name of $lines lines (at most 80, aim at 60)\n" if $name && $lines > 80;
            $before = "";
        }
    }' >>"$findings"
lint_end "$findings"

#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Functions that are not used here: unbounded copies, parsers without error, a shell, the stack as a heap; in the
# library, also anything that sleeps.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"

lint_files '*.c' '*.h' | xargs perl -0777 -ne '
    # Comments and literals become blanks, line ends stay.
    s{(/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\x27(?:\\.|[^\x27\\\n])*\x27)}{ (my $t = $1) =~ s/[^\n]/ /g; $t }gse;
    my %instead = (
        sprintf => "snprintf", vsprintf => "vsnprintf", strcpy => "snprintf or memcpy", strcat => "snprintf",
        stpcpy => "memcpy", strncpy => "snprintf or memcpy", strncat => "snprintf", gets => "getline",
        atoi => "strtol or base/opt.h", atol => "strtol or base/opt.h", atoll => "strtoll or base/opt.h",
        atof => "strtod or base/opt.h", strtok => "strtok_r or strcspn", system => "posix_spawn",
        popen => "posix_spawn", alloca => "an arena or an array of fixed size", tmpnam => "mkstemp",
        mktemp => "mkstemp",
    );
    my $library = $ARGV =~ m,^(?:base|compress|transport|collectives)/,;
    my %sleeps = map { $_ => 1 } qw(sleep usleep nanosleep clock_nanosleep thrd_sleep);
    my $line = 0;
    for (split /\n/) {
        $line++;
        while (/(?<![\w.>])(\w+)\s*\(/g) {
            print "$ARGV:$line: $1: use $instead{$1}\n" if $instead{$1};
            print "$ARGV:$line: $1: the library never sleeps\n" if $library && $sleeps{$1};
        }
        print "$ARGV:$line: _GNU_SOURCE is set by the build\n" if /^\s*#\s*define\s+_(?:GNU|DEFAULT)_SOURCE/;
    }' >"$findings"
lint_end "$findings"

#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Includes run one way: include -> base -> {compress, transport} -> collectives -> tools. A project include names its
# folder ("base/log.h"), a public header is <sparring/...>.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"

lint_files '*.c' '*.h' '*.h.in' | xargs perl -ne '
    BEGIN {
        our %sees = (
            include     => "",
            base        => "base",
            compress    => "base compress",
            transport   => "base transport",
            collectives => "base compress transport collectives",
            tools       => "base compress transport collectives tools",
            examples    => "examples",
            bench       => "base compress transport collectives tools bench",
            python      => "",
            tests       => "base compress transport collectives tools examples tests",
        );
    }
    if (my ($open, $path) = /^\s*#\s*include\s*([<"])([^>"]+)/) {
        my ($folder) = $ARGV =~ m,^([^/]+)/,;
        my %sees_here = map { $_ => 1 } split / /, $sees{$folder} // "";
        my ($target) = $path =~ m,^([^/]+)/,;
        my $text;
        if ($open eq "<") {
            $text = "<$path> is a header of this project: use \"...\"" if -e $path;
        } elsif ($path =~ m,^sparring/,) {
            $text = "\"$path\": public headers are included as <$path>";
        } elsif ($path eq "config.h") {
            $text = "config.h is included by the build" if $ARGV ne "base/prefix.h";
        } elsif (!defined $target || !exists $sees{$target}) {
            $text = "\"$path\": name the folder, as in \"$folder/$path\"" if $folder ne "examples";
        } elsif (!$sees_here{$target}) {
            $text = "$folder/ must not include from $target/ ($path)";
        } elsif ($path =~ m,^transport/sim/, && $ARGV !~ m,^(transport/sim|tests|tools)/,) {
            $text = "the simulated transport is not part of the library ($path)";
        }
        print "$ARGV:$.: $text\n" if $text;
    }
    close ARGV if eof;' >"$findings"
lint_end "$findings"

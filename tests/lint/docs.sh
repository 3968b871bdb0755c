#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# What the documentation names exists, and what users may name is documented: options, functions, statuses, variables,
# options of the programs (where they are built), files, links; README.md leads to all pages.
# shellcheck source=tests/lint/lib.sh
. "$(dirname "$0")/lib.sh"

set +e +o pipefail # a grep may find nothing

# missing FILE TEXT < names: one finding per name.
missing() {
    while read -r name; do
        echo "$1: $name $2"
    done
}
# both FILE-A FILE-B: compares "$findings.a", the names that A has, with "$findings.b", those of B.
both() {
    sort -u -o "$findings.a" "$findings.a"
    sort -u -o "$findings.b" "$findings.b"
    comm -23 "$findings.a" "$findings.b" | missing "$2" "is missing, it is in $1"
    comm -13 "$findings.a" "$findings.b" | missing "$2" "is not in $1"
}

options() {
    # NAME and, of an enumeration, its values; in a page "Cm no Ns | Ns Cm yes".
    perl -0777 -ne '
        my %values;
        $values{$1} = $2 while /(\w+_choices)\[\] = \{([^}]*), NULL\}/g;
        s/.*spr_options_table\[\] = \{//s;
        while (/\{"([a-z_]+)",.*?SPR_OPT_(\w+),\s*FIELD\(\w+\),\s*(\w+)/gs) {
            my ($name, $type, $choices) = (uc $1, $2, $3);
            my $list = $type eq "BOOL" ? "yes no" : $values{$choices} // "";
            $list =~ tr/", / /s;
            print join(" ", $name, sort split " ", $list), "\n";
        }' transport/options.c >"$findings.a"
    perl -ne 'if (/^\.It Cm ([A-Z_]+) Ns = Ns (.*)/) {
            my ($name, $form) = ($1, $2);
            my @values = $form =~ /Ar/ ? () : grep { !/^(Cm|Ns|\|)$/ } split " ", $form;
            print join(" ", $name, sort @values), "\n" }' man/sparring.conf.5 >"$findings.b"
    both transport/options.c man/sparring.conf.5
    # The table of README.md: name, default, text.
    perl -0777 -ne '
        s/.*spr_options_table\[\] = \{//s;
        while (/\{"([a-z_]+)",\s*(?:[A-Z_]+\s*)?"([^"]*)",\s*"([^"]*)",\s*SPR_OPT_(\w+)/g) {
            my ($name, $value, $text, $type) = (uc $1, $2, $3, $4);
            $value =~ s,^.*/,,;
            $value .= "s" if $type eq "TIME" && $value =~ /^\d+$/;
            print "$name | $value | $text\n";
        }' transport/options.c >"$findings.a"
    sed -nE 's/^\| `SPARRING_([A-Z_]+)` \| `?([^`|]*[^`| ])?`? +\| (.*) \|$/\1 | \2 | \3/p' README.md >"$findings.b"
    both transport/options.c README.md
    # Advice on each, in the rows of docs/tuning.md.
    sed -i 's/ .*//' "$findings.a"
    sed -nE 's/^\| (`SPARRING_[^|]*)\|.*/\1/p' docs/tuning.md | grep -oE 'SPARRING_[A-Z_]+' | sed 's/SPARRING_//' \
        >"$findings.b"
    both transport/options.c docs/tuning.md
}

# README.md leads to every page.
pages() {
    local page
    for page in SECURITY.md docs/*.md; do
        grep -qF "]($page)" README.md || echo "README.md: no link to $page"
    done
}

functions() {
    grep -oE '^ +spr_[a-z0-9_]+' libsparring.map | tr -d ' ' >"$findings.a"
    for page in man/*.3; do
        sed -n '/^\.Sh NAME/,/^\.Nd/s/^\.Nm \([a-z_]*\).*/\1/p' "$page"
    done >"$findings.b"
    both libsparring.map 'man/*.3'
}

statuses() {
    sed -nE 's/^ +(SPR_[A-Z_]+) = (-?[0-9]+).*/\1 \2/p' include/sparring/status.h >"$findings.a"
    sed -nE '/^\.It Dv SPR_/{N; s/^\.It Dv (SPR_[A-Z_]+)\n\\?(-?[0-9]+).*/\1 \2/p}' man/spr_status_string.3 \
        >"$findings.b"
    both include/sparring/status.h man/spr_status_string.3
}

# Of programs that are built and have a page.
program_options() {
    local page program
    for page in man/sparring-*.1; do
        program=$builddir/tools/$(basename "$page" .1)
        [ -x "$program" ] || continue
        "$program" --help | grep -E '^(Usage:)? +' | grep -oE -- '(^| |\[)--[a-z-]+' |
            grep -oE -- '--.*' >"$findings.a"
        # .It Fl -name; .It Fl n , -name; .Fl -help | -version
        grep -oE '(Fl|[,|]) -[a-z-]+' "$page" | sed 's/.* -/--/' >"$findings.b"
        both "$program --help" "$page"
    done
}

# Variables that a page names are known to the library, or of sparring-vm; those that it knows are in some page.
variables() {
    local pages=(README.md SECURITY.md docs/*.md man/*.[1-9])
    { sed -n '/reserved\[\] = {/,/};/p' base/opt_load.c | grep -oE '"[A-Z_]+"' | tr -d '"'
        sed -nE 's/^ +\{"([a-z_]+)".*/\1/p' transport/options.c | tr "[:lower:]" "[:upper:]"; } | sort -u >"$findings.a"
    grep -noE 'SPARRING_[A-Z_]+[A-Z]' "${pages[@]}" | while IFS=: read -r file line name; do
        case $name in
            SPARRING_VM_*) ;;
            *)
                grep -qx "${name#SPARRING_}" "$findings.a" ||
                    echo "$file:$line: $name is not known to base/opt_load.c"
                ;;
        esac
    done
    while read -r name; do
        grep -qwE "SPARRING_$name|Cm $name" "${pages[@]}" || echo "base/opt_load.c:1: no page names SPARRING_$name"
    done <"$findings.a"
}

# Links lead somewhere, and paths of the source tree exist; a program may not be built yet.
paths() {
    local file line target word section
    local folders='^(base|bench|collectives|compress|docs|examples|include|man|tests|tools|transport)/'
    lint_files '*.md' | while read -r file; do
        grep -noE '\]\([^)#]+' "$file" | sed 's/](//' | while IFS=: read -r line target; do
            case $target in http*) continue ;; esac
            [ -e "$(dirname "$file")/$target" ] || echo "$file:$line: the link to $target leads nowhere"
        done
        grep -noE '`[^`]+`' "$file" | tr -d '`' | while IFS=: read -r line target; do
            for word in $target; do
                word=${word%%[:,\)]*}
                [[ $word =~ $folders ]] || continue
                [ -e "$word" ] || [ -e "$word.c" ] || grep -qwF "$word" ./*/local.mk ||
                    { [[ $word = *[*?[]* ]] && compgen -G "$word" >/dev/null; } ||
                    echo "$file:$line: there is no $word"
            done
        done
    done
    # Cross-references between our own pages.
    grep -nE '^\.Xr (spr_|sparring)' man/*.[1-9] | sed -E 's/^([^:]+:[0-9]+):\.Xr ([^ ]+) ([1-9]).*/\1 \2 \3/' |
        while read -r file word section; do
            [ -e "man/$word.$section" ] || grep -qE "^\.Nm $word( |\$)" man/*."$section" ||
                echo "$file: there is no page $word($section)"
        done
}

trap 'rm -f "$findings" "$findings".*' EXIT
{ options; functions; statuses; program_options; variables; paths; pages; } >"$findings"
lint_end "$findings"

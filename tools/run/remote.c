/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A remote rank: the remote shell command runs `sh -s`, and all else comes over its standard input,
 * as one compound command. So nothing depends on how the command quotes (ssh joins its words with
 * blanks, others run them as they are), and neither the secret nor the program's environment is
 * ever on a command line. The input then stays open: the name of a signal on a line is sent to the
 * rank's session, and its end, be it because sparring-run or the remote shell died, kills that
 * session.
 */
#include "tools/run/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/run/parse.h"
#include "tools/run/recorder.h"

extern char **environ;

static void write_quoted(FILE *stream, const char *text)
{
    fputc('\'', stream);
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            fputs("'\\''", stream);
        else
            fputc(*text, stream);
    }
    fputc('\'', stream);
}

static void write_export(FILE *stream, const char *entry)
{
    int length = (int)strcspn(entry, "=");
    fprintf(stream, "export %.*s=", length, entry);
    write_quoted(stream, entry + length + 1);
    fputc('\n', stream);
}

/* Settings of this shell for the library travel along; its idea of a secret does not. */
static void write_own_settings(FILE *stream)
{
    for (char **entry = environ; *entry != NULL; entry++) {
        size_t length = strcspn(*entry, "=");
        bool wanted = strncmp(*entry, "SPARRING_", 9) == 0 &&
                      strncmp(*entry, "SPARRING_SECRET", 15) != 0 && (*entry)[length] == '=' &&
                      is_variable_name(*entry, length);
        if (wanted)
            write_export(stream, *entry);
    }
}

static void write_secret(FILE *stream, const unsigned char secret[SECRET_BYTES])
{
    fputs("printf '", stream);
    for (int i = 0; i < SECRET_BYTES; i++)
        fprintf(stream, "\\%03o", (unsigned)secret[i]);
    fputs("' | {\n", stream);
}

bool remote_script(const struct job *job, const struct rank *rank, char **text, size_t *length)
{
    struct identity identity;
    rank_identity(job, rank, &identity);
    FILE *stream = open_memstream(text, length);
    if (stream == NULL)
        return false;
    fputs("{\nexec 9<&0 </dev/null\n", stream);
    char *directory = getcwd(NULL, 0);
    if (directory != NULL) {
        fputs("cd ", stream);
        write_quoted(stream, directory);
        fputs(" 2>/dev/null\n", stream);
        free(directory);
    }
    write_own_settings(stream);
    fputs("unset SPARRING_TRACE_DIR SPARRING_JOIN\n", stream);
    if (recorder_directory() != NULL) {
        fputs("export SPARRING_TRACE_DIR=", stream);
        write_quoted(stream, recorder_directory());
        fputc('\n', stream);
    }
    for (size_t i = 0; i < job->options->environment_count; i++)
        write_export(stream, job->options->environment[i]);
    for (int i = 0; i < IDENTITY_COUNT; i++)
        if (*identity.entries[i] != '\0')
            write_export(stream, identity.entries[i]);
    fputs("unset SPARRING_SECRET_FILE\nexport SPARRING_SECRET_FD=3\n", stream);
    write_secret(stream, job->secret);
    fputs("exec 3<&0 </dev/null\ns=; command -v setsid >/dev/null 2>&1 && s=setsid\n", stream);
    /* A shell starts what is in the background with these two ignored, and cannot undo it. */
    fputs("if env --default-signal=INT,QUIT true 2>/dev/null\n"
          "then run_rank() { exec $s env --default-signal=INT,QUIT sh -c 'exec \"$@\"' sh "
          "\"$@\"; }\n"
          "elif command -v perl >/dev/null 2>&1\n"
          "then run_rank() { exec $s perl -e '$SIG{INT}=$SIG{QUIT}=\"DEFAULT\";exec{$ARGV[0]}@ARGV "
          "or "
          "do{print STDERR\"$ARGV[0]: $!\\n\";exit 127}' -- \"$@\"; }\n"
          "else run_rank() { exec $s \"$@\"; }\n"
          "fi\nrun_rank",
          stream);
    for (char **word = job->options->program; *word != NULL; word++) {
        fputc(' ', stream);
        write_quoted(stream, *word);
    }
    fputs(" 9<&- &\n"
          "p=$!\n"
          "exec 3<&-\n"
          "(\n"
          "while read -r s; do kill -s \"$s\" -- \"-$p\" || kill -s \"$s\" \"$p\"; done\n"
          "kill -s KILL -- \"-$p\" || kill -s KILL \"$p\"\n"
          ") <&9 >/dev/null 2>&1 &\n"
          "w=$!\n"
          "exec 2>/dev/null\n" /* this shell's remarks on how its children ended */
          "wait \"$p\"\n"
          "c=$?\n"
          "kill \"$w\"\n"
          "kill -s KILL -- \"-$p\"\n"
          "exit \"$c\"\n"
          "}\n"
          "exit \"$?\"\n"
          "}\n",
          stream);
    return fclose(stream) == 0;
}

const char *remote_shell(const struct options *options)
{
    const char *shell = options->remote_shell;

    if (shell == NULL)
        shell = getenv("SPARRING_RSH");
    /* Ranks cannot ask at the terminal: fail instead of waiting. */
    return shell != NULL && shell[strspn(shell, " \t")] != '\0' ? shell : "ssh -o BatchMode=yes";
}

char **remote_command(const struct job *job, const struct rank *rank)
{
    const char *shell = remote_shell(job->options);
    size_t length = strlen(shell) + 1;
    char **words = calloc(length / 2 + 5, sizeof *words);
    char *copy = strdup(shell);
    if (words == NULL || copy == NULL) {
        free(words);
        free(copy);
        return NULL;
    }
    size_t count = 0;
    char *rest = copy;
    for (char *word; (word = strtok_r(rest, " \t", &rest)) != NULL;)
        words[count++] = word;
    words[count++] = job->options->machines[rank->host].name;
    words[count++] = "sh";
    words[count] = "-s";
    return words;
}

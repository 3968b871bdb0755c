/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-info: what Sparring finds on this host, and what it would use.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/command_line.h"
#include "tools/first_rank.h"
#include "tools/info/doctor.h"
#include "tools/streams.h"

struct options {
    const char *json, *transports;
    bool doctor;
};

static const char *take_doctor(struct options *o, const char *value)
{
    (void)value;
    o->doctor = true;
    return NULL;
}

static const char *take_transports(struct options *o, const char *value)
{
    o->transports = value;
    return NULL;
}

static const char *take_json(struct options *o, const char *value)
{
    o->json = value;
    return *value ? NULL : "a file, or - for standard output";
}

static const struct option_row rows[] = {
    {"doctor", 0, NULL, take_doctor, "check what commonly goes wrong, with remedies"},
    {"transport", 0, "LIST", take_transports,
     "auto, or those that a job is to use [SPARRING_TRANSPORTS]"},
    {"json", 0, "FILE", take_json, "also write JSON; - = standard output, and nothing else"},
    {"help", 'h', NULL, NULL, "print this text"},
    {"version", 'V', NULL, NULL, "print the version"},
};

static void print_help(void)
{
    puts("Usage: sparring-info [OPTIONS]\n"
         "Shows what Sparring finds on this host: RDMA devices, network interfaces, io_uring,\n"
         "limits, NUMA nodes; and which transport would link which ranks, and why. Started as the\n"
         "ranks of a job, by sparring-run or another launcher, it compares their hosts.\n");
    option_rows_print(rows, SPR_ARRAY_LEN(rows), 21);
    puts("\n"
         "The exit code is 0, 1 when the doctor found a problem or ranks do not come, 2 for wrong\n"
         "usage.");
}

static enum options_next complete(struct options *o, uint64_t used, int count, char **words)
{
    (void)o;
    (void)used;
    return count == 0 ? OPTIONS_RUN : options_wrong("it takes no arguments: %s", words[0]);
}

static bool is_silent(void) { return !first_rank(); }

const struct tool tool = {.name = "sparring-info",
                          .rows = rows,
                          .row_count = SPR_ARRAY_LEN(rows),
                          .print_help = print_help,
                          .complete = complete,
                          .is_silent = is_silent};

static bool print(const struct report *r, const struct options *o, int *problems)
{
    bool quiet = o->json && !strcmp(o->json, "-");
    FILE *nowhere = quiet ? fopen("/dev/null", "we") : NULL;
    FILE *out = quiet ? nowhere : stdout;
    bool done = !o->json || json_report(r, o->json);

    if (o->doctor && out)
        *problems = text_doctor(r, out);
    else if (out)
        text_report(r, out);
    if (nowhere)
        fclose(nowhere);
    return done && streams_close(tool.name, 0) == 0;
}

static bool look(struct info_job *job, const struct options *o, struct report *r)
{
    const struct spr_options *options = job_options(job);
    const struct spr_tcp_interface *interface = NULL;
    struct findings findings;

    probe_system(&r->system);
    probe_network(options, job_loopback_only(job), &r->network);
    for (int i = 0; i < r->network.interface_count; i++)
        if (r->network.interfaces[i].chosen)
            interface = &r->network.interfaces[i].at;
    probe_uring(options, &r->uring);
    probe_rdma(options, interface, &r->rdma);
    probe_places(r);
    if (!job_choose(job, r))
        return false;
    if (!o->doctor)
        return true;
    doctor_examine(r, options, &findings);
    if (!job_gather(job, &findings, r))
        return false;
    doctor_compare(r);
    return true;
}

void report_free(struct report *r)
{
    free(r->choice.pairs);
    free(r->doctor);
    free(r);
}

int main(int argc, char **argv)
{
    struct options o = {0};
    struct info_job *job = NULL;
    struct report *r;
    int code, problems = 0;
    bool done;

    streams_open();
    if (options_end(command_line_parse(&o, argc, argv), &code))
        return code;
    /* What it says is in the report. */
    setenv("SPARRING_LOG", "error", 0);
    r = calloc(1, sizeof *r);
    code = r ? job_open(&job, o.transports) : 1;
    if (code) {
        free(r);
        return code;
    }
    done = look(job, &o, r);
    if (done && job_first(job))
        done = print(r, &o, &problems);
    job_close(job);
    report_free(r);
    return done && problems == 0 ? 0 : 1;
}

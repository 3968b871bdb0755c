/* SPDX-License-Identifier: BSD-2-Clause
 *
 * sparring-info: what Sparring finds on this host, and what it would use.
 */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "tools/info/doctor.h"
#include "tools/streams.h"

struct options {
    const char *json, *transports;
    bool doctor;
};

static void print_help(void)
{
    puts("Usage: sparring-info [OPTIONS]\n"
         "Shows what Sparring finds on this host: RDMA devices, network interfaces, io_uring,\n"
         "limits, NUMA nodes; and which transport would link which ranks, and why. Started as the\n"
         "ranks of a job, by sparring-run or another launcher, it compares their hosts.\n\n"
         "      --doctor          check what commonly goes wrong, with remedies\n"
         "      --transport LIST  auto, or those that a job is to use [SPARRING_TRANSPORTS]\n"
         "      --json FILE       also write JSON; - = standard output, and nothing else\n"
         "  -h, --help            print this text\n"
         "  -V, --version         print the version\n\n"
         "The exit code is 0, 1 when the doctor found a problem or ranks do not come, 2 for wrong\n"
         "usage.");
}

static int wrong(const char *text, const char *detail)
{
    fprintf(stderr, "sparring-info: %s%s (see --help)\n", text, detail);
    return 2;
}

/* -1: go on. */
static int parse(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {
        {"doctor", no_argument, NULL, 'd'},     {"transport", required_argument, NULL, 't'},
        {"json", required_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},    {0}};
    int code;

    opterr = 0;
    while ((code = getopt_long(argc, argv, ":hV", longs, NULL)) != -1) {
        switch (code) {
        case 'h':
            print_help();
            return 0;
        case 'V':
            printf("sparring-info (Sparring) %s\n", PACKAGE_VERSION);
            return 0;
        case 'd':
            o->doctor = true;
            break;
        case 't':
            o->transports = optarg;
            break;
        case 'j':
            o->json = optarg;
            break;
        case ':':
            return wrong("a value is missing after ", argv[optind - 1]);
        default:
            return wrong("unknown option ", argv[optind - 1]);
        }
    }
    if (optind < argc)
        return wrong("it takes no arguments: ", argv[optind]);
    if (o->json && !o->json[0])
        return wrong("--json wants a file, or - for standard output", "");
    return -1;
}

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
    return done && streams_close("sparring-info", 0) == 0;
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
    code = parse(argc, argv, &o);
    if (code >= 0)
        return streams_close("sparring-info", code);
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

/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cpu.h"
#include "tools/info/report.h"

#define CAP_IPC_LOCK_BIT 14

static struct info_limit limit_of(__rlimit_resource_t which)
{
    struct rlimit l = {RLIM_INFINITY, RLIM_INFINITY};

    (void)getrlimit(which, &l);
    return (struct info_limit){l.rlim_cur == RLIM_INFINITY ? INFO_NONE : l.rlim_cur,
                               l.rlim_max == RLIM_INFINITY ? INFO_NONE : l.rlim_max};
}

static bool has_ipc_lock(void)
{
    char line[128];
    unsigned long long capabilities = 0;
    FILE *file = fopen("/proc/self/status", "re");

    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "CapEff:", 7))
            capabilities = strtoull(line + 7, NULL, 16);
    if (file)
        fclose(file);
    return capabilities >> CAP_IPC_LOCK_BIT & 1;
}

static void probe_cpus(struct info_system *s)
{
    static const struct {
        uint32_t bit;
        const char *name;
    } names[] = {{SPR_CPU_SSE42, "sse4.2"},     {SPR_CPU_PCLMUL, "pclmul"},
                 {SPR_CPU_AVX2, "avx2"},        {SPR_CPU_AVX512, "avx512"},
                 {SPR_CPU_NEON, "neon"},        {SPR_CPU_CRC32, "crc32"},
                 {SPR_CPU_EMULATED, "emulated"}};
    uint32_t has = spr_cpu_features();

    s->cpus_online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    s->cpus_usable = spr_cpu_usable();
    s->cpu_quota = spr_cpu_quota("");
    for (size_t i = 0; i < SPR_ARRAY_LEN(names); i++)
        if (has & names[i].bit)
            snprintf(s->simd + strlen(s->simd), sizeof s->simd - strlen(s->simd), "%s%s",
                     s->simd[0] ? " " : "", names[i].name);
}

static void probe_huge_pages(struct info_system *s)
{
    static const uint64_t sizes_kb[] = {64, 2048, 32768, 524288, 1048576, 16777216};
    char line[128], *open, *close;

    for (size_t i = 0; i < SPR_ARRAY_LEN(sizes_kb); i++) {
        static const char folder[] = "/sys/kernel/mm/hugepages/hugepages-%llukB/%s";
        unsigned long long kb = sizes_kb[i];
        uint64_t total = file_number(folder, kb, "nr_hugepages");
        if (total != INFO_NONE)
            s->pools[s->pool_count++] =
                (struct info_pool){kb << 10, total, file_number(folder, kb, "free_hugepages")};
    }
    /* "always [madvise] never" */
    file_line(line, sizeof line, "/sys/kernel/mm/transparent_hugepage/enabled");
    open = strchr(line, '[');
    close = open ? strchr(open, ']') : NULL;
    if (close)
        snprintf(s->transparent, sizeof s->transparent, "%.*s", (int)(close - open - 1), open + 1);
}

/* As the shared-memory transport makes its memory: /dev/shm is not involved. */
static void probe_memfd(struct info_system *s)
{
    int fd = memfd_create("sparring-info", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || ftruncate(fd, 1 << 20))
        snprintf(s->memfd_why_not, sizeof s->memfd_why_not, "memfd_create: %s", strerror(errno));
    if (fd >= 0)
        close(fd);
}

static void probe_memory(struct info_system *s)
{
    struct statvfs fs;
    bool there = statvfs("/dev/shm", &fs) == 0;
    long pages = sysconf(_SC_PHYS_PAGES);

    s->memory_bytes = pages > 0 ? (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) : INFO_NONE;
    s->shm_bytes = there ? (uint64_t)fs.f_blocks * fs.f_frsize : INFO_NONE;
    s->shm_free_bytes = there ? (uint64_t)fs.f_bavail * fs.f_frsize : INFO_NONE;
    s->shm_writable = there && access("/dev/shm", W_OK) == 0;
    probe_huge_pages(s);
    probe_memfd(s);
}

/* A module that is built in and has no parameters has no folder: then what it makes is looked for.
 */
static void probe_modules(struct info_system *s)
{
    static const struct {
        const char *name, *purpose, *trace;
    } known[] = {
        {"ib_uverbs", "RDMA from user space", "/sys/class/infiniband_verbs"},
        {"rdma_ucm", "connections by librdmacm", "/dev/infiniband/rdma_cm"},
        {"rdma_rxe", "soft-RoCE over any network card", NULL},
        {"siw", "soft-iWARP", NULL},
        {"mlx5_ib", "NVIDIA ConnectX-4 and later", NULL},
        {"mlx4_ib", "NVIDIA ConnectX-3", NULL},
        {"irdma", "Intel E810", NULL},
        {"bnxt_re", "Broadcom NetXtreme-E", NULL},
        {"hns_roce_hw_v2", "HiSilicon", NULL},
        {"efa", "Amazon EFA", NULL},
        {"ib_ipoib", "IP over InfiniBand", NULL},
        {"nvidia_peermem", "registration of NVIDIA GPU memory", NULL},
        {"nf_tables", "packet filter", NULL},
        {"ip_tables", "packet filter", NULL},
    };

    for (size_t i = 0; i < SPR_ARRAY_LEN(known); i++)
        s->modules[s->module_count++] =
            (struct info_module){known[i].name, known[i].purpose,
                                 file_there("/sys/module/%s", known[i].name) ||
                                         (known[i].trace && file_there("%s", known[i].trace))
                                     ? MODULE_THERE
                                     : MODULE_MISSING};
}

void probe_system(struct info_system *s)
{
    struct utsname name;

    *s = (struct info_system){0};
    gethostname(s->host, sizeof s->host - 1);
    if (uname(&name) == 0) {
        snprintf(s->kernel, sizeof s->kernel, "%.20s %.100s", name.sysname, name.release);
        snprintf(s->machine, sizeof s->machine, "%s", name.machine);
    }
    s->memlock = limit_of(RLIMIT_MEMLOCK);
    s->files = limit_of(RLIMIT_NOFILE);
    s->ipc_lock = has_ipc_lock();
    probe_cpus(s);
    probe_memory(s);
    probe_modules(s);
}

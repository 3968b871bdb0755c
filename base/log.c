/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 2048
#define DEFAULT_LEVEL SPR_LOG_WARN
#define LEVEL_OFF (-1)

int spr_log_levels[SPR_SUB_COUNT] = {
    [SPR_SUB_INIT] = SPR_LOG_TRACE, [SPR_SUB_NET] = SPR_LOG_TRACE,
    [SPR_SUB_SHM] = SPR_LOG_TRACE,  [SPR_SUB_MEM] = SPR_LOG_TRACE,
    [SPR_SUB_COLL] = SPR_LOG_TRACE, [SPR_SUB_CODEC] = SPR_LOG_TRACE,
    [SPR_SUB_SIM] = SPR_LOG_TRACE,  [SPR_SUB_WATCH] = SPR_LOG_TRACE,
};

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};
static const char *const level_tags[] = {"ERROR", "WARN", "INFO", "DEBUG", "TRACE"};
static const char *const sub_names[SPR_SUB_COUNT] = {
    [SPR_SUB_INIT] = "init", [SPR_SUB_NET] = "net",     [SPR_SUB_SHM] = "shm",
    [SPR_SUB_MEM] = "mem",   [SPR_SUB_COLL] = "coll",   [SPR_SUB_CODEC] = "codec",
    [SPR_SUB_SIM] = "sim",   [SPR_SUB_WATCH] = "watch",
};

static pthread_once_t environment_once = PTHREAD_ONCE_INIT;
static atomic_int log_rank = -1;
static char host[64];

/* Where lines go. `lock` guards the struct; it is never held during the write itself. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    void (*sink)(void *ctx, enum spr_log_level, const char *line);
    void *ctx;
    char pattern[1024]; /* SPARRING_LOG_FILE; "" = standard error */
    int fd;             /* of the file; -1 = not open yet */
    int rank;           /* that the file was opened for */
    pid_t pid;
} out = {.fd = -1};

static void lock_out(void) { pthread_mutex_lock(&lock); }

static void unlock_out(void) { pthread_mutex_unlock(&lock); }

/* %h, %p and %r of the pattern; anything else stays as it is. False when it does not fit. */
static bool expand(const char *pattern, int rank, char *path, size_t bytes)
{
    size_t used = 0;

    for (const char *s = pattern; *s; s++) {
        int n;

        if (s[0] == '%' && s[1] == 'h')
            n = snprintf(path + used, bytes - used, "%s", host);
        else if (s[0] == '%' && s[1] == 'p')
            n = snprintf(path + used, bytes - used, "%ld", (long)getpid());
        else if (s[0] == '%' && s[1] == 'r')
            n = snprintf(path + used, bytes - used, "%d", rank);
        else
            n = snprintf(path + used, bytes - used, "%c", *s);
        if (n < 0 || (size_t)n >= bytes - used)
            return false;
        used += (size_t)n;
        if (s[0] == '%' && s[1] && strchr("hpr", s[1]))
            s++;
    }
    return true;
}

static void write_all(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, text, bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* nowhere to complain */
        text += n;
        bytes -= (size_t)n;
    }
}

/* Open the file for this process and rank. Under the lock. False: gave up on the file for good. */
static bool open_file(int rank)
{
    char path[1024], text[1200];
    int fd = -1, n;

    if (expand(out.pattern, rank, path, sizeof(path)))
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    else
        errno = ENAMETOOLONG;
    if (fd < 0) {
        n = snprintf(text, sizeof(text), "sparring: cannot write SPARRING_LOG_FILE='%s': %m\n",
                     out.pattern);
        write_all(STDERR_FILENO, text, (size_t)n);
        out.pattern[0] = '\0';
        return false;
    }
    if (out.fd >= 0) {
        /* Replaced in one step: another thread may be about to write to the old number. */
        dup3(fd, out.fd, O_CLOEXEC);
        close(fd);
    } else {
        out.fd = fd;
    }
    out.rank = rank;
    out.pid = getpid();
    return true;
}

/* The descriptor for a line of now. Under the lock. */
static int output_fd(void)
{
    int rank = atomic_load(&log_rank);
    bool by_rank, by_pid;

    if (out.pattern[0] == '\0')
        return STDERR_FILENO;
    by_rank = strstr(out.pattern, "%r") != NULL;
    by_pid = strstr(out.pattern, "%p") != NULL;
    if (by_rank && rank < 0)
        return STDERR_FILENO;
    if (out.fd < 0 || (by_rank && out.rank != rank) || (by_pid && out.pid != getpid()))
        if (!open_file(rank))
            return STDERR_FILENO;
    return out.fd;
}

/* Cut a line that is too long visibly and keep it one line. Returns its length without newline. */
static size_t tidy(char *line, size_t length)
{
    if (length > LINE_BYTES - 2) {
        length = LINE_BYTES - 2;
        memcpy(line + length - 3, "...", 3);
    }
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = ' ';
    line[length] = '\0';
    return length;
}

SPR_PRINTF(3, 0)
static void emit(enum spr_log_sub sub, enum spr_log_level level, const char *fmt, va_list args)
{
    void (*sink)(void *ctx, enum spr_log_level, const char *line);
    char line[LINE_BYTES];
    int saved_errno = errno, rank = atomic_load(&log_rank), fd, n;
    char rank_text[12] = "-";
    struct timespec now;
    size_t length;
    void *ctx;

    if (rank >= 0)
        snprintf(rank_text, sizeof(rank_text), "%d", rank);
    clock_gettime(CLOCK_REALTIME, &now);
    n = snprintf(line, sizeof(line), "[%lld.%06ld] %s:%ld:%s %s %s: ", (long long)now.tv_sec,
                 now.tv_nsec / 1000, host, (long)getpid(), rank_text, level_tags[level],
                 sub_names[sub]);
    length = (size_t)n;
    errno = saved_errno; /* for %m */
    n = vsnprintf(line + length, sizeof(line) - length, fmt, args);
    length = tidy(line, length + (n > 0 ? (size_t)n : 0));

    lock_out();
    sink = out.sink;
    ctx = out.ctx;
    fd = sink ? -1 : output_fd();
    unlock_out();
    if (sink) {
        sink(ctx, level, line);
    } else {
        line[length] = '\n';
        write_all(fd, line, length + 1);
    }
    errno = saved_errno;
}

/* Without reading the environment first, and so usable while that is being done. */
SPR_PRINTF(3, 4)
static void emit_now(enum spr_log_sub sub, enum spr_log_level level, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    emit(sub, level, fmt, args);
    va_end(args);
}

/* Index of the name text[0..length), or `n`. */
static size_t find_name(const char *const *names, size_t n, const char *text, size_t length)
{
    size_t i;

    for (i = 0; i < n; i++)
        if (strlen(names[i]) == length && strncmp(names[i], text, length) == 0)
            break;
    return i;
}

static bool parse_level(const char *text, size_t length, int *level)
{
    size_t i = find_name(level_names, SPR_ARRAY_LEN(level_names), text, length);

    if (length == 3 && strncmp(text, "off", 3) == 0)
        *level = LEVEL_OFF;
    else if (i < SPR_ARRAY_LEN(level_names))
        *level = (int)i;
    else
        return false;
    return true;
}

static bool parse_levels(const char *text, int levels[SPR_SUB_COUNT])
{
    for (;;) {
        size_t length = strcspn(text, ",");
        const char *equals = memchr(text, '=', length);
        int level;

        if (equals) {
            size_t name = (size_t)(equals - text);
            size_t sub = find_name(sub_names, SPR_SUB_COUNT, text, name);

            if (sub == SPR_SUB_COUNT || !parse_level(equals + 1, length - name - 1, &level))
                return false;
            levels[sub] = level;
        } else {
            if (!parse_level(text, length, &level))
                return false;
            for (size_t i = 0; i < SPR_SUB_COUNT; i++)
                levels[i] = level;
        }
        if (text[length] == '\0')
            return true;
        text += length + 1;
    }
}

static void set_levels(const int levels[SPR_SUB_COUNT])
{
    for (size_t i = 0; i < SPR_SUB_COUNT; i++)
        __atomic_store_n(&spr_log_levels[i], levels[i], __ATOMIC_RELAXED);
}

static void read_environment(void)
{
    const char *text = getenv("SPARRING_LOG"), *file = getenv("SPARRING_LOG_FILE");
    int levels[SPR_SUB_COUNT];
    bool good = true;

    if (gethostname(host, sizeof(host)) != 0)
        memcpy(host, "?", 2);
    host[sizeof(host) - 1] = '\0';
    host[strcspn(host, ".")] = '\0';
    /* A forked child of a threaded program may log that it must not use the library. */
    pthread_atfork(lock_out, unlock_out, unlock_out);
    if (file && strlen(file) < sizeof(out.pattern))
        memcpy(out.pattern, file, strlen(file) + 1);
    for (size_t i = 0; i < SPR_SUB_COUNT; i++)
        levels[i] = DEFAULT_LEVEL;
    if (text && *text)
        good = parse_levels(text, levels);
    set_levels(levels);
    if (file && *file && out.pattern[0] == '\0')
        emit_now(SPR_SUB_INIT, SPR_LOG_WARN, "SPARRING_LOG_FILE ignored: the name is too long");
    if (!good)
        emit_now(SPR_SUB_INIT, SPR_LOG_WARN,
                 "SPARRING_LOG='%s' not understood: use off, error, warn, info, debug or trace, "
                 "then subsystem=level after commas (init, net, shm, mem, coll, codec, watch)",
                 text);
}

bool spr_log_configure(const char *text)
{
    int levels[SPR_SUB_COUNT];

    pthread_once(&environment_once, read_environment);
    for (size_t i = 0; i < SPR_SUB_COUNT; i++)
        levels[i] = DEFAULT_LEVEL;
    if (!parse_levels(text, levels))
        return false;
    set_levels(levels);
    return true;
}

void spr_log_set_rank(int rank) { atomic_store(&log_rank, rank); }

void spr_log_set_sink(void (*sink)(void *ctx, enum spr_log_level, const char *line), void *ctx)
{
    lock_out();
    out.sink = sink;
    out.ctx = ctx;
    unlock_out();
}

void spr_log_write(enum spr_log_sub sub, enum spr_log_level level, const char *fmt, ...)
{
    va_list args;

    pthread_once(&environment_once, read_environment);
    if (!spr_log_enabled(sub, level))
        return;
    va_start(args, fmt);
    emit(sub, level, fmt, args);
    va_end(args);
}

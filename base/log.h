/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Levelled logging with subsystems, to standard error or to SPARRING_LOG_FILE, in whose name %h is
 * the host, %p the process and %r the rank.
 *
 *   SPARRING_LOG=info            level for all
 *   SPARRING_LOG=warn,net=debug  level for all, then for subsystems
 *   SPARRING_LOG=off             nothing
 *
 * One line: "[seconds.micros] host:pid:rank LEVEL subsystem: text". Lower case, no trailing dot.
 * Log once, where the cause is known. Thread-safe; a line is one write(2). errno is preserved, %m
 * works. Control characters become blanks, so that text from a peer cannot forge another line.
 */
#ifndef SPR_BASE_LOG_H
#define SPR_BASE_LOG_H

#include <stdbool.h>

#include "base/util.h"

enum spr_log_level { SPR_LOG_ERROR, SPR_LOG_WARN, SPR_LOG_INFO, SPR_LOG_DEBUG, SPR_LOG_TRACE };
enum spr_log_sub {
    SPR_SUB_INIT, /* "init": bootstrap, options */
    SPR_SUB_NET,  /* "net": TCP links */
    SPR_SUB_SHM,  /* "shm" */
    SPR_SUB_MEM,  /* "mem" */
    SPR_SUB_COLL, /* "coll": collectives */
    SPR_SUB_CODEC,
    SPR_SUB_SIM,
    SPR_SUB_WATCH, /* "watch": who lives */
    SPR_SUB_COUNT
};

/* Current level per subsystem; read by the macro only. All start at trace: the first message
 * reaches spr_log_write, which reads the environment and filters. */
extern int spr_log_levels[SPR_SUB_COUNT];

/* Set levels from a string as above. Returns false when it cannot be parsed (nothing changed). */
bool spr_log_configure(const char *levels);
/* The rank shown in lines of this process; -1 = none yet. With %r in SPARRING_LOG_FILE lines go to
 * standard error until the rank is known. */
void spr_log_set_rank(int rank);
/* Send finished lines, without newline, to a function instead (tests); NULL = back to normal. */
void spr_log_set_sink(void (*sink)(void *ctx, enum spr_log_level, const char *line), void *ctx);
void spr_log_write(enum spr_log_sub sub, enum spr_log_level level, const char *fmt, ...)
    SPR_PRINTF(3, 4);

#define spr_log_enabled(sub, level)                                                                \
    (__atomic_load_n(&spr_log_levels[sub], __ATOMIC_RELAXED) >= (int)(level))
#define spr_log(sub, level, ...)                                                                   \
    do {                                                                                           \
        if (spr_log_enabled(sub, level))                                                           \
            spr_log_write(sub, level, __VA_ARGS__);                                                \
    } while (0)
#define spr_err(sub, ...) spr_log(sub, SPR_LOG_ERROR, __VA_ARGS__)
#define spr_warn(sub, ...) spr_log(sub, SPR_LOG_WARN, __VA_ARGS__)
#define spr_info(sub, ...) spr_log(sub, SPR_LOG_INFO, __VA_ARGS__)
#define spr_debug(sub, ...) spr_log(sub, SPR_LOG_DEBUG, __VA_ARGS__)
#define spr_trace(sub, ...) spr_log(sub, SPR_LOG_TRACE, __VA_ARGS__)

#endif

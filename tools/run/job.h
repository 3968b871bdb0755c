/* SPDX-License-Identifier: BSD-2-Clause
 *
 * A job: the ranks, what they are told, and how they end together.
 *
 * Two processes of sparring-run stand above the ranks. The front is the one that was started: it
 * passes signals on and holds the terminal. The keeper is its child and starts, watches and ends
 * the ranks. Each clears up when the other is killed: the keeper sees its pipe to the front close;
 * the ranks die with the keeper, and what they leave behind becomes the front's.
 */
#ifndef TOOLS_RUN_JOB_H
#define TOOLS_RUN_JOB_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/run/emulate.h"
#include "tools/run/options.h"
#include "tools/run/output.h"

enum { SECRET_BYTES = 32, ROOT_BYTES = 300 };

struct rank {
    int index;
    int host;
    int local_index; /* among the ranks of its host */
    int local_size;
    int restarts;   /* how often it was started again */
    bool joins;     /* ... to join the others */
    int lost_by;    /* exit code of what it was started again for */
    bool again;     /* ... when all are gone that are being killed */
    pid_t pid;      /* of the rank, or of its remote shell; 0 = not running */
    bool ended;     /* ... with this status, of which nothing was made yet */
    int status;     /* as wait(2) tells it */
    int control_fd; /* standard input of its remote shell; -1 = none */
    struct stream output;
    struct stream error;
};

enum phase {
    PHASE_RUN,    /* all is well */
    PHASE_GRACE,  /* a rank failed, the others may still report */
    PHASE_TERM,   /* told to end */
    PHASE_HANGUP, /* remote shells lost their input and kill what they started */
    PHASE_KILL,   /* killed, again and again until nothing is left */
    PHASE_DONE    /* no process is left */
};

struct job {
    const struct options *options;
    struct rank *ranks;
    int count;
    int alive; /* ranks that have not ended */
    char id[17];
    char root[ROOT_BYTES];
    unsigned char secret[SECRET_BYTES];
    struct emulated_network network;
    int front_fd; /* closes when the front is gone */
    int stdin_fd; /* for rank 0; -1 = it inherits */
    int signal_fd;
    sigset_t original_mask; /* what ranks start with */
    struct sigaction original_pipe_action;
    enum phase phase;
    int64_t deadline_ms; /* when the phase ends; 0 = never */
    int64_t next_kill_ms;
    int64_t alone_ms;   /* when to look who has nobody left to join; 0 = not */
    int interrupts;     /* INT, TERM and HUP that came in */
    int code;           /* exit code so far */
    bool failed;        /* the first failure has been reported */
    bool started;       /* all ranks were, once */
    bool again;         /* all are being killed, and start again then */
    int64_t timeout_ms; /* when the job ends at the latest; 0 = never */
};

int64_t now_ms(void);

/* The signals that are passed on to the ranks, and SIGCHLD. */
void watched_signals(sigset_t *set);
/* "TERM" for SIGTERM: a name of those that are passed on. */
const char *signal_name(int number);

/* The keeper's life: starts the ranks, waits for their end. Returns the exit code. */
int job_run(struct job *job);

/* identity.c: who is where. False after one line that says what failed. */
bool job_assign(struct job *job);
enum { IDENTITY_COUNT = 9 };
struct identity {
    char entries[IDENTITY_COUNT][ROOT_BYTES + 32]; /* NAME=VALUE, or "" */
};
void rank_identity(const struct job *job, const struct rank *rank, struct identity *identity);

/* rank.c: starts one. False after one line that says why; job->code is set. */
bool rank_start(struct job *job, struct rank *rank);
/* "rank 2 (pid 123)", or with the host in it. */
void rank_name(const struct job *job, const struct rank *rank, pid_t pid, char *text, size_t room);

/* remote.c: what a remote shell is given on its standard input. *text is allocated. */
bool remote_script(const struct job *job, const struct rank *rank, char **text, size_t *length);
/* The words of --rsh, SPARRING_RSH, or the default. */
const char *remote_shell(const struct options *options);
/* The command that opens a remote shell on a host; allocated, NULL at its end. */
char **remote_command(const struct job *job, const struct rank *rank);

/* restart.c: a rank failed that may try again. False: it may not. */
bool restart_rank(struct job *job, struct rank *rank, pid_t pid, int status);
/* A rank ended in order: those that were started again may have nobody left whom they could join.
 * The job fails if that is so a moment later, too: they may just have joined, or be at their end.
 */
void restart_check(struct job *job);
void restart_check_again(struct job *job);
/* All are gone, and start again. */
void restart_all(struct job *job);

/* end.c: phases. */
void job_enter(struct job *job, enum phase phase);
/* Reaps what has ended. */
void job_reap(struct job *job);
/* A signal came in from outside. */
void job_forward(struct job *job, int number);
/* Does what the clock asks for. */
void job_tick(struct job *job);

#endif

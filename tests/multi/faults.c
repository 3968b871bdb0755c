/* SPDX-License-Identifier: BSD-2-Clause */
#include "tests/multi/faults.h"

#include <dirent.h>
#include <net/if.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

int fault_repeats(int in_check, int in_soak)
{
    const char *soak = getenv("SPARRING_SOAK"), *scale = getenv("SPARRING_TEST_SCALE");
    int n = soak && *soak && strcmp(soak, "0") ? in_soak : in_check;

    if (scale)
        n = (int)(n * strtod(scale, NULL));
    return n > 1 ? n : 1;
}

void fault_pause_us(long us)
{
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

static bool all_met(struct fault_meeting *meeting, int count, int times)
{
    return atomic_load(&meeting->arrived) >= count * times;
}

void fault_meet(struct fault_meeting *meeting, int count, int who, int *times)
{
    atomic_store(&meeting->pid[who], (int)getpid());
    atomic_fetch_add(&meeting->arrived, 1);
    ++*times;
    while (!all_met(meeting, count, *times)) {
        for (int i = 0; i < count; i++) {
            int other = atomic_load(&meeting->pid[i]);
            /* From the last meeting a process may go at once. */
            if (other && kill(other, 0) && !all_met(meeting, count, *times))
                _exit(97);
        }
        fault_pause_us(100);
    }
}

static int entries(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static int lines_with(const char *path, const char *what)
{
    FILE *f = fopen(path, "re");
    char line[4096];
    int n = 0;

    while (f && fgets(line, sizeof line, f))
        n += strstr(line, what) != NULL;
    if (f)
        fclose(f);
    return n;
}

static int words(const char *path)
{
    FILE *f = fopen(path, "re");
    char word[32];
    int n = 0;

    while (f && fscanf(f, "%31s", word) == 1)
        n++;
    if (f)
        fclose(f);
    return n;
}

struct fault_census fault_census_take(void)
{
    return (struct fault_census){.descriptors = entries("/proc/self/fd"),
                                 .memfds = lines_with("/proc/self/maps", "/memfd:"),
                                 .children = words("/proc/thread-self/children"),
                                 .names = entries("/dev/shm")};
}

void fault_census_expect(const struct fault_census *before)
{
    struct fault_census now = fault_census_take();

    assert_int_equal(now.descriptors, before->descriptors);
    assert_int_equal(now.memfds, before->memfds);
    assert_int_equal(now.children, before->children);
    /* Other programs may use /dev/shm meanwhile; the library never puts a name there. */
    if (now.names > before->names)
        print_message("/dev/shm has %d names more than before\n", now.names - before->names);
}

bool fault_is_inside(const char *transport)
{
    return strcmp(transport, "shm") != 0 && strcmp(transport, "verbs") != 0;
}

bool fault_loopback(bool up)
{
    struct ifreq lo = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool done;

    lo.ifr_flags = (short)(up ? IFF_UP | IFF_RUNNING : 0);
    done = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &lo) == 0;
    if (fd >= 0)
        close(fd);
    return done;
}

bool fault_own_network(void)
{
    if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
        return false;
    return fault_loopback(true);
}

/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The flight recorder: the ring, its file, and what is left when the writer is killed.
 */
#include "base/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sparring/types.h>

#include "base/mem.h"

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/test_base_trace.XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    char path[128];
    static const char *const names[] = {"rank-3.trace", "rank-3.1.trace", "target", "empty"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    /* Fails when anything else was left, such as a temporary file. */
    return rmdir(dir);
}

static char *dump(const struct spr_trace *trace, size_t most)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    assert_non_null(out);
    spr_trace_dump(trace, most, out);
    fclose(out);
    return text;
}

static void events_are_printed_oldest_first(void **state)
{
    struct spr_trace *t = spr_trace_new(3, 8);
    unsigned allreduce = spr_trace_word(t, "allreduce"), ring = spr_trace_word(t, "ring");
    char *text;

    (void)state;
    text = dump(t, 10);
    assert_string_equal(text, "");
    free(text);
    spr_trace_add(t, 1000000001, SPR_EV_POST, -1, spr_trace_post(7, allreduce, SPR_BF16, 0, ring),
                  4096, 0xabc);
    spr_trace_add_name(t, 1000000001, "layer3.weight is longer than that");
    spr_trace_add(t, 1000000002, SPR_EV_HOLD, 4, 7ull << 32 | 2, 100, 1);
    spr_trace_add(t, 1000000002, SPR_EV_SEND, 4, 7ull << 32 | 2, 100, 0);
    spr_trace_add(t, 1000000003, SPR_EV_LINK_DOWN, 5, (uint64_t)SPR_ERR_LINK, 0, 0);
    spr_trace_add(t, 1000000004, SPR_EV_COMPLETE, -1, 7, (uint64_t)SPR_ERR_RANK_LOST, UINT64_MAX);
    text = dump(t, 10);
    assert_string_equal(text, "1.000000001 post      op=7 allreduce elements=4096 dtype=bf16 "
                              "reduction=sum algorithm=ring descriptor=00000abc\n"
                              "1.000000001 name      'layer3.weight is lon'\n"
                              "1.000000002 hold      peer=4 op=7 step=2 bytes=100 for=priority\n"
                              "1.000000002 send      peer=4 op=7 step=2 bytes=100\n"
                              "1.000000003 link-down peer=5 status=SPR_ERR_LINK\n"
                              "1.000000004 complete  op=7 status=SPR_ERR_RANK_LOST us>=4294967\n");
    free(text);
    text = dump(t, 1);
    assert_int_equal(strncmp(text, "1.000000004 ", 12), 0);
    free(text);
    spr_trace_free(t);
}

static void the_ring_keeps_the_last_events(void **state)
{
    struct spr_trace *t = spr_trace_new(0, 2);
    int lines = 0;
    char *text;

    (void)state;
    for (uint64_t i = 0; i < 3 * SPR_TRACE_EVENTS + 5; i++)
        spr_trace_add(t, i, SPR_EV_GRANT, 1, i, 0, 0);
    text = dump(t, SIZE_MAX);
    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, SPR_TRACE_EVENTS);
    assert_int_equal(strncmp(text, "0.000008197 grant", 17), 0);
    free(text);
    spr_trace_free(t);
}

static void every_event_kind_has_a_name(void **state)
{
    (void)state;
    for (int kind = 0; kind < SPR_EV_COUNT; kind++)
        assert_string_not_equal(spr_event_name((enum spr_event_kind)kind), "unknown");
    assert_string_equal(spr_event_name((enum spr_event_kind)999), "unknown");
}

static void a_full_table_of_words_gives_no_number(void **state)
{
    struct spr_trace *t = spr_trace_new(0, 2);
    static char words[2 * SPR_TRACE_WORDS][8];
    char text[SPR_TRACE_WORD_BYTES];

    (void)state;
    for (unsigned i = 0; i < 2 * SPR_TRACE_WORDS; i++) {
        unsigned expected = i + 1 < SPR_TRACE_WORDS ? i + 1 : 0;
        snprintf(words[i], sizeof words[i], "w%u", i);
        assert_int_equal(spr_trace_word(t, words[i]), expected);
        assert_int_equal(spr_trace_word(t, words[i]), expected);
        spr_trace_get_word(t->header, expected, text);
        assert_string_equal(text, expected ? words[i] : "?");
    }
    spr_trace_free(t);
}

static void share(struct spr_trace *t)
{
    char why[128] = "";

    if (!spr_trace_share(t, dir, 42, 1, why, sizeof why))
        fail_msg("%s", why);
}

static void *map_file(const char *name)
{
    char path[128];
    struct stat st;
    void *p;
    int fd;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    assert_int_equal(st.st_size, SPR_TRACE_FILE_BYTES);
    assert_int_equal(st.st_mode & 0777, 0600);
    p = mmap(NULL, SPR_TRACE_FILE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(p != MAP_FAILED);
    close(fd);
    return p;
}

static void a_file_has_what_came_before_and_after(void **state)
{
    struct spr_trace *t = spr_trace_new(3, 8);
    const struct spr_trace_header *h;
    const struct spr_event *ring;

    (void)state;
    spr_trace_add(t, 1, SPR_EV_LINK_UP, 1, spr_trace_word(t, "shm"), 0, 0);
    share(t);
    spr_trace_add(t, 2, SPR_EV_LINK_UP, 2, spr_trace_word(t, "shm"), 0, 0);
    spr_trace_fail(t, "first");
    spr_trace_fail(t, "second");
    h = map_file("rank-3.trace");
    ring = (const void *)((const char *)h + SPR_TRACE_HEADER_BYTES);
    assert_memory_equal(h->magic, SPR_TRACE_MAGIC, 8);
    assert_true(h->rank == 3 && h->size == 8 && h->pid == (uint32_t)getpid() && h->job == 42);
    assert_true(h->process_start > 0 && h->start_ns > 0 && h->start_realtime_ns > 0);
    assert_int_equal(strlen(h->boot_id), 36);
    assert_string_equal(h->words[1], "shm");
    assert_string_equal(h->text, "first");
    assert_true(ring[0].ns == 1 && ring[0].sequence == 1 && ring[1].ns == 2 &&
                ring[1].sequence == 2 && ring[2].sequence == 0);
    assert_int_equal(h->ended, 0);
    spr_trace_free(t);
    assert_int_equal(h->ended, 1);
    munmap((void *)(uintptr_t)h, SPR_TRACE_FILE_BYTES);
}

/* Two at the same time have two files; one after the other use one. */
static void communicators_share_no_file(void **state)
{
    char path[128];

    (void)state;
    for (int round = 0; round < 3; round++) {
        struct spr_trace *first = spr_trace_new(3, 8), *second = spr_trace_new(3, 8);
        share(first);
        share(second);
        assert_true(first->index == 0 && second->index == 1);
        munmap(map_file("rank-3.trace"), SPR_TRACE_FILE_BYTES);
        munmap(map_file("rank-3.1.trace"), SPR_TRACE_FILE_BYTES);
        spr_trace_free(first);
        spr_trace_free(second);
    }
    snprintf(path, sizeof path, "%s/rank-3.2.trace", dir);
    assert_int_equal(access(path, F_OK), -1);
}

/* As when ranks joined: one of them has the number that another one had before. */
static void processes_share_no_file_while_they_live(void **state)
{
    struct spr_trace *t;
    struct spr_trace_header *h;
    int ready[2];
    char byte;
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(ready), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char why[128];
        if (spr_trace_share(spr_trace_new(3, 8), dir, 42, 1, why, sizeof why))
            (void)!write(ready[1], "", 1);
        close(ready[1]);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    for (int round = 0; round < 2; round++) {
        t = spr_trace_new(3, 8);
        share(t);
        assert_int_equal(t->index, 0);
        h = map_file(round ? "rank-3.trace" : "rank-3.1.trace");
        assert_int_equal(h->pid, getpid());
        munmap(h, SPR_TRACE_FILE_BYTES);
        h = map_file("rank-3.trace");
        assert_int_equal(h->pid, round ? getpid() : pid);
        munmap(h, SPR_TRACE_FILE_BYTES);
        spr_trace_free(t);
        if (round == 0) {
            kill(pid, SIGKILL);
            assert_int_equal(waitpid(pid, NULL, 0), pid);
        }
    }
    close(ready[0]);
}

static void a_link_in_the_way_is_replaced_not_followed(void **state)
{
    struct spr_trace *t = spr_trace_new(3, 8);
    char target[128], name[128], temporary[160], text[8] = "";
    int fd;

    (void)state;
    snprintf(target, sizeof target, "%s/target", dir);
    snprintf(name, sizeof name, "%s/rank-3.trace", dir);
    snprintf(temporary, sizeof temporary, "%s/.%d.rank-3.trace", dir, (int)getpid());
    fd = open(target, O_CREAT | O_RDWR, 0600);
    assert_int_equal(write(fd, "secret", 6), 6);
    assert_int_equal(symlink(target, name), 0);
    assert_int_equal(symlink(target, temporary), 0);
    share(t);
    spr_trace_add(t, 1, SPR_EV_LINK_UP, 1, 0, 0, 0);
    assert_int_equal(pread(fd, text, 7, 0), 6);
    assert_string_equal(text, "secret");
    munmap(map_file("rank-3.trace"), SPR_TRACE_FILE_BYTES);
    close(fd);
    spr_trace_free(t);
}

static void a_directory_that_cannot_be_used_changes_nothing(void **state)
{
    struct spr_trace *t = spr_trace_new(3, 8);
    char path[128], why[128] = "";
    int64_t live = spr_mem_live();

    (void)state;
    snprintf(path, sizeof path, "%s/empty", dir);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    spr_trace_add(t, 1, SPR_EV_LINK_UP, 1, 0, 0, 0);
    assert_false(spr_trace_share(t, path, 0, 1, why, sizeof why));
    assert_string_equal(why, "Not a directory");
    assert_false(spr_trace_share(t, "/nonexistent/folder", 0, 1, why, sizeof why));
    assert_string_equal(why, "No such file or directory");
    assert_int_equal(spr_mem_live(), live);
    spr_trace_add(t, 2, SPR_EV_LINK_UP, 1, 0, 0, 0);
    assert_true(t->next == 2 && t->ring[0].ns == 1 && t->ring[1].ns == 2);
    spr_trace_free(t);
}

/* Everything in an event follows from its number. */
static void add_numbered(struct spr_trace *t)
{
    uint64_t n = t->next + 1;

    spr_trace_add(t, n * 3, SPR_EV_SEND, (int)(n % 1000), n * 5, n * 7, n % 1000003);
}

static bool is_whole(const struct spr_event *e)
{
    uint64_t n = e->sequence;

    return e->ns == n * 3 && e->kind == SPR_EV_SEND && e->peer == (int)(n % 1000) &&
           e->a == n * 5 && e->b == n * 7 && e->c == n % 1000003;
}

/* SIGKILL in the middle of writing: all slots but the oldest are whole and without a gap. */
static void a_killed_writer_leaves_whole_events(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        const struct spr_trace_header *h;
        const struct spr_event *ring;
        uint64_t last = 0;
        int ready[2], status;
        char c;
        pid_t pid;

        assert_int_equal(pipe(ready), 0);
        pid = fork();
        if (pid == 0) {
            struct spr_trace *t = spr_trace_new(3, 8);
            char why[128];
            if (!spr_trace_share(t, dir, 0, 1, why, sizeof why))
                _exit(1);
            for (;;) {
                add_numbered(t);
                if (t->next == 2 * SPR_TRACE_EVENTS && write(ready[1], "x", 1) != 1)
                    _exit(2);
            }
        }
        close(ready[1]);
        assert_int_equal(read(ready[0], &c, 1), 1);
        close(ready[0]);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        h = map_file("rank-3.trace");
        ring = (const void *)((const char *)h + SPR_TRACE_HEADER_BYTES);
        for (int i = 0; i < SPR_TRACE_EVENTS; i++)
            last = ring[i].sequence > last ? ring[i].sequence : last;
        assert_true(last >= 2 * SPR_TRACE_EVENTS);
        for (uint64_t n = last; n > last - SPR_TRACE_EVENTS + 1; n--) {
            const struct spr_event *e = &ring[(n - 1) % SPR_TRACE_EVENTS];
            assert_true(e->sequence == n && is_whole(e));
        }
        munmap((void *)(uintptr_t)h, SPR_TRACE_FILE_BYTES);
    }
}

/* Bytes of a file that anybody wrote end up on a terminal. */
static void hostile_bytes_print_as_text(void **state)
{
    uint64_t seed = 1;
    struct spr_trace *t = spr_trace_new(0, 2);
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(out);
    for (int i = 0; i < 200000; i++) {
        struct spr_event e = {0};
        unsigned char *p = (unsigned char *)&e;
        for (size_t k = 0; k < sizeof e; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            p[k] = (unsigned char)(seed >> 56);
        }
        e.kind = (uint16_t)(e.kind % (i % 2 ? UINT16_MAX : SPR_EV_COUNT + 1));
        ((unsigned char *)t->header->words)[(size_t)i % sizeof t->header->words] = p[0];
        spr_trace_print(t->header, &e, out);
        if (i % 1000 == 0) {
            fflush(out);
            for (size_t k = 0; k < bytes; k++)
                assert_true(text[k] >= ' ' && text[k] < 0x7f);
            rewind(out);
        }
    }
    fclose(out);
    free(text);
    spr_trace_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_printed_oldest_first),
        cmocka_unit_test(the_ring_keeps_the_last_events),
        cmocka_unit_test(every_event_kind_has_a_name),
        cmocka_unit_test(a_full_table_of_words_gives_no_number),
        cmocka_unit_test_setup_teardown(a_file_has_what_came_before_and_after, make_dir,
                                        remove_dir),
        cmocka_unit_test_setup_teardown(communicators_share_no_file, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(processes_share_no_file_while_they_live, make_dir,
                                        remove_dir),
        cmocka_unit_test_setup_teardown(a_link_in_the_way_is_replaced_not_followed, make_dir,
                                        remove_dir),
        cmocka_unit_test_setup_teardown(a_directory_that_cannot_be_used_changes_nothing, make_dir,
                                        remove_dir),
        cmocka_unit_test_setup_teardown(a_killed_writer_leaves_whole_events, make_dir, remove_dir),
        cmocka_unit_test(hostile_bytes_print_as_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

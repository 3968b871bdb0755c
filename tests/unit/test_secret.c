/* SPDX-License-Identifier: BSD-2-Clause
 *
 * Where the job's secret comes from. Each case runs in a child, since a secret that was passed by
 * descriptor is remembered by the process.
 */
#include "transport/bootstrap/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/test_secret.XXXXXX";
static char path[64];
static struct spr_auth_key key;
static struct spr_error error;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, error.text);       \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static void in_child(int (*body)(void))
{
    int status = -1;
    pid_t child;

    fflush(NULL);
    child = fork();
    if (child == 0) {
        unsetenv("SPARRING_SECRET_FD");
        unsetenv("SPARRING_SECRET_FILE");
        _exit(body());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static spr_status load(const struct spr_comm_options *options)
{
    spr_error_clear(&error);
    return spr_secret_load(options, &key, &error);
}

static void write_secret(const char *text, size_t bytes, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (write(fd, text, bytes) != (ssize_t)bytes)
        _exit(2);
    fchmod(fd, mode);
    close(fd);
    setenv("SPARRING_SECRET_FILE", path, 1);
}

static int pass(int fd)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", fd);
    return setenv("SPARRING_SECRET_FD", text, 1);
}

static int no_secret(void)
{
    CHECK(load(NULL) == SPR_OK);
    CHECK(key.secret_bytes == 0);
    return 0;
}

static int from_the_options(void)
{
    struct spr_comm_options options = SPR_COMM_OPTIONS_INIT;
    char longer[200];

    write_secret("file", 4, 0600);
    options.secret = "option";
    options.secret_bytes = 6;
    CHECK(load(&options) == SPR_OK);
    CHECK(key.secret_bytes == 6 && memcmp(key.secret, "option", 6) == 0);
    memset(longer, 'x', sizeof(longer));
    options.secret = longer;
    options.secret_bytes = 64;
    CHECK(load(&options) == SPR_OK && key.secret_bytes == 64 && key.secret[63] == 'x');
    options.secret_bytes = 65; /* hashed */
    CHECK(load(&options) == SPR_OK && key.secret_bytes == 32 && key.secret[31] != 'x');
    return 0;
}

static int from_a_descriptor(void)
{
    char secret[33] = "0123456789abcdef0123456789abcdef";
    int fd = memfd_create("secret", 0);

    CHECK(write(fd, secret, 32) == 32); /* the offset is at the end: pread from 0 */
    CHECK(pass(fd) == 0);
    CHECK(load(NULL) == SPR_OK);
    CHECK(key.secret_bytes == 32 && memcmp(key.secret, secret, 32) == 0);
    CHECK(fcntl(fd, F_GETFD) == -1 && errno == EBADF);
    CHECK(!getenv("SPARRING_SECRET_FD"));
    memset(&key, 0, sizeof(key)); /* the next communicator of this process has it too */
    CHECK(load(NULL) == SPR_OK);
    CHECK(key.secret_bytes == 32 && memcmp(key.secret, secret, 32) == 0);
    return 0;
}

static int from_a_pipe(void)
{
    int ends[2];

    CHECK(pipe(ends) == 0);
    CHECK(write(ends[1], "piped", 5) == 5);
    close(ends[1]);
    CHECK(pass(ends[0]) == 0);
    CHECK(load(NULL) == SPR_OK);
    CHECK(key.secret_bytes == 5 && memcmp(key.secret, "piped", 5) == 0);
    return 0;
}

static int bad_descriptors(void)
{
    setenv("SPARRING_SECRET_FD", "x", 1);
    CHECK(load(NULL) == SPR_ERR_INVALID && strstr(error.text, "SPARRING_SECRET_FD='x'"));
    setenv("SPARRING_SECRET_FD", "-1", 1);
    CHECK(load(NULL) == SPR_ERR_INVALID);
    setenv("SPARRING_SECRET_FD", "977", 1);
    CHECK(load(NULL) == SPR_ERR_SYSTEM && strstr(error.text, "Bad file descriptor"));
    CHECK(pass(memfd_create("secret", 0)) == 0);
    CHECK(load(NULL) == SPR_ERR_INVALID && strstr(error.text, "empty"));
    return 0;
}

static int from_a_file(void)
{
    char longer[5000];

    write_secret("binary\0\n", 8, 0600);
    CHECK(load(NULL) == SPR_OK);
    CHECK(key.secret_bytes == 8 && memcmp(key.secret, "binary\0\n", 8) == 0);
    memset(longer, 'x', sizeof(longer));
    write_secret(longer, 4096, 0400);
    CHECK(load(NULL) == SPR_OK && key.secret_bytes == 32);
    unlink(path);
    write_secret(longer, 4097, 0600);
    CHECK(load(NULL) == SPR_ERR_INVALID);
    return 0;
}

static int bad_files(void)
{
    write_secret("hush", 4, 0640);
    CHECK(load(NULL) == SPR_ERR_INVALID);
    CHECK(strstr(error.text, "mode 0640") && strstr(error.text, "chmod 600"));
    write_secret("hush", 4, 0602);
    CHECK(load(NULL) == SPR_ERR_INVALID);
    write_secret("", 0, 0600);
    CHECK(load(NULL) == SPR_ERR_INVALID && strstr(error.text, "empty"));
    if (geteuid() == 0) {
        write_secret("hush", 4, 0600);
        CHECK(chown(path, 12345, 12345) == 0);
        CHECK(load(NULL) == SPR_ERR_INVALID && strstr(error.text, "user 12345"));
    }
    unlink(path);
    CHECK(load(NULL) == SPR_ERR_INVALID && strstr(error.text, "No such file"));
    CHECK(mkfifo(path, 0600) == 0); /* does not block */
    CHECK(load(NULL) == SPR_ERR_INVALID && strstr(error.text, "regular file"));
    unlink(path);
    setenv("SPARRING_SECRET_FILE", folder, 1);
    CHECK(load(NULL) == SPR_ERR_INVALID && strstr(error.text, "regular file"));
    return 0;
}

static void without_any_there_is_none(void **state)
{
    (void)state;
    in_child(no_secret);
}

static void options_go_first_and_long_secrets_are_hashed(void **state)
{
    (void)state;
    in_child(from_the_options);
}

static void a_descriptor_is_read_closed_and_remembered(void **state)
{
    (void)state;
    in_child(from_a_descriptor);
    in_child(from_a_pipe);
    in_child(bad_descriptors);
}

static void a_file_must_be_ours_alone(void **state)
{
    (void)state;
    in_child(from_a_file);
    in_child(bad_files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_any_there_is_none),
        cmocka_unit_test(options_go_first_and_long_secrets_are_hashed),
        cmocka_unit_test(a_descriptor_is_read_closed_and_remembered),
        cmocka_unit_test(a_file_must_be_ours_alone),
    };
    int status;

    alarm(60);
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof(path), "%s/secret", folder);
    status = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(folder);
    return status;
}

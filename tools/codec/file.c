/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/codec/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "compress/value.h"

/* What a codec, its input, output and state take at most, per element. */
#define BYTES_PER_ELEMENT 48

enum number { FP16, FP32, FP64 };
static const struct {
    const char *descr, *form;
    size_t bytes;
} numbers[] = {
    [FP16] = {"<f2", "npy fp16", 2},
    [FP32] = {"<f4", "npy fp32", 4},
    [FP64] = {"<f8", "npy fp64", 8},
};

/* What the file says of itself. */
struct layout {
    enum number number;
    size_t data; /* where the elements begin */
    uint64_t elements;
    uint64_t rows; /* of the first of several dimensions, or 0 */
    const char *form;
};

#define BAD(...) spr_error_set(error, SPR_ERR_INVALID, -1, __VA_ARGS__)

/* The text behind 'key': in the dictionary, or NULL. */
static const char *value_of(const char *dictionary, const char *key)
{
    char quoted[32];
    const char *at;

    snprintf(quoted, sizeof(quoted), "'%s':", key);
    at = strstr(dictionary, quoted);
    if (!at)
        return NULL;
    at += strlen(quoted);
    return at + strspn(at, " ");
}

/* The value up to `stop`, as far as it can be printed on a line. Returns buf. */
static const char *excerpt(const char *at, char stop, char *buf, size_t bytes)
{
    size_t n = 0;

    for (; n + 1 < bytes && at[n] && at[n] != stop && at[n] != '\n'; n++)
        buf[n] = at[n] >= ' ' && at[n] <= '~' ? at[n] : '?';
    buf[n] = '\0';
    return buf;
}

/* "(3, 4)", "(5,)", "()": the product, and the first one; false when it is none, or beyond 2^32. */
static bool parse_shape(const char *at, uint64_t *elements, uint64_t *first, int *dimensions)
{
    *elements = 1;
    *first = 1;
    *dimensions = 0;
    if (*at++ != '(')
        return false;
    for (;; ++*dimensions) {
        uint64_t size = 0;
        at += strspn(at, " ");
        if (*at == ')')
            return true;
        size_t digits = strspn(at, "0123456789");
        if (digits == 0 || digits > 10)
            return false;
        for (; digits > 0; digits--)
            size = 10 * size + (uint64_t)(*at++ - '0');
        *first = *dimensions == 0 ? size : *first;
        if (size > UINT32_MAX || (*elements *= size) > UINT64_C(1) << 32)
            return false;
        at += strspn(at, " ");
        if (*at == ',')
            at++;
        else if (*at != ')')
            return false;
    }
}

static spr_status parse_dictionary(struct layout *layout, const char *text, const char *path,
                                   struct spr_error *error)
{
    const char *descr = value_of(text, "descr"), *order = value_of(text, "fortran_order"),
               *shape = value_of(text, "shape");
    int dimensions, kind = 0;
    char words[40];

    if (!descr || !order || !shape)
        return BAD("%s: its .npy header lacks descr, fortran_order or shape", path);
    while (kind < 3 && (descr[0] != '\'' || strncmp(descr + 1, numbers[kind].descr, 3) != 0))
        kind++;
    if (kind == 3 || descr[4] != '\'')
        return BAD("%s: its elements are %s, and '<f2', '<f4' or '<f8' are wanted: save "
                   "x.astype('<f4')",
                   path, excerpt(descr, ',', words, sizeof(words)));
    layout->number = (enum number)kind;
    layout->form = numbers[kind].form;
    if (!parse_shape(shape, &layout->elements, &layout->rows, &dimensions))
        return BAD("%s: its shape %s) is none, or has more than 2^32 elements", path,
                   excerpt(shape, ')', words, sizeof(words)));
    if (strncmp(order, "False", 5) != 0 && dimensions > 1)
        return BAD("%s: it is in Fortran order: save numpy.ascontiguousarray(x)", path);
    if (dimensions < 2)
        layout->rows = 0;
    return SPR_OK;
}

/* "\x93NUMPY", version, length of the header, header: a dictionary as Python prints it. */
static spr_status parse_npy(struct layout *layout, const unsigned char *bytes, size_t size,
                            const char *path, struct spr_error *error)
{
    char text[4096];
    size_t length, begin;

    if (size < 12 || bytes[6] < 1 || bytes[6] > 3)
        return BAD("%s: a .npy file without a whole header, or of an unknown version", path);
    begin = bytes[6] == 1 ? 10 : 12;
    length = bytes[8] | (size_t)bytes[9] << 8;
    if (bytes[6] > 1)
        length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (length > size - begin || length >= sizeof(text))
        return BAD("%s: its .npy header ends beyond the file", path);
    memcpy(text, bytes + begin, length);
    text[length] = '\0';
    layout->data = begin + length;
    return parse_dictionary(layout, text, path, error);
}

static spr_status parse_trace(struct layout *layout, const unsigned char *bytes, size_t size,
                              const char *path, struct spr_error *error)
{
    uint32_t version;

    if (size < 32)
        return BAD("%s: a trace without a whole header", path);
    memcpy(&version, bytes + 8, sizeof version);
    if (version != 1)
        return BAD("%s: a trace of version %" PRIu32 "; 1 is known", path, version);
    *layout = (struct layout){.number = FP32, .data = 32, .form = "trace"};
    memcpy(&layout->elements, bytes + 24, sizeof(layout->elements));
    return SPR_OK;
}

static spr_status parse_layout(struct layout *layout, const unsigned char *bytes, size_t size,
                               const char *path, struct spr_error *error)
{
    if (size >= 6 && memcmp(bytes, "\x93NUMPY", 6) == 0)
        return parse_npy(layout, bytes, size, path, error);
    if (size >= 8 && memcmp(bytes, "SPRTRACE", 8) == 0)
        return parse_trace(layout, bytes, size, path, error);
    *layout = (struct layout){.number = FP32, .elements = size / 4, .form = "raw fp32"};
    if (size % 4 != 0)
        return BAD("%s: it is neither .npy nor a trace, and as raw fp32 its %zu bytes are no "
                   "multiple of 4",
                   path, size);
    return SPR_OK;
}

/* No more than the machine can hold. */
static spr_status check_size(uint64_t elements, const char *path, struct spr_error *error)
{
    double have = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    double need = (double)elements * BYTES_PER_ELEMENT;

    if (elements > UINT32_MAX)
        return BAD("%s: %" PRIu64 " elements are more than a codec takes: 2^32 - 1", path,
                   elements);
    if (need > have)
        return BAD("%s: %" PRIu64 " elements take up to %.0f GB of memory, and there are %.0f",
                   path, elements, need * 1e-9, have * 1e-9);
    return SPR_OK;
}

spr_status gradient_parse(struct gradient *gradient, const unsigned char *bytes, size_t size,
                          const char *path, struct spr_error *error)
{
    struct layout layout = {0};
    spr_status status = parse_layout(&layout, bytes, size, path, error);

    if (status != SPR_OK || (status = check_size(layout.elements, path, error)) != SPR_OK)
        return status;
    size_t n = (size_t)layout.elements, have = size - layout.data;
    if (have != n * numbers[layout.number].bytes)
        return BAD("%s: its header says %zu elements, %zu bytes, and there are %zu bytes", path, n,
                   n * numbers[layout.number].bytes, have);
    if (n == 0)
        return BAD("%s: it has no elements", path);
    float *x = spr_pages_alloc(n * sizeof(float));
    if (!x)
        return spr_error_set(error, SPR_ERR_NOMEM, -1, "%s: no memory for %zu elements", path, n);
    const unsigned char *data = bytes + layout.data;
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        double wide;
        switch (layout.number) {
        case FP16:
            memcpy(&half, data + 2 * i, sizeof(half));
            x[i] = spr_fp16_to_float(half);
            break;
        case FP32:
            memcpy(&x[i], data + 4 * i, sizeof(x[i]));
            break;
        default:
            memcpy(&wide, data + 8 * i, sizeof(wide));
            x[i] = (float)wide;
            break;
        }
    }
    *gradient = (struct gradient){.x = x, .n = n, .rows = (size_t)layout.rows, .form = layout.form};
    return SPR_OK;
}

void gradient_free(struct gradient *gradient)
{
    spr_pages_free(gradient->x, gradient->n * sizeof(float));
}

/* All of a file into *bytes, which is the caller's to free also after an error. */
static spr_status read_all(int file, unsigned char **bytes, size_t *size, const char *path,
                           struct spr_error *error)
{
    size_t room = 0;

    for (*size = 0;;) {
        if (*size == room) {
            room = spr_max_size(1 << 20, 2 * room);
            spr_status status = check_size(*size / 8, path, error);
            unsigned char *more = status == SPR_OK ? spr_realloc(*bytes, room) : NULL;
            if (status != SPR_OK)
                return status;
            if (!more)
                return spr_error_set(error, SPR_ERR_NOMEM, -1, "%s: no memory for %zu bytes", path,
                                     room);
            *bytes = more;
        }
        ssize_t got = read(file, *bytes + *size, room - *size);
        if (got == 0)
            return SPR_OK;
        if (got > 0)
            *size += (size_t)got;
        else if (errno != EINTR)
            return spr_error_errno(error, SPR_ERR_INVALID, -1, errno, "%s: cannot be read", path);
    }
}

spr_status gradient_read(struct gradient *gradient, const char *path, struct spr_error *error)
{
    bool standard = strcmp(path, "-") == 0;
    int file = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    unsigned char *bytes = NULL;
    struct stat status_of;
    spr_status status = SPR_OK;
    size_t size = 0;

    if (standard)
        path = "standard input";
    if (file < 0)
        return spr_error_errno(error, SPR_ERR_INVALID, -1, errno, "%s: cannot be opened", path);
    /* Said before it is read, where the size is known. */
    if (fstat(file, &status_of) == 0 && S_ISREG(status_of.st_mode))
        status = check_size((uint64_t)status_of.st_size / 8, path, error);
    if (status == SPR_OK)
        status = read_all(file, &bytes, &size, path, error);
    if (!standard)
        close(file);
    if (status == SPR_OK)
        status = gradient_parse(gradient, bytes, size, path, error);
    spr_free(bytes);
    return status;
}

/* Storage faults on demand, for a process that was started with this library in LD_PRELOAD.
 *
 * The file named by EBBTIDE_FAULT holds the name of the fault that is on now:
 *   eio-write   writing fails with EIO          eio-sync   flushing fails with EIO
 *   full        writing fails with ENOSPC       read-only  both writing and opening for it fail with EROFS
 * After each flush that succeeds, the file is copied into the directory EBBTIDE_SHADOW, where there is one: the copies
 * are what a power cut would leave at worst.
 * Only files whose path contains "history.db" are touched. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

static int is_on(const char *fault) {
    const char *path = getenv("EBBTIDE_FAULT");
    if (!path) return 0;
    int (*real_open)(const char *, int, ...) = next("open");
    int fd = real_open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    char text[32] = {0};
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    return n > 0 && strcmp(text, fault) == 0;
}

static int is_ours(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return strstr(path, "history.db") != NULL;
}

static int write_fails(int fd) {
    if (!is_ours(fd)) return 0;
    if (is_on("eio-write")) { errno = EIO; return 1; }
    if (is_on("full")) { errno = ENOSPC; return 1; }
    if (is_on("read-only")) { errno = EROFS; return 1; }
    return 0;
}

ssize_t write(int fd, const void *data, size_t n) {
    ssize_t (*real)(int, const void *, size_t) = next("write");
    return write_fails(fd) ? -1 : real(fd, data, n);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    ssize_t (*real)(int, const void *, size_t, off_t) = next("pwrite");
    return write_fails(fd) ? -1 : real(fd, data, n, at);
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) {
    ssize_t (*real)(int, const void *, size_t, off64_t) = next("pwrite64");
    return write_fails(fd) ? -1 : real(fd, data, n, at);
}

static int sync_fails(int fd) {
    if (!is_ours(fd) || !is_on("eio-sync")) return 0;
    errno = EIO;
    return 1;
}

static void shadow(int fd) {
    const char *dir = getenv("EBBTIDE_SHADOW");
    char link[64], path[4096], copy[8192], draft[8192 + 8], block[65536];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (!dir || n < 0 || !is_ours(fd)) return;
    path[n] = 0;
    /* The rollback journal of the first page is deleted at once; deletions reach the disk with the next flush. */
    if (strstr(path, "-journal")) return;
    snprintf(copy, sizeof copy, "%s%s", dir, strrchr(path, '/'));
    snprintf(draft, sizeof draft, "%s.draft", copy);
    int (*real_open)(const char *, int, ...) = next("open");
    ssize_t (*real_write)(int, const void *, size_t) = next("write");
    int to = real_open(draft, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    for (off_t at = 0; (n = pread(fd, block, sizeof block, at)) > 0; at += n)
        if (real_write(to, block, (size_t)n) != n) abort();
    close(to);
    if (rename(draft, copy)) abort();
}

static int flush(const char *name, int fd) {
    int (*real)(int) = next(name);
    if (sync_fails(fd)) return -1;
    int result = real(fd);
    if (result == 0) shadow(fd);
    return result;
}

int fsync(int fd) { return flush("fsync", fd); }

int fdatasync(int fd) { return flush("fdatasync", fd); }

static int open_fails(const char *path, int flags) {
    if ((flags & O_ACCMODE) == O_RDONLY || !strstr(path, "history.db") || !is_on("read-only")) return 0;
    errno = EROFS;
    return 1;
}

int open(const char *path, int flags, ...) {
    int (*real)(const char *, int, ...) = next("open");
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open_fails(path, flags) ? -1 : real(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    int (*real)(const char *, int, ...) = next("open64");
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open_fails(path, flags) ? -1 : real(path, flags, mode);
}

/* The journal of unflushed changes, and the power cut: each change that no fsync promised is drawn
 * to be kept or undone, bytes first, then entries from the newest to the oldest. Read power_cut.h
 * first; file_faults.c calls it around every operation. */
#include "tests/faults/power_cut.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/rng.h"
#include "tests/faults/file_faults.h"
#include "tests/temporary.h"

/* A save has five files and about twenty unflushed entries; removing an old one has seven. */
enum { ENTRIES_MOST = 256, FILES_MOST = 64 };

typedef enum entry_kind { ENTRY_MADE, ENTRY_RENAMED, ENTRY_UNLINKED, ENTRY_REMOVED } entry_kind;

/* One change of a folder's entries; the array has them in order. */
typedef struct entry {
    entry_kind kind;
    int is_durable;
    int stays; /* at the cut: drawn to stay, or durable */
    int kept;  /* the unlinked file, or -1 */
    char path[PATH_MAX], to[PATH_MAX];
} entry;

/* A file with unflushed bytes or length. */
typedef struct file {
    int fd; /* ours; -1: free */
    dev_t device;
    ino_t number;
    uint64_t durable_bytes; /* its length at the last flush */
    uint64_t dirty_begin, dirty_end;
} file;

struct power_cut {
    uint64_t at, seed, count, draw_count;
    uint32_t entry_count;
    entry entries[ENTRIES_MOST];
    file files[FILES_MOST];
};

power_cut *power_cut_begin(uint64_t at, uint64_t seed)
{
    static power_cut journal;
    if (at == 0)
        return NULL;
    if (journal.at == 0)
        for (int i = 0; i < FILES_MOST; i++)
            journal.files[i].fd = -1;
    journal.at = at;
    journal.seed = seed;
    return &journal;
}

/* ---- the cut ---- */

static uint64_t draw(power_cut *cut, uint64_t limit)
{
    return coh_rng_below(cut->seed, 0, cut->draw_count++, limit);
}

static void zero(const file *lost, uint64_t begin, uint64_t end)
{
    static const char zeros[COH_PAGE_BYTES];
    while (begin < end) {
        uint64_t bytes = end - begin < COH_PAGE_BYTES ? end - begin : COH_PAGE_BYTES;
        ssize_t moved = pwrite(lost->fd, zeros, bytes, (off_t)begin);
        if (moved <= 0)
            return;
        begin += (uint64_t)moved;
    }
}

/* Loses everything, the end, or pages here and there. */
static void forget_bytes(power_cut *cut, const file *lost)
{
    struct stat facts;
    if (fstat(lost->fd, &facts) != 0)
        return;
    uint64_t length = (uint64_t)facts.st_size, left = lost->durable_bytes;
    uint64_t how = cut->seed == 0 ? 0 : draw(cut, 3);
    if (how == 0)
        zero(lost, lost->dirty_begin, lost->dirty_end);
    if (how == 1 && length > left)
        left += draw(cut, length - left + 1);
    if (how < 2) {
        if (length > left && ftruncate(lost->fd, (off_t)left) != 0)
            _exit(FILE_FAULTS_EXIT_CODE + 1);
        return;
    }
    for (uint64_t at = lost->dirty_begin; at < lost->dirty_end;) {
        uint64_t end = at - at % COH_PAGE_BYTES + COH_PAGE_BYTES;
        if (end > lost->dirty_end)
            end = lost->dirty_end;
        if (draw(cut, 2))
            zero(lost, at, end);
        at = end;
    }
}

static int is_below(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && path[length] == '/';
}

/* Finds the present name of `path`, its name when entry `index` was made, after the later renames
 * that stay. Returns 1 if a rename moved it directly, and not a folder above it. */
static int name_now(const power_cut *cut, uint32_t index, const char *path, char *out_name)
{
    char rest[PATH_MAX];
    int is_moved = 0;
    snprintf(out_name, PATH_MAX, "%s", path);
    for (uint32_t i = index + 1; i < cut->entry_count; i++) {
        const entry *later = &cut->entries[i];
        if (later->kind != ENTRY_RENAMED || !later->stays)
            continue;
        int is_it = strcmp(out_name, later->path) == 0;
        if (!is_it && !is_below(out_name, later->path))
            continue;
        is_moved |= is_it;
        snprintf(rest, sizeof(rest), "%s", out_name + strlen(later->path));
        if (snprintf(out_name, PATH_MAX, "%s%s", later->to, rest) >= PATH_MAX)
            _exit(FILE_FAULTS_EXIT_CODE + 1);
    }
    return is_moved;
}

/* Returns 1 if the folder of an unlinked file was removed later and stays removed. */
static int folder_is_gone(const power_cut *cut, uint32_t index)
{
    for (uint32_t i = index + 1; i < cut->entry_count; i++)
        if (cut->entries[i].kind == ENTRY_REMOVED && cut->entries[i].stays &&
            is_below(cut->entries[index].path, cut->entries[i].path))
            return 1;
    return 0;
}

static void bring_back(const entry *lost, const char *name)
{
    char block[COH_PAGE_BYTES];
    off_t at = 0;
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return; /* a later file has the same name */
    for (ssize_t got; (got = pread(lost->kept, block, sizeof(block), at)) > 0; at += got)
        if (pwrite(fd, block, (size_t)got, at) != got)
            _exit(FILE_FAULTS_EXIT_CODE + 1);
    close(fd);
}

static void undo(power_cut *cut, uint32_t index)
{
    char name[PATH_MAX];
    entry *lost = &cut->entries[index];
    int is_moved = name_now(cut, index, lost->kind == ENTRY_RENAMED ? lost->to : lost->path, name);
    switch (lost->kind) {
    case ENTRY_MADE:
        if (!is_moved) /* else the journal has it under its later name */
            (void)temporary_remove(name);
        break;
    case ENTRY_RENAMED:
        (void)rename(name, lost->path);
        break;
    case ENTRY_UNLINKED:
        if (lost->kept >= 0 && !folder_is_gone(cut, index))
            bring_back(lost, name);
        break;
    case ENTRY_REMOVED:
        if (mkdir(name, 0777) != 0)
            lost->stays = 1; /* a later folder has the same name */
        break;
    }
}

/* Forgets bytes before entries, so that a file that comes back comes back without them; then undoes
 * entries, the newest first. */
static void forget(power_cut *cut)
{
    for (int i = 0; i < FILES_MOST; i++)
        if (cut->files[i].fd >= 0)
            forget_bytes(cut, &cut->files[i]);
    for (uint32_t i = 0; i < cut->entry_count; i++)
        cut->entries[i].stays = cut->entries[i].is_durable || (cut->seed != 0 && draw(cut, 2) != 0);
    for (uint32_t i = cut->entry_count; i-- > 0;)
        if (!cut->entries[i].stays)
            undo(cut, i);
}

void power_cut_enter(power_cut *cut)
{
    if (cut == NULL || ++cut->count != cut->at)
        return;
    forget(cut);
    _exit(FILE_FAULTS_EXIT_CODE);
}

/* ---- recording what was done ---- */

static entry *add(power_cut *cut, entry_kind kind, const char *path, const char *to)
{
    if (cut->entry_count == ENTRIES_MOST)
        _exit(FILE_FAULTS_EXIT_CODE + 1); /* else a test would wrongly pass */
    entry *added = &cut->entries[cut->entry_count++];
    added->kind = kind;
    added->is_durable = 0;
    added->kept = -1;
    snprintf(added->path, sizeof(added->path), "%s", path);
    snprintf(added->to, sizeof(added->to), "%s", to);
    return added;
}

void power_cut_made(power_cut *cut, const char *path)
{
    if (cut != NULL)
        add(cut, ENTRY_MADE, path, "");
}

void power_cut_renamed(power_cut *cut, const char *from, const char *to)
{
    if (cut != NULL)
        add(cut, ENTRY_RENAMED, from, to);
}

int power_cut_unlink_begin(power_cut *cut, const char *path)
{
    return cut == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

void power_cut_unlink_end(power_cut *cut, const char *path, int kept, int succeeded)
{
    if (cut != NULL && succeeded)
        add(cut, ENTRY_UNLINKED, path, "")->kept = kept;
    else if (kept >= 0)
        close(kept);
}

void power_cut_removed_folder(power_cut *cut, const char *path)
{
    if (cut != NULL)
        add(cut, ENTRY_REMOVED, path, "");
}

static file *find_file(power_cut *cut, int fd, struct stat *out_facts)
{
    if (fstat(fd, out_facts) != 0)
        return NULL;
    for (int i = 0; i < FILES_MOST; i++)
        if (cut->files[i].fd >= 0 && cut->files[i].device == out_facts->st_dev &&
            cut->files[i].number == out_facts->st_ino)
            return &cut->files[i];
    return NULL;
}

static file *add_file(power_cut *cut, int fd, const struct stat *facts)
{
    int i = 0;
    while (i < FILES_MOST && cut->files[i].fd >= 0)
        i++;
    int ours = i < FILES_MOST ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (ours < 0)
        _exit(FILE_FAULTS_EXIT_CODE + 1);
    cut->files[i] = (file){ .fd = ours,
                            .device = facts->st_dev,
                            .number = facts->st_ino,
                            .durable_bytes = (uint64_t)facts->st_size,
                            .dirty_begin = UINT64_MAX };
    return &cut->files[i];
}

void power_cut_write(power_cut *cut, int fd, uint64_t begin, uint64_t end)
{
    struct stat facts;
    if (cut == NULL)
        return;
    file *changed = find_file(cut, fd, &facts);
    if (changed == NULL)
        changed = add_file(cut, fd, &facts);
    if (begin >= end)
        return;
    if (begin < changed->dirty_begin)
        changed->dirty_begin = begin;
    if (end > changed->dirty_end)
        changed->dirty_end = end;
}

/* ---- recording what was flushed ---- */

void power_cut_synced(power_cut *cut, int fd)
{
    struct stat facts;
    file *flushed = cut == NULL ? NULL : find_file(cut, fd, &facts);
    if (flushed == NULL)
        return;
    close(flushed->fd);
    flushed->fd = -1;
}

static int is_entry_of(const char *path, const char *folder)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        return strcmp(folder, ".") == 0;
    size_t length = slash == path ? 1 : (size_t)(slash - path);
    return strlen(folder) == length && strncmp(path, folder, length) == 0;
}

/* Once the removal of a folder is durable, so is the loss of its contents. */
static void settle_below(power_cut *cut, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++)
        if (is_below(cut->entries[i].path, cut->entries[index].path))
            cut->entries[i].is_durable = 1;
}

/* Restarts a journal in which everything is durable. */
static void empty(power_cut *cut)
{
    for (uint32_t i = 0; i < cut->entry_count; i++)
        if (!cut->entries[i].is_durable)
            return;
    for (uint32_t i = 0; i < cut->entry_count; i++)
        if (cut->entries[i].kept >= 0)
            close(cut->entries[i].kept);
    cut->entry_count = 0;
}

void power_cut_synced_folder(power_cut *cut, const char *path)
{
    if (cut == NULL)
        return;
    for (uint32_t i = 0; i < cut->entry_count; i++) {
        if (!is_entry_of(cut->entries[i].path, path))
            continue;
        cut->entries[i].is_durable = 1;
        if (cut->entries[i].kind == ENTRY_REMOVED)
            settle_below(cut, i);
    }
    empty(cut);
}

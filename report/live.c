/* Follows a run's folder. The one idea: steps.jsonl only grows, so its last whole line is the place
 * to read on from; if it is shorter than that, or another run has begun from step 0, everything is
 * read again. Next: cli/watch.c, which draws it. */
#include "report/live.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cohobate/run.h"

static coh_status path_of(const report_live *live, const char *name, char out[PATH_MAX])
{
    if (snprintf(out, PATH_MAX, "%s/%s", live->run.folder, name) >= PATH_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "the path %s is too long", live->run.folder);
    return COH_OK;
}

static double seconds_of(const struct timespec *moment)
{
    return (double)moment->tv_sec + 1e-9 * (double)moment->tv_nsec;
}

/* ---- steps ---- */

static void forget_steps(report_live *live)
{
    report_live fresh = { .run = live->run,
                          .seen = live->seen,
                          .block = live->block,
                          .is_going = live->is_going,
                          .process = live->process,
                          .stride = 1 };
    *live = fresh;
}

/* Halves the points. */
static void widen(report_live *live)
{
    report_live_point *points = live->points;
    for (int i = 0; i < REPORT_LIVE_POINTS / 2; i++)
        points[i] = (report_live_point){ points[2 * i].sum + points[2 * i + 1].sum,
                                         points[2 * i].count + points[2 * i + 1].count };
    memset(points + REPORT_LIVE_POINTS / 2, 0, sizeof(*points) * REPORT_LIVE_POINTS / 2);
    live->stride *= 2;
}

static void add_point(report_live *live, const report_line *line)
{
    const report_line *last = report_live_last(live);
    if (line->step == 0)
        return;
    while ((line->step - 1) / live->stride >= REPORT_LIVE_POINTS)
        widen(live);
    const uint64_t at = (line->step - 1) / live->stride;
    if (last && last->step >= line->step) /* a resumed run repeats steps */
        memset(live->points + at, 0, sizeof(*live->points) * (REPORT_LIVE_POINTS - at));
    if (!isfinite(line->loss))
        return;
    live->points[at].sum += line->loss;
    live->points[at].count++;
}

static void take_step(report_live *live, const report_line *line)
{
    add_point(live, line);
    live->recent[live->line_count++ % REPORT_LIVE_RECENT] = *line;
    live->skipped_count += (uint64_t)line->is_skipped;
    live->slow_count += (uint64_t)line->is_slow;
    live->slow_step = line->is_slow ? line->step : live->slow_step;
    live->throttled_s += line->throttled_s;
    live->store_retries += line->store_retries;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        live->link_bytes[lane] += line->link_bytes[lane];
}

static void take_line(report_live *live, const char *text, size_t bytes)
{
    report_line line;
    if (!report_line_read(text, bytes, &line)) {
        live->bad_lines++;
    } else if (!line.is_validation) {
        take_step(live, &line);
    } else {
        live->validation = line;
        const double lowest = live->validation_count++ ? live->best_validation.loss : NAN;
        if (!isfinite(lowest) || line.loss < lowest)
            live->best_validation = line;
    }
}

/* Takes the whole lines of the block. Returns their bytes; 0: there is none. */
static size_t take_block(report_live *live, size_t bytes)
{
    size_t begin = 0;
    for (const char *end; (end = memchr(live->block + begin, '\n', bytes - begin)) != NULL;) {
        const size_t next = (size_t)(end - live->block) + 1;
        if (!live->is_in_long_line)
            take_line(live, live->block + begin, next - begin);
        live->is_in_long_line = 0;
        begin = next;
    }
    return begin;
}

static coh_status read_on(report_live *live, int descriptor, const char *path, int *out_is_more)
{
    for (size_t sum = 0; sum < REPORT_LIVE_MOST;) {
        const ssize_t got = pread(descriptor, live->block, REPORT_LIVE_BLOCK, live->offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return coh_fail(COH_ERR_IO, "%s cannot be read: %s", path, strerror(errno));
        size_t taken = take_block(live, (size_t)got);
        if (taken == 0 && got == REPORT_LIVE_BLOCK) { /* no line of ours is as long */
            live->bad_lines += !live->is_in_long_line;
            live->is_in_long_line = 1;
            taken = (size_t)got;
        }
        live->offset += (off_t)taken;
        sum += taken;
        if (got < REPORT_LIVE_BLOCK)
            return COH_OK;
    }
    *out_is_more = 1;
    return COH_OK;
}

static coh_status read_steps(report_live *live, int *out_is_more)
{
    char path[PATH_MAX];
    struct stat facts;
    COH_TRY(path_of(live, "steps.jsonl", path));
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0 && errno == ENOENT)
        return COH_OK;
    if (descriptor < 0)
        return coh_fail(COH_ERR_IO, "%s cannot be read: %s", path, strerror(errno));
    coh_status status = COH_OK;
    if (fstat(descriptor, &facts) == 0 && S_ISREG(facts.st_mode)) {
        if (facts.st_size < live->offset)
            forget_steps(live);
        live->bytes = facts.st_size;
        live->written_at = seconds_of(&facts.st_mtim);
        status = read_on(live, descriptor, path, out_is_more);
    }
    (void)close(descriptor);
    return status;
}

/* ---- the other files ---- */

/* An inode number alone may be used again. */
static int is_same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static coh_status read_facts(report_live *live)
{
    char path[PATH_MAX];
    struct stat now;
    report_run fresh;
    COH_TRY(path_of(live, "run.json", path));
    if (stat(path, &now) == 0 && is_same(&now, &live->seen))
        return COH_OK;
    COH_TRY(report_run_read_facts(live->run.folder, &fresh));
    const int is_anew =
        strcmp(fresh.facts.started, live->run.facts.started) != 0 && fresh.facts.first_step == 0;
    report_run_close(&live->run);
    live->run = fresh;
    live->seen = now;
    if (is_anew)
        forget_steps(live);
    return COH_OK;
}

/* Finds the newest checkpoint, and whether one is being written. */
static void list_checkpoints(report_live *live)
{
    DIR *listing = opendir(live->run.folder);
    const struct dirent *entry;
    struct stat facts;
    live->saved_step = 0;
    live->is_saving = 0;
    while (listing && (entry = readdir(listing))) {
        uint64_t step;
        const char *rest = report_step_of(entry->d_name, &step);
        live->is_saving |= rest && live->is_going && strcmp(rest, ".partial") == 0;
        if (!rest || rest[0] != '\0' || step <= live->saved_step ||
            fstatat(dirfd(listing), entry->d_name, &facts, 0) != 0 || !S_ISDIR(facts.st_mode))
            continue;
        live->saved_step = step;
        live->saved_at = seconds_of(&facts.st_mtim);
    }
    if (listing)
        closedir(listing);
}

static coh_status look_at_lock(report_live *live)
{
    int32_t is_held;
    COH_TRY(coh_run_lock_holder(live->run.folder, &is_held, &live->process));
    live->is_going = is_held;
    return COH_OK;
}

/* ---- the whole ---- */

coh_status report_live_look(report_live *live, int *out_is_more)
{
    *out_is_more = 0;
    /* The lock first: a run that has ended writes nothing after it. */
    COH_TRY(look_at_lock(live));
    COH_TRY(read_facts(live));
    COH_TRY(read_steps(live, out_is_more));
    list_checkpoints(live);
    return COH_OK;
}

/* A run that is planning, tokenizing or loading has a lock and no run.json. */
static coh_status explain_missing(const char *folder, coh_status status)
{
    char path[PATH_MAX];
    int32_t is_held;
    int64_t process;
    if (status != COH_ERR_ARGUMENT || snprintf(path, PATH_MAX, "%s/lock", folder) >= PATH_MAX ||
        access(path, F_OK) != 0)
        return status;
    COH_TRY(coh_run_lock_holder(folder, &is_held, &process));
    if (!is_held)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s holds no run.json: its run ended before its first step, or recorded "
                        "nothing",
                        folder);
    return coh_fail(COH_ERR_ARGUMENT,
                    "the run in %s (process %" PRId64 ") has not begun its first step: try again "
                    "when it has",
                    folder, process);
}

coh_status report_live_open(const char *folder, report_live *out_live)
{
    *out_live = (report_live){ .stride = 1 };
    coh_status status = report_run_read_facts(folder, &out_live->run);
    if (status != COH_OK)
        return explain_missing(folder, status);
    status = COH_ALLOC(REPORT_LIVE_BLOCK, &out_live->block);
    if (status != COH_OK)
        report_live_close(out_live);
    return status;
}

void report_live_close(report_live *live)
{
    coh_free(live->block);
    live->block = NULL;
    report_run_close(&live->run);
}

const report_line *report_live_last(const report_live *live)
{
    return live->line_count ? &live->recent[(live->line_count - 1) % REPORT_LIVE_RECENT] : NULL;
}

static int by_size(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

void report_live_pace(const report_live *live, report_pace *out_pace)
{
    const report_line *last = report_live_last(live);
    const double steps = live->run.facts.steps;
    double sum_s = 0, tokens = 0, sorted[REPORT_LIVE_RECENT];
    report_pace *p = out_pace;
    *p = (report_pace){ .step_s = NAN, .tokens_per_s = NAN, .left_s = NAN, .done = NAN };
    p->median_s = NAN;
    p->steps = live->line_count < REPORT_LIVE_RECENT ? live->line_count : REPORT_LIVE_RECENT;
    if (!last)
        return;
    for (uint64_t i = 0; i < p->steps; i++) {
        const report_line *line = &live->recent[i];
        sorted[i] = isfinite(line->seconds) ? line->seconds : 0;
        sum_s += sorted[i];
        tokens += isfinite(line->tokens) ? line->tokens : 0;
        for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
            p->waits[lane] += line->exposed_s[lane];
            p->link_bytes[lane] += line->link_bytes[lane] / (double)p->steps;
        }
    }
    qsort(sorted, p->steps, sizeof(*sorted), by_size);
    p->median_s = sorted[p->steps / 2];
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        p->waits[lane] = sum_s > 0 ? fmin(p->waits[lane] / sum_s, 1) : 0;
    if (sum_s > 0) {
        p->step_s = sum_s / (double)p->steps;
        p->tokens_per_s = tokens / sum_s;
    }
    if (steps > 0) {
        p->done = fmin((double)last->step / steps, 1);
        p->left_s = fmax(steps - (double)last->step, 0) * p->step_s;
    }
}

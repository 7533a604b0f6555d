/* Writes TensorBoard's event files. The one idea: an event has a handful of fields, so it is built
 * field by field in a buffer, without a library for protobuf. Next: report.c, the caller.
 *
 * The fields: Event { 1: double wall_time, 2: int64 step, 3: string file_version, 5: Summary,
 * 7: SessionLog }, Summary { 1: Value, repeated }, Value { 1: string tag, 2: float simple_value },
 * SessionLog { 1: status, START = 1 }. */
#include "cli/tensorboard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char mark[] = "events.out.tfevents.";

/* ---- protobuf ---- */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum { EVENT_WALL_TIME = 1, EVENT_STEP, EVENT_FILE_VERSION, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { VALUE_BYTES = CLI_TAG_BYTES + 16, RECORD_BYTES = 64 + CLI_SCALARS_MOST * VALUE_BYTES };

typedef struct message {
    size_t used;
    uint8_t at[RECORD_BYTES];
} message;

/* Numbers are little-endian, as on every processor that this runs on. */
static void put_raw(message *m, const void *bytes, size_t byte_count)
{
    memcpy(m->at + m->used, bytes, byte_count);
    m->used += byte_count;
}

static void put_varint(message *m, uint64_t number)
{
    for (; number >= 0x80; number >>= 7)
        m->at[m->used++] = (uint8_t)(number | 0x80);
    m->at[m->used++] = (uint8_t)number;
}

static void put_key(message *m, int field, int type)
{
    put_varint(m, (uint64_t)(field << 3 | type));
}

static void put_bytes(message *m, int field, const void *bytes, size_t byte_count)
{
    put_key(m, field, BYTES);
    put_varint(m, byte_count);
    put_raw(m, bytes, byte_count);
}

static void begin_event(message *event)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    event->used = 0;
    put_key(event, EVENT_WALL_TIME, FIXED64);
    put_raw(event, &seconds, sizeof(seconds));
}

static void put_scalar(message *summary, const cli_scalar *scalar)
{
    message value = { 0 };
    const float number = (float)scalar->value;
    put_bytes(&value, 1, scalar->tag, strnlen(scalar->tag, CLI_TAG_BYTES));
    put_key(&value, 2, FIXED32);
    put_raw(&value, &number, sizeof(number));
    put_bytes(summary, 1, value.at, value.used);
}

/* ---- records ---- */

/* CRC-32C (Castagnoli), rotated and shifted by a constant, as TFRecord has it. */
static uint32_t masked_crc(const void *bytes, size_t byte_count)
{
    const uint8_t *next = bytes;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < byte_count; i++) {
        crc ^= next[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* Appends a record, or leaves the file as it was. */
static coh_status append(int descriptor, const message *event)
{
    uint8_t record[RECORD_BYTES + 16];
    const uint64_t length = event->used;
    const uint32_t length_crc = masked_crc(&length, sizeof(length));
    const uint32_t event_crc = masked_crc(event->at, event->used);
    memcpy(record, &length, 8);
    memcpy(record + 8, &length_crc, 4);
    memcpy(record + 12, event->at, event->used);
    memcpy(record + 12 + event->used, &event_crc, 4);
    const off_t end = lseek(descriptor, 0, SEEK_END);
    const coh_status status = cli_write(descriptor, record, event->used + 16);
    const int error = errno;
    if (status != COH_OK && end >= 0 && ftruncate(descriptor, end) != 0)
        return status; /* TensorBoard stops at half a record */
    errno = error;
    return status;
}

/* ---- the file ---- */

/* Ten digits, so that names are in the order of the seconds. */
#define SECONDS_MOST 9999999999

/* The seconds in the name of the newest event file of a folder; 0: there is none. TensorBoard reads
 * files in the order of their names. */
static int64_t newest_seconds(const char *folder)
{
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    int64_t newest = 0;
    while (listing && (entry = readdir(listing))) {
        if (strncmp(entry->d_name, mark, sizeof(mark) - 1) != 0)
            continue;
        const int64_t seconds = strtoll(entry->d_name + sizeof(mark) - 1, NULL, 10);
        newest = seconds > newest && seconds < SECONDS_MOST ? seconds : newest;
    }
    if (listing)
        closedir(listing);
    return newest;
}

static int make_file(cli_tensorboard *board)
{
    char host[256] = "host";
    const int64_t newest = newest_seconds(board->folder), now = (int64_t)time(NULL);
    (void)gethostname(host, sizeof(host) - 1);
    for (char *c = host; *c; c++) /* it is a part of a file's name */
        *c = *c == '/' ? '-' : *c;
    snprintf(board->path, sizeof(board->path), "%s/%s%010" PRId64 ".%.200s.%ld.0", board->folder,
             mark, now > newest ? now : newest + 1, host, (long)getpid());
    return open(board->path, O_CREAT | O_EXCL | O_WRONLY | O_APPEND | O_CLOEXEC, 0666);
}

static coh_status write_begin(int descriptor, uint64_t first_step)
{
    static const uint8_t start[] = { 1 << 3 | VARINT, 1 };
    message event;
    begin_event(&event);
    put_bytes(&event, EVENT_FILE_VERSION, "brain.Event:2", 13);
    CLI_TRY(append(descriptor, &event));
    begin_event(&event);
    put_key(&event, EVENT_STEP, VARINT);
    put_varint(&event, first_step + 1);
    put_bytes(&event, EVENT_SESSION, start, sizeof(start));
    return append(descriptor, &event);
}

void cli_tensorboard_clear(cli_tensorboard *out_board)
{
    out_board->descriptor = -1;
    out_board->has_made_folder = 0;
    out_board->folder[0] = out_board->path[0] = '\0';
}

coh_status cli_tensorboard_open(const char *folder, uint64_t first_step, cli_tensorboard *out_board)
{
    cli_tensorboard *board = out_board;
    cli_tensorboard_clear(board);
    snprintf(board->folder, sizeof(board->folder), "%s", folder);
    board->has_made_folder = mkdir(folder, 0777) == 0;
    if (board->has_made_folder || errno == EEXIST)
        board->descriptor = make_file(board);
    if (board->descriptor >= 0 && write_begin(board->descriptor, first_step) == COH_OK)
        return COH_OK;
    const int error = errno;
    cli_tensorboard_close(board);
    cli_tensorboard_undo(board);
    return cli_fail(COH_ERR_IO,
                    "--tensorboard %s cannot be written: %s: give another folder, or leave it out",
                    folder, strerror(error));
}

void cli_tensorboard_close(cli_tensorboard *board)
{
    if (board->descriptor >= 0)
        close(board->descriptor);
    board->descriptor = -1;
}

void cli_tensorboard_undo(const cli_tensorboard *board)
{
    if (board->path[0])
        (void)unlink(board->path);
    if (board->has_made_folder)
        (void)rmdir(board->folder); /* it stays if others put files into it */
}

coh_status cli_tensorboard_add(cli_tensorboard *board, uint64_t step, const cli_scalar *scalars,
                               int count)
{
    message event, summary = { 0 };
    if (board->descriptor < 0)
        return COH_OK;
    for (int i = 0; i < count && i < CLI_SCALARS_MOST; i++)
        put_scalar(&summary, &scalars[i]);
    begin_event(&event);
    put_key(&event, EVENT_STEP, VARINT);
    put_varint(&event, step);
    put_bytes(&event, EVENT_SUMMARY, summary.at, summary.used);
    const coh_status status = append(board->descriptor, &event);
    if (status != COH_OK)
        cli_tensorboard_close(board);
    return status;
}

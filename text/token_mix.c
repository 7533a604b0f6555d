/* Mixes token files into one, each as often as it shall be read in a pass. The one idea: a file is
 * taken in units that may stand anywhere in the mixture; whole copies take them in order, and the
 * fraction of a copy takes the first ones of a seeded permutation. Next: token_file.c reads,
 * token_writer.c writes. */
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/plural.h"
#include "base/struct_bytes.h"
#include "text/permute.h"
#include "text/token_file.h"

/* Ids read at once: 80 KiB on the stack with their marks. */
#define PASS_IDS 16384u

/* Ids of a unit of a packed file, of which joints are rare, or a PIECES-th of a short file. */
#define PIECE_MOST  (UINT64_C(1) << 16)
#define PIECE_LEAST 512u
#define PIECES      64u

/* A pass that no run reaches: a unit is chosen independently of the order of windows. */
#define CHOICE_PASS UINT64_MAX

typedef struct mixture {
    const coh_token_mix_options *options;
    coh_token_writer *writer;
    uint32_t window; /* of the mixture; 0: all files are packed */
    int has_documents;
} mixture;

/* A file in the mixture. Unit u is the ids from u * stride on, `size` of them. */
typedef struct part {
    coh_token_file *file;
    uint64_t size, stride, count;
} part;

/* ---- the files together ---- */

static coh_status check_times(const coh_token_file *file, double times)
{
    if (times > 0 && times <= COH_TOKEN_MIX_TIMES)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "%s cannot be read %g times in a pass: more than 0, and at most %d", file->path,
                    times, COH_TOKEN_MIX_TIMES);
}

/* Checks that `file` may stand next to those before it, and adds it to the mixture's header. */
static coh_status join(const coh_token_file *first, const coh_token_file *file,
                       coh_token_header *header)
{
    const coh_token_header *of = &file->header;
    if (file->is_raw)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s does not say which tokenizer made its ids, so it cannot be mixed: make "
                        "a token file of the text",
                        file->path);
    if (of->identity != first->header.identity)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s was made by another tokenizer (%016" PRIx64 ") than %s (%016" PRIx64
                        "): tokenize both with the same",
                        file->path, of->identity, first->path, first->header.identity);
    if (of->window > 0 && header->window > 0 && of->window != header->window)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s has documents in windows of %" PRIu32
                        " tokens, and a file before it in windows of %" PRIu32
                        ": make one of them again, for the same length",
                        file->path, of->window, header->window);
    header->window = of->window > 0 ? of->window : header->window;
    header->has_mask |= of->has_mask;
    header->has_documents |= of->has_documents;
    header->vocabulary = of->vocabulary > header->vocabulary ? of->vocabulary : header->vocabulary;
    return COH_OK;
}

/* ---- one file ---- */

static part part_of(const mixture *m, coh_token_file *file)
{
    const uint64_t count = file->header.count, wide = m->window + UINT64_C(1);
    if (file->header.window > 0)
        return (part){ file, wide, wide, count / wide };
    if (m->window > 0) /* as a run cuts it: neighbours share an id */
        return (part){ file, wide, m->window, count > 0 ? (count - 1) / m->window : 0 };
    uint64_t size = count / PIECES;
    size = size < PIECE_LEAST ? PIECE_LEAST : size > PIECE_MOST ? PIECE_MOST : size;
    return (part){ file, size, size, (count + size - 1) / size };
}

/* Copies ids [begin, begin + count); those of a packed file become a window if the mixture has
 * windows: nothing predicts its first id, and it is one document. */
static coh_status copy_ids(const mixture *m, coh_token_file *file, uint64_t begin, uint64_t count)
{
    int32_t ids[PASS_IDS];
    uint8_t marks[PASS_IDS];
    for (uint64_t at = 0; at < count; at += PASS_IDS) {
        const size_t some = count - at < PASS_IDS ? (size_t)(count - at) : PASS_IDS;
        COH_TRY(coh_token_file_read_marks(file, begin + at, some, ids, marks));
        if (at == 0 && m->window > 0 && file->header.window == 0)
            marks[0] = 0;
        if (at == 0 && m->has_documents && !file->header.has_documents)
            marks[0] |= COH_TOKEN_BEGINS;
        COH_TRY(coh_token_writer_add(m->writer, ids, marks, some));
    }
    return COH_OK;
}

static coh_status copy_unit(const mixture *m, const part *p, uint64_t unit, uint64_t most)
{
    const uint64_t begin = unit * p->stride, left = p->file->header.count - begin;
    const uint64_t count = p->size < left ? p->size : left;
    if (m->options->go_on)
        COH_TRY(m->options->go_on(m->options->go_on_context));
    return copy_ids(m, p->file, begin, count < most ? count : most);
}

/* Adds a share, less than 1, of the file: whole windows, or as many ids of a packed file. */
static coh_status add_fraction(const mixture *m, const part *p, double share)
{
    const int is_whole = m->window > 0;
    const uint64_t all = is_whole ? p->count * p->size : p->file->header.count;
    const uint64_t taken = is_whole ? (uint64_t)llround(share * (double)p->count) * p->size
                                    : (uint64_t)llround(share * (double)all);
    const uint64_t before = coh_token_writer_count(m->writer);
    for (uint64_t k = 0, done = 0; done < taken; k++) {
        COH_TRY(
            copy_unit(m, p, coh_permute(m->options->seed, CHOICE_PASS, p->count, k), taken - done));
        done = coh_token_writer_count(m->writer) - before;
    }
    return COH_OK;
}

/* *out_count: ids that the file has in the mixture. */
static coh_status add_part(const mixture *m, coh_token_file *file, double times,
                           uint64_t *out_count)
{
    const part p = part_of(m, file);
    const uint64_t before = coh_token_writer_count(m->writer);
    const double whole = floor(times);
    for (uint64_t copy = 0; copy < (uint64_t)whole; copy++)
        for (uint64_t unit = 0; unit < p.count; unit++)
            COH_TRY(copy_unit(m, &p, unit, UINT64_MAX));
    COH_TRY(add_fraction(m, &p, times - whole));
    *out_count = coh_token_writer_count(m->writer) - before;
    if (*out_count > 0)
        return COH_OK;
    if (m->window > 0)
        return coh_fail(COH_ERR_CORRUPT,
                        "%g of the %" PRIu64 " window%s of %" PRIu32
                        " tokens of %s are none: take more of it, or leave it out",
                        times, p.count, COH_PLURAL_S(p.count), m->window, file->path);
    return coh_fail(COH_ERR_CORRUPT,
                    "%g of the %" PRIu64 " id%s of %s are none: take more of it, or leave it out",
                    times, file->header.count, COH_PLURAL_S(file->header.count), file->path);
}

/* ---- the mixture ---- */

static coh_status check_files(coh_token_file *const *files, const double *times, int32_t count,
                              const coh_token_mix_options *options, coh_token_header *out_header)
{
    memset(out_header, 0, sizeof(*out_header));
    for (int32_t i = 0; i < count; i++) {
        struct stat facts;
        COH_NEED(files[i]);
        COH_TRY(check_times(files[i], times[i]));
        COH_TRY(join(files[0], files[i], out_header));
        if (fstat(files[i]->fd, &facts) == 0)
            COH_TRY(coh_token_output_check(options->out_path, files[i]->path, &facts));
    }
    if (out_header->has_documents && out_header->vocabulary > UINT64_C(1) << 30)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a vocabulary of %" PRIu64 " ids leaves no room for marks of documents: "
                        "mix files whose documents are not separate",
                        out_header->vocabulary);
    for (int32_t i = 0; i < count; i++)
        COH_TRY(coh_token_file_check(files[i]));
    return COH_OK;
}

static coh_status write_all(const mixture *m, coh_token_file *const *files, const double *times,
                            int32_t count, uint64_t *out_counts)
{
    for (int32_t i = 0; i < count; i++) {
        uint64_t added;
        COH_TRY(add_part(m, files[i], times[i], &added));
        if (out_counts)
            out_counts[i] = added;
    }
    COH_TRY(coh_token_writer_finish(m->writer));
    return coh_token_writer_publish(m->writer);
}

void coh_token_mix_options_init_sized(coh_token_mix_options *out_options, size_t bytes)
{
    const coh_token_mix_options defaults = { 0 };
    coh_struct_init(&defaults, sizeof(defaults), out_options, bytes);
}

coh_status coh_token_file_mix(coh_token_file *const *files, const double *times, int32_t count,
                              const coh_token_mix_options *options, uint64_t *out_counts)
{
    coh_token_mix_options own;
    coh_token_header header;
    COH_NEED(files);
    COH_NEED(times);
    COH_NEED_STRUCT(coh_token_mix_options, options);
    coh_token_mix_options_init(&own);
    coh_struct_read(options, &own, sizeof(own));
    if (count < 1 || !own.out_path || !own.out_path[0])
        return coh_fail(COH_ERR_ARGUMENT, "a mixture needs at least one token file and a path");
    COH_TRY(check_files(files, times, count, &own, &header));
    mixture m = { .options = &own, .window = header.window, .has_documents = header.has_documents };
    COH_TRY(coh_token_writer_create(own.out_path, (int64_t)header.vocabulary,
                                    files[0]->header.identity, &m.writer));
    if (header.has_mask)
        coh_token_writer_mark(m.writer, header.window);
    if (header.has_documents)
        coh_token_writer_mark_documents(m.writer);
    const coh_status status = write_all(&m, files, times, count, out_counts);
    coh_token_writer_destroy(m.writer);
    return status;
}

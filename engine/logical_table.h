/* logical_table.h - the tensors and state streams of a checkpoint or hash.
 *
 * The one idea: states are data. A table lists streams (coh_state_stream); each tensor names its
 * optimizer and which of the streams it has. A *part* is counted per tensor, a *row* per table:
 *
 *   table:    streams 0 m, 1 v, 2 velocity        rows 0 work, 1 m, 2 v, 3 velocity
 *   tensor a: adamw, streams { 0, 1 }             parts 0, 1, 2 in rows 0, 1, 2
 *   tensor b: another, streams { 2 }              parts 0, 1    in rows 0, 3
 *   tensor c: not trained, no streams             part  0       in row  0
 *
 * Row 0 is work: f32 values. The visitors of chunks use parts; files and rows of grain hashes use
 * rows. */
#ifndef COH_ENGINE_LOGICAL_TABLE_H
#define COH_ENGINE_LOGICAL_TABLE_H

#include "base/check.h"
#include "cohobate/optimizer.h"

enum {
    COH_PART_WORK = 0,
    COH_LOGICAL_STREAMS = 64, /* of one table: all that the optimizers of a plan can have */
    COH_LOGICAL_ROWS = 1 + COH_LOGICAL_STREAMS
};

typedef struct coh_logical_tensor {
    const char *name;
    coh_shape shape; /* f32 */
    uint64_t elements;
    const char *optimizer;                  /* its name; NULL: not trained, no streams */
    int32_t stream_count;                   /* may be 0 with an optimizer */
    int32_t streams[COH_OPTIMIZER_STREAMS]; /* indices of the table's streams, each once */
} coh_logical_tensor;

/* Tensors are in the order of layout->parameters, so that coh_segment.parameter is the index of the
 * tensor. */
typedef struct coh_logical_table {
    const coh_logical_tensor *tensors;
    uint32_t tensor_count;
    const coh_state_stream *streams; /* distinct names; at most COH_LOGICAL_STREAMS */
    int32_t stream_count;
} coh_logical_table;

/* Checks that names, numbers and indices are allowed, and that no tensor overflows a file. Fails:
 * COH_ERR_ARGUMENT, COH_ERR_FULL. */
coh_status coh_logical_table_check(const coh_logical_table *table);

/* Checks a table and copies it, texts included, without the streams that no tensor has. Fails: as
 * the check; COH_ERR_MEMORY; *out_copy is then empty. */
coh_status coh_logical_table_copy(const coh_logical_table *table, coh_logical_table *out_copy);
/* Frees arrays and texts, all made by coh_alloc. Accepts a table that is filled in part. */
void coh_logical_table_free(coh_logical_table *table);

/* May an optimizer or stream have this name: a-z, 0-9 and _, below COH_OPTIMIZER_NAME_BYTES? */
int coh_logical_is_name(const char *name);

/* Returns the form of a row; row 0 is { "work", 4, 1, 1 }. */
const coh_state_stream *coh_logical_stream(const coh_logical_table *table, int row);
/* Returns the row of a tensor's part; -1: the tensor has no such part. */
int coh_logical_row(const coh_logical_tensor *tensor, int part);
/* Returns the tensor's part that is in a row; -1: the tensor lacks this stream. */
int coh_logical_part(const coh_logical_tensor *tensor, int row);

#endif

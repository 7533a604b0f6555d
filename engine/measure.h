/* measure.h - the inside of coh_profile_measure: parts that each measure one thing and leave it in
 * a profile.
 *
 *   measure_roof       products, a streaming pass, an empty line: what work is measured by
 *   measure_operator   every operator of the graphs, both phases, by the lines of their programs
 *   measure_chunk      norms, updates and additions by the size of a chunk
 *   measure_link       copies between device and host tier; measure_disk: the drive
 *   measure_host       beside a GPU: what the processor's memory and its updates are worth
 *   measure            the whole: which, in which order, and how lanes slow one another
 *
 * The one idea: each figure comes from the code that a step runs, on bytes that are as cold as a
 * step leaves them, and is a median with its spread.
 *
 * Threads: one thread measures (coh-measure); the pool helps it, and one more keeps another lane
 * busy. */
#ifndef COH_ENGINE_MEASURE_H
#define COH_ENGINE_MEASURE_H

#include "base/pool.h"
#include "cohobate/measure.h"
#include "engine/line_work.h"
#include "engine/measure_bed.h"
#include "memory/arena.h"
#include "planner/lower.h"
#include "planner/profile.h"

/* How long things are measured, and how much they may take. */
typedef struct coh_effort {
    uint32_t samples_least, samples_most;
    uint64_t budget_ns;  /* more samples than the least only within it */
    uint64_t window_ns;  /* of a rate: one sample */
    uint64_t cold_bytes; /* most that is touched between two uses of the same bytes */
    uint64_t pass_bytes; /* read by a streaming pass, and as many written */
    uint64_t batch_ns;   /* of a GPU: calls that are timed at once */
    uint64_t disk_bytes, disk_chunk_bytes; /* of the scratch file */
    uint64_t sustained_bytes; /* written to find what a drive sustains; 0: not measured */
    uint64_t link_bytes;      /* of each arena; copies are up to a quarter of it */
    uint32_t deepest;         /* lines in flight */
    uint32_t line_count;      /* of the chain of empty lines */
} coh_effort;

/* One transfer and its end. */
typedef struct coh_single {
    coh_status (*transfer)(void *context);
    void *context;
    uint64_t bytes;
} coh_single;
enum { COH_SINGLE_SMALL, COH_SINGLE_LARGE, COH_SINGLES };

typedef struct coh_measure {
    const coh_measure_options *options;
    coh_effort effort;
    coh_profile *profile;       /* what is known, and what is found */
    const coh_profile *earlier; /* whose operators are joined to what is found; NULL: none */
    size_t operator_capacity;
    coh_pool *pool;
    coh_bed host, gpu;                /* the second is zeroed where the host device is measured */
    coh_bed *bed;                     /* what is measured: one of them */
    uint32_t done_count, total_count; /* things to measure */
    coh_load loads[COH_LANE_COUNT];   /* of lanes that are open; turn NULL: not measured */
    /* Of the same lanes: one transfer of few bytes or of many, and then none. */
    coh_single singles[COH_LANE_COUNT][COH_SINGLES];
    int32_t algorithm_count; /* in the kernel table, before any was timed */
} coh_measure;

/* ---- measure.c ---- */

/* coh_profile_measure on that device, which must outlive the call. */
coh_status coh_profile_measure_on(const coh_measure_options *options,
                                  const coh_engine_device *device, const coh_profile *known,
                                  coh_profile **out_profile);

/* Tells that the next thing is under way. printf-like. */
void coh_measure_begin(coh_measure *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A sentence for people. printf-like. */
void coh_measure_say(const coh_measure *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- measure_machine.c ---- */

/* In the name of a profile some figures of which were measured in a hurry: warm, and few samples.
 * One without --quick takes none of it over. */
#define COH_MEASURE_QUICK ", quick"

/* Of processor, cores, memory, kernels and build: what a measured figure holds for. Never 0. */
uint64_t coh_machine_fingerprint(void);
/* The same with a GPU in it, which is named in what the profile says of its machine, and with the
 * driver that sees one of that name now; the host's for a profile of the host device. */
uint64_t coh_machine_fingerprint_of(const coh_profile *profile);
/* What the profile says of machine, build, limits and capacities. */
void coh_measure_machine(coh_measure *m);
/* Bytes that this process may lock; UINT64_MAX: any number. */
uint64_t coh_measure_memlock_bytes(void);

/* ---- measure_products.c: options->kernel_table ---- */

/* Takes the table, where there is one, and has algorithms that it lacks timed from now on. Does
 * nothing where no table is asked for. Fails: COH_ERR_ARGUMENT: not of a GPU, or a table of the
 * host's products, which would be lost; COH_ERR_CORRUPT, COH_ERR_IO, COH_ERR_MEMORY. */
coh_status coh_measure_products_begin(coh_measure *m);
/* Nothing is timed any more. */
void coh_measure_products_end(void);
/* Writes the table, or says why there is nothing to write. `status`: that of the measurement, which
 * is returned where it failed; what was timed before is written all the same, which is said.
 * Fails: COH_ERR_IO, COH_ERR_MEMORY. */
coh_status coh_measure_products_write(const coh_measure *m, coh_status status);

/* ---- measure_sample.c ---- */

enum { COH_SAMPLES_MOST = 32 };

typedef struct coh_samples {
    double values[COH_SAMPLES_MOST];
    uint32_t count;
    uint64_t begin_ns;
} coh_samples;

void coh_samples_begin(coh_samples *samples);
/* Is another one to be taken? */
int coh_samples_go_on(const coh_samples *samples, const coh_effort *effort);
void coh_samples_add(coh_samples *samples, double value);
/* Median, and what a tenth of the samples are below and above. All zero without samples. */
coh_figure coh_samples_figure(const coh_samples *samples);
/* Of the samples of both: means of their quantiles, by how many samples each has. Either may be
 * zeroed. */
coh_figure coh_figure_joined(const coh_figure *a, const coh_figure *b);
/* Samples of a load's rate, after one that does not count. */
coh_status coh_samples_of_rate(const coh_load *load, const coh_effort *effort,
                               coh_figure *out_figure);

/* ---- measure_roof.c ---- */

typedef struct coh_roofs coh_roofs;
/* Memory for the roofs. `coh_roofs_product` and `_pass` are loads on it: flops of products, bytes
 * of a streaming pass. Fails: COH_ERR_MEMORY, COH_ERR_DEVICE. */
coh_status coh_roofs_open(coh_measure *m, coh_roofs **out_roofs);
void coh_roofs_close(coh_roofs *roofs); /* accepts NULL */
coh_load coh_roofs_product(coh_roofs *roofs, coh_dtype dtype);
coh_load coh_roofs_pass(coh_roofs *roofs);
/* Rates of products and memory, and what a line costs beside its kernel. */
coh_status coh_measure_roofs(coh_measure *m, coh_roofs *roofs);

/* ---- measure_sheet.c: what the lines of the graphs are, and memory for them ---- */

/* The lines of a body in memory; the last micro-batch's are those that are measured. */
typedef struct coh_measure_sheet {
    const coh_graph *graph;
    int32_t microbatch_count;
    coh_layout layout;
    coh_object_map map;
    coh_sheet sheet;
} coh_measure_sheet;

/* As a plan by the profile that is measured has them: workspaces are those of its kind of device,
 * gradients those of the options. */
coh_status coh_measure_sheet_init(const coh_measure *m, const coh_graph *graph,
                                  uint64_t chunk_bytes, int with_cache, int32_t microbatch_count,
                                  coh_measure_sheet *out_sheet);
void coh_measure_sheet_fini(coh_measure_sheet *sheet); /* accepts a zeroed one */

/* Where the bytes of objects that one line or two touch stand, one after the other. */
enum { COH_WINDOW_OBJECTS_MOST = 64 };
typedef struct coh_window {
    int32_t objects[COH_WINDOW_OBJECTS_MOST];
    uint64_t begins[COH_WINDOW_OBJECTS_MOST], ends[COH_WINDOW_OBJECTS_MOST]; /* in the object */
    uint64_t offsets[COH_WINDOW_OBJECTS_MOST];                               /* in the window */
    uint32_t count;
    uint64_t bytes;
} coh_window;

/* Adds what a line touches. Fails: COH_ERR_INTERNAL (more objects than a call has ports, or other
 * bytes of an object than a line before). */
coh_status coh_window_add(coh_window *window, const coh_measure_sheet *sheet,
                          const coh_sheet_line *line);
/* Where a byte of an object that was added stands in the window. */
uint64_t coh_window_place(const coh_window *window, int32_t object, uint64_t object_offset);
/* The line's first need of `role`, or NULL. */
const coh_need *coh_sheet_need(const coh_sheet *sheet, const coh_sheet_line *line, coh_role role);

/* ---- measure_cold.c ---- */

/* Memory that windows are taken from, one after the other, so that the bytes of a window are cold
 * when its turn comes. */
typedef struct coh_cold {
    coh_bed *bed;
    coh_arena *arena; /* of the host; NULL: a part of the bed's */
    uint64_t begin;
    char *base;
    uint64_t bytes;
    uint64_t sum; /* of what was read, so that it is read */
} coh_cold;

/* Fails: COH_ERR_MEMORY. */
coh_status coh_cold_open(coh_bed *bed, uint64_t bytes, coh_cold *out_cold);
void coh_cold_close(coh_cold *cold); /* accepts a zeroed one */
/* Fills all of it with numbers that are as good as f32 as they are as bf16: 0.03 to 0.06 in
 * magnitude, positive only where asked for. Fails: COH_ERR_MEMORY, COH_ERR_DEVICE. */
coh_status coh_cold_fill(coh_cold *cold, int positive);
/* Reads [begin, begin + bytes): into the caches, and others out of them. Not on a GPU. */
void coh_cold_read(coh_cold *cold, const void *begin, uint64_t bytes);
/* How many windows of that size there are, at most `most`; 0: it is too large. */
uint32_t coh_cold_windows(const coh_cold *cold, const coh_window *window, uint32_t most);

/* ---- measure_operator.c, measure_chunk.c ---- */

/* Adds a sample to the times of its kind, by rising work. Fails: COH_ERR_MEMORY. */
coh_status coh_measure_add(coh_measure *m, const coh_operator_times *what,
                           const coh_operator_sample *sample);
/* The same, or to the sample of so much work that is there. */
coh_status coh_measure_join(coh_measure *m, const coh_operator_times *what,
                            const coh_operator_sample *sample);
/* Is there a sample of so much work already? */
int coh_measure_knows(const coh_measure *m, const coh_operator_times *what, double flops,
                      double bytes);

typedef struct coh_operator_list coh_operator_list;
/* What is to be measured of the graphs and not known. */
coh_status coh_operators_find(coh_measure *m, coh_operator_list **out_list, uint32_t *out_count);
void coh_operators_free(coh_operator_list *list); /* accepts NULL */
/* As much memory as a step touches, but no more than is worth it; and room for the largest call. */
uint64_t coh_operators_bytes(const coh_measure *m, const coh_operator_list *list);
/* Each in its turn, several times; figures are of all turns. */
coh_status coh_measure_operators(coh_measure *m, coh_operator_list *list);
/* How many turns: each is a thing that is measured. */
uint32_t coh_operators_turns(const coh_measure *m);

enum { COH_MEASURE_CHUNK_SIZES = 5 }; /* things that coh_measure_chunks begins */
/* Memory that they take at best. */
uint64_t coh_chunks_bytes(const coh_measure *m);
coh_status coh_measure_chunks(coh_measure *m);

/* ---- measure_host.c ---- */

typedef struct coh_host_side coh_host_side;
/* Beside a GPU: memory of the processor; its updates are the load of the host lane until it is
 * closed. Fails: COH_ERR_MEMORY. */
coh_status coh_host_side_open(coh_measure *m, coh_host_side **out_side);
void coh_host_side_close(coh_measure *m, coh_host_side *side); /* accepts NULL */
coh_status coh_measure_host_side(coh_measure *m, coh_host_side *side);

/* ---- measure_steal.c ---- */

/* Sets the link's steal: the line through compute time lost to one transfer of each of two sizes.
 * Noise may make a loss negative, which counts as 0, or that of the larger transfer the smaller
 * one, which counts as equal. */
void coh_steal_fit(const double lost_ns[COH_SINGLES], const double bytes[COH_SINGLES],
                   coh_link_profile *link);

/* What one transfer of `lane` takes from those who compute, and how much slower it is beside them:
 * into the profile. The loads of both lanes are open. */
coh_status coh_measure_steal(coh_measure *m, coh_lane lane);

/* ---- measure_link.c, measure_disk.c: lanes that move bytes ---- */

typedef struct coh_links coh_links;
/* Device and host tier, and the lanes between them; their loads are in m->loads until the links are
 * closed. */
coh_status coh_links_open(coh_measure *m, coh_links **out_links);
void coh_links_close(coh_measure *m, coh_links *links); /* accepts NULL */
coh_status coh_measure_links(coh_measure *m, coh_links *links);

typedef struct coh_drive coh_drive;
/* A store in the disk folder, every chunk of it written once. Fails: COH_ERR_FULL, COH_ERR_IO, ...;
 * COH_ERR_ARGUMENT: no such folder. */
coh_status coh_drive_open(coh_measure *m, coh_drive **out_drive);
void coh_drive_close(coh_measure *m, coh_drive *drive); /* accepts NULL */
coh_status coh_measure_drive(coh_measure *m, coh_drive *drive);

/* The least of `depths` whose rate is within 5 % of the best. */
uint32_t coh_depth_choose(const uint32_t *depths, const coh_figure *rates, uint32_t count);

#endif

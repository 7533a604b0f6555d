/* measure.h - the inside of coh_profile_measure: each part measures one thing and writes it into a
 * profile.
 *
 *   measure_roof       products, a streaming pass, an empty instruction: bounds of all other work
 *   measure_operator   every operator of the graphs, both phases, by its instructions
 *   measure_chunk      norms, updates and additions by the size of a chunk
 *   measure_link       copies between device and host tier; measure_disk: the drive
 *   measure_host       with a GPU: rates of the processor's memory and of its updates
  *   measure_interference   compute time that single transfers cost
 *   measure_comm       exchanges between ranks

 *   measure            the whole: the choice and order of parts, and how lanes slow one another
 *
 * They use measure_bed (a device and the clock), measure_rate (loads, samples, figures) and
 * measure_window (the instructions of graphs, and cold memory for them). Roofs, links, drive and
 * host side stay open to the end, because their loads are measured together.
 *
 * The one idea: each figure comes from the code that a step runs, on bytes that are as cold as in a
 * step, and is a median with its spread.
 *
 * Threads: one thread measures (coh-measure); the pool helps it, and one more keeps another lane
 * busy. */
#ifndef COH_ENGINE_MEASURE_H
#define COH_ENGINE_MEASURE_H

#include "base/pool.h"
#include "cohobate/measure.h"
#include "engine/instruction_work.h"
#include "engine/measure_bed.h"
#include "memory/arena.h"
#include "planner/lower.h"
#include "planner/profile.h"

/* Limits on the time, samples and memory of a measurement. */
typedef struct coh_measure_effort {
    uint32_t samples_least, samples_most;
    uint64_t budget_ns;  /* allows more samples than the least */
    uint64_t window_ns;  /* of one sample of a rate */
    int host_scale;      /* of the products that are the roofs of a host (measure_roof.c) */
    uint64_t cold_bytes; /* most bytes touched between two uses of the same bytes */
    uint64_t pass_bytes; /* read by a streaming pass, which writes as many */
    uint64_t batch_ns;   /* of a GPU: duration of calls timed together */
    uint64_t heat_ns;    /* of a GPU: products in bf16 before their rate is measured */
    uint64_t disk_bytes, disk_chunk_bytes; /* of the scratch file */
    uint64_t sustained_bytes;   /* written to find a drive's sustained rate; 0: not measured */
    uint64_t link_bytes;        /* of each arena; copies take up to a quarter of it */
    uint32_t deepest;           /* most instructions in flight */
    uint32_t instruction_count; /* of the chain of empty instructions */
} coh_measure_effort;

/* Raises what a measurement of a host touches beyond its caches of so many bytes: what they hold
 * would seem as fast as they are. */
void coh_effort_outgrow(coh_measure_effort *effort, uint64_t cache_bytes);

/* One transfer, run to its end. */
typedef struct coh_single {
    coh_status (*transfer)(void *context);
    coh_status (*end)(void *context); /* after the last one; NULL: nothing */
    void *context;
    uint64_t bytes;
} coh_single;
enum { COH_SINGLE_SMALL, COH_SINGLE_LARGE, COH_SINGLES };

typedef struct coh_measure {
    const coh_measure_options *options;
    coh_measure_effort effort;
    coh_profile *profile;       /* what is known, and the new results */
    const coh_profile *earlier; /* its operators are joined to the new ones; NULL: none */
    size_t operator_capacity;
    coh_pool *pool;
    coh_bed host, gpu;                /* gpu is zeroed if the host device is measured */
    coh_bed *bed;                     /* the one that is measured */
    uint32_t done_count, total_count; /* things to measure */
    coh_load loads[COH_LANE_COUNT];   /* of open lanes; turn NULL: not measured */
    /* Of the same lanes: one transfer of few bytes or of many, followed by none. */
    coh_single singles[COH_LANE_COUNT][COH_SINGLES];
    int32_t algorithm_count; /* in the kernel table before any was timed */
    /* Parts that are open; NULL: closed. */
    struct coh_operator_list *operators;
    struct coh_roofs *roofs;
    struct coh_host_side *host_side;
    struct coh_links *links;
    struct coh_drive *drive;
} coh_measure;

/* ---- measure.c ---- */

/* coh_profile_measure on that device, which must outlive the call. */
coh_status coh_profile_measure_on(const coh_measure_options *options,
                                  const coh_engine_device *device, const coh_profile *known,
                                  coh_profile **out_profile);

/* Reports that the next measurement begins. printf-like. */
void coh_measure_begin(coh_measure *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Reports a sentence to the user. printf-like. */
void coh_measure_say(const coh_measure *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- measure_machine.c ---- */

/* Part of the name of a profile with figures from a quick measurement: warm caches and few samples.
 * A measurement without --quick reuses none of its figures. */
#define COH_MEASURE_QUICK ", quick"

/* Fingerprint of processor, cores, memory, kernels and build: measured figures are valid only for
 * the same fingerprint. Never 0. */
uint64_t coh_machine_fingerprint(void);
/* The fingerprint with the GPU that the profile's machine text names, and with the driver that now
 * sees a GPU of that name. For a profile of the host device: the host's fingerprint. */
uint64_t coh_machine_fingerprint_of(const coh_profile *profile);
/* Sets the profile's machine, build, limits and capacities. */
void coh_measure_machine(coh_measure *m);

/* ---- measure_products.c: options->kernel_table ---- */

/* Reads the table, if it exists; from now on algorithms missing from it are timed. Does nothing if
 * no table is asked for. Fails: COH_ERR_ARGUMENT: the device is not a GPU, or the table holds
 * products of the host, which would be lost; COH_ERR_CORRUPT, COH_ERR_IO, COH_ERR_MEMORY. */
coh_status coh_measure_products_begin(coh_measure *m);
/* Ends the timing of algorithms. */
void coh_measure_products_end(void);
/* Writes the table, or reports why there is nothing to write. `status` is the result of the
 * measurement. If it is a failure, the algorithms timed before it are still written and reported,
 * and `status` is returned. Fails: COH_ERR_IO, COH_ERR_MEMORY. */
coh_status coh_measure_products_write(const coh_measure *m, coh_status status);

/* ---- measure_rate.c ---- */

enum { COH_SAMPLES_MOST = 32 };

typedef struct coh_samples {
    double values[COH_SAMPLES_MOST];
    uint32_t count;
    uint64_t begin_ns;
} coh_samples;

void coh_samples_begin(coh_samples *samples);
/* Returns 1 if another sample is to be taken. */
int coh_samples_go_on(const coh_samples *samples, const coh_measure_effort *effort);
void coh_samples_add(coh_samples *samples, double value);
/* Median, 10th and 90th percentile. All zero without samples. */
coh_figure coh_samples_figure(const coh_samples *samples);
/* Joins two figures: means of their quantiles, weighted by their numbers of samples. Either may be
 * zeroed. */
coh_figure coh_figure_joined(const coh_figure *a, const coh_figure *b);

/* Measures a load's rate unless the figure is known. The first sample is discarded. */
coh_status coh_measure_rate(const coh_measure *m, const coh_load *load, coh_figure *figure);
/* Measures the nanoseconds of `call` by the `count` things that it does. */
coh_status coh_measure_time(const coh_measure *m, coh_status (*call)(void *context), void *context,
                            uint32_t count, coh_figure *out_ns);
/* Measures the seconds of `work`, with indices from 1 on; index 0 only warms up. Before the clock
 * starts, `prepare` (NULL: nothing) is called with the index. */
coh_status coh_measure_work(const coh_measure *m, const coh_bed *bed, coh_bed_work prepare,
                            coh_bed_work work, void *context, coh_figure *out_seconds);
/* Returns 1 if the link of an open lane is known, and sets the transfers in flight of its load: the
 * known number, or `deepest` if that is not possible. */
int coh_measure_knows_link(const coh_measure *m, coh_lane lane, uint32_t deepest, uint32_t *depth);
/* Measures the rates of an open lane at all `depths`. Sets the depth of its load, and depth and
 * rate of the profile's link: the least depth whose rate is within 5 % of the best. */
coh_status coh_measure_depths(coh_measure *m, coh_lane lane, const uint32_t *depths, uint32_t count,
                              uint32_t *depth, coh_figure *rates);

/* ---- measure_roof.c ---- */

/* Allocates memory for the roofs. `coh_roofs_product` and `_pass` are loads on it, counted in flops
 * of products and in bytes of a streaming pass. Fails: COH_ERR_MEMORY, COH_ERR_DEVICE. */
coh_status coh_roofs_open(coh_measure *m);
void coh_roofs_close(coh_measure *m); /* accepts closed ones, as all that close a part */
coh_load coh_roofs_product(const coh_measure *m, coh_dtype dtype);
coh_load coh_roofs_pass(const coh_measure *m);
/* Measures the rates of products and memory, and the overhead of an instruction in addition to its
 * kernel. */
coh_status coh_measure_roofs(coh_measure *m);

/* ---- measure_window.c: the instructions of the graphs, and memory for them ---- */

/* The instructions of a body, and their layout; those of the last micro-batch are measured. */
typedef struct coh_measure_lowered {
    const coh_graph *graph;
    int32_t microbatch_count;
    coh_layout layout;
    coh_object_map map;
    coh_lowered body;
} coh_measure_lowered;

/* Lowers the body as a plan for the measured profile would have it: workspaces are those of its
 * kind of device, gradients those of the options. `optimizer`: its name; NULL: AdamW. */
coh_status coh_measure_lowered_init(const coh_measure *m, const coh_graph *graph,
                                    uint64_t chunk_bytes, const char *optimizer, int with_cache,
                                    int32_t microbatch_count, coh_measure_lowered *out_lowered);
void coh_measure_lowered_fini(coh_measure_lowered *lowered); /* accepts a zeroed one */

/* Says whether a plan of the graph may have chunks of this size (effort.h's limit). */
coh_status coh_measure_plans_chunks(const coh_measure *m, const coh_graph *graph,
                                    uint64_t chunk_bytes, int *out_plans);

/* Offsets of the objects that one instruction or two touch; they are laid out one after the
 * other. */
enum { COH_WINDOW_OBJECTS_MOST = 64 };
typedef struct coh_window {
    int32_t objects[COH_WINDOW_OBJECTS_MOST];
    uint64_t begins[COH_WINDOW_OBJECTS_MOST], ends[COH_WINDOW_OBJECTS_MOST]; /* in the object */
    uint64_t offsets[COH_WINDOW_OBJECTS_MOST];                               /* in the window */
    uint32_t count;
    uint64_t bytes;
} coh_window;

/* Adds the objects that an instruction touches. Fails: COH_ERR_INTERNAL (more objects than a
 * call has ports, or another byte range of an object than an earlier instruction's). */
coh_status coh_window_add(coh_window *window, const coh_measure_lowered *lowered,
                          const coh_lowered_instruction *instruction);
/* Returns the offset in the window of a byte of an added object. */
uint64_t coh_window_place(const coh_window *window, int32_t object, uint64_t object_offset);
/* Returns the instruction's first operand of `role`, or NULL. */
const coh_lowered_operand *coh_lowered_find(const coh_lowered *lowered,
                                            const coh_lowered_instruction *instruction,
                                            coh_role role);

/* Memory for windows that are used in turn, so that the bytes of each window are cold when it is
 * used again. */
typedef struct coh_cold {
    coh_bed *bed;
    coh_arena *arena; /* of the host; NULL: a part of the bed's arena */
    uint64_t begin;
    char *base;
    uint64_t bytes;
    uint64_t sum; /* of the bytes read, so that the read is not optimized away */
} coh_cold;

/* Fails: COH_ERR_MEMORY. */
coh_status coh_cold_open(coh_bed *bed, uint64_t bytes, coh_cold *out_cold);
/* Likewise; takes less if the bed has no room for all of it. */
coh_status coh_cold_open_most(coh_bed *bed, uint64_t bytes, coh_cold *out_cold);
void coh_cold_close(coh_cold *cold); /* accepts a zeroed one */
/* Fills all of it with numbers that are valid both as f32 and as bf16: 0.03 to 0.06 in magnitude,
 * positive only if `positive`. Fails: COH_ERR_MEMORY, COH_ERR_DEVICE. */
coh_status coh_cold_fill(coh_cold *cold, int positive);
/* Reads [begin, begin + bytes) into the caches, which evicts other bytes. Not on a GPU. */
void coh_cold_read(coh_cold *cold, const void *begin, uint64_t bytes);
/* Returns how many windows of this size fit, at most `most`; 0: it is too large. */
uint32_t coh_cold_windows(const coh_cold *cold, const coh_window *window, uint32_t most);

/* ---- measure_operator.c, measure_chunk.c ---- */

/* Adds a sample to the times of its kind, in order of increasing work. Fails: COH_ERR_MEMORY. */
coh_status coh_measure_add(coh_measure *m, const coh_operator_times *what,
                           const coh_operator_sample *sample);
/* Likewise, or joins it to the existing sample of the same work. */
coh_status coh_measure_join(coh_measure *m, const coh_operator_times *what,
                            const coh_operator_sample *sample);
/* Returns 1 if a sample of this work exists. */
int coh_measure_knows(const coh_measure *m, const coh_operator_times *what, double flops,
                      double bytes);

/* Lists the graphs' operators that are still to be measured, and returns the number of
 * measurements. */
coh_status coh_operators_find(coh_measure *m, uint32_t *out_count);
void coh_operators_free(coh_measure *m);
/* Returns the bytes that a step touches, limited to a useful size, plus room for the largest
 * call. */
uint64_t coh_operators_bytes(const coh_measure *m);
/* Measures all operators in several rounds; a figure joins the samples of all rounds. */
coh_status coh_measure_operators(coh_measure *m);

enum { COH_MEASURE_CHUNK_SIZES = 5 }; /* measurements that coh_measure_chunks begins */
/* Returns the memory that they use if it is available. */
uint64_t coh_chunks_bytes(const coh_measure *m);
coh_status coh_measure_chunks(coh_measure *m);

/* ---- measure_host.c ---- */

/* With a GPU: allocates processor memory, and measures its rates. Until it is closed, its updates
 * are the load of the host lane. Fails: COH_ERR_MEMORY. */
coh_status coh_measure_host_side(coh_measure *m);
/* Returns the bytes of the processor's last-level caches together; 0: unknown. */
uint64_t coh_measure_cache_bytes(void);
void coh_host_side_close(coh_measure *m);

/* ---- measure_interference.c ---- */

/* Sets the link's interference: the line through compute time lost to one transfer of each of
 * two sizes. Noise may make a loss negative, which then counts as 0, or the larger transfer's
 * loss smaller than the other's, which then counts as equal. */
void coh_interference_fit(const double lost_ns[COH_SINGLES], const double bytes[COH_SINGLES],
                          coh_link_profile *link);

/* Measures the compute time lost to one transfer of `lane`, and how much slower that transfer is
 * during compute; writes both into the profile. The loads of both lanes must be open. */
coh_status coh_measure_interference(coh_measure *m, coh_lane lane);

/* ---- measure_comm.c ---- */

/* Measures the links between the ranks of options->world, all together; nothing without one. The
 * compute load must be open. Fails: as the world's calls; the world is stopped then. */
coh_status coh_measure_comms(coh_measure *m);

/* ---- measure_link.c, measure_disk.c: lanes that move bytes ---- */

/* Opens device and host tier and the lanes between them, and measures these. Their loads are in
 * m->loads from then on. */
coh_status coh_measure_links(coh_measure *m);
void coh_links_close(coh_measure *m);

/* Opens a store in the disk folder, writes every chunk of it once, and measures it. Fails:
 * COH_ERR_FULL, COH_ERR_IO, ...; COH_ERR_ARGUMENT: the folder does not exist. */
coh_status coh_measure_drive(coh_measure *m);
void coh_drive_close(coh_measure *m);

#endif

/* variants.h - compares plans: what-if machines, sweeps of one entry, the largest model of a family
 * that fits.
 *
 * Each variant is a complete plan from a search; nothing is scaled from another plan. */
#ifndef COH_CLI_VARIANTS_H
#define COH_CLI_VARIANTS_H

#include "cli/screen.h"

enum { CLI_VARIANT_LABEL_BYTES = 200 };

/* The result of one variant. */
typedef struct cli_variant {
    char label[CLI_VARIANT_LABEL_BYTES]; /* the entries, or the model's name */
    int fits;
    char why[1024];                     /* the reason, if it does not fit */
    coh_refusal refusal;                /* the same as data; reason COH_REFUSAL_NONE: it fits */
    int64_t micro_batch, replica_batch; /* sequences; of a replica's share of a step */
    int64_t batch, sequence;            /* sequences of a step, tokens of each */
    cli_speed speed;
    coh_plan_summary summary;
    uint64_t budget_bytes[COH_TIER_COUNT]; /* memory planned for; UINT64_MAX: unlimited */
    char limit[48];
    char prices[256];        /* "prices: ...": whose times these are, no newline */
    char profile[128];       /* their profile's name */
    int is_what_if;          /* it describes no existing machine */
    uint32_t operator_count; /* measured times in the profile; 0: rates only */
} cli_variant;

/* Plans `options` with `entries` ("pcie=2x,host-memory=256GB"; "": none) instead of values of the
 * profile, or of memory flags. A plan that does not fit is not an error; `why` has the reason.
 * Fails: COH_ERR_ARGUMENT: an unknown entry, or one without meaning on this device. */
coh_status cli_variant_plan(const cli_options *options, const char *entries,
                            cli_variant *out_variant);

/* Runs --what-if and --sweep: prints a table, or one JSON object. */
coh_status cli_plan_variants(const cli_options *options);
/* Runs --max FAMILY. Fails: COH_ERR_FULL: no model of the family fits. */
coh_status cli_plan_largest(const cli_options *options);

/* A line that says that rows are of the quick search; "" if they are of the usual one. */
const char *cli_variant_search(const cli_options *options);

/* Adds an object. */
void cli_variant_add_json(const cli_variant *variant, cli_line *line);

/* The points of a --sweep, as entries ("device-memory=8GB"). */
enum { CLI_SWEEP_POINTS = 64, CLI_SWEEP_POINTS_USUAL = 9 };
typedef struct cli_sweep {
    int count;
    char entries[CLI_SWEEP_POINTS][64];
} cli_sweep;

/* Parses ENTRY=FROM:TO, optionally followed by :STEP (with a unit) or :COUNT. FROM and TO are both
 * sizes, or rates, or factors ("1x:4x"). Fails: COH_ERR_ARGUMENT. */
coh_status cli_sweep_read(const char *text, cli_sweep *out_sweep);

#endif

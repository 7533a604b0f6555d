/* variants.h - one plan beside others: what if the machine were another, how time falls as an entry
 * rises, which is the largest model of a family.
 *
 * A variant is a whole plan, searched anew; nothing is scaled from another one. */
#ifndef COH_CLI_VARIANTS_H
#define COH_CLI_VARIANTS_H

#include "cli/screen.h"

enum { CLI_VARIANT_LABEL_BYTES = 200 };

/* What became of one. */
typedef struct cli_variant {
    char label[CLI_VARIANT_LABEL_BYTES]; /* the entries, or the model's name */
    int fits;
    char why[1024]; /* where it does not */
    int64_t micro_batch;
    cli_speed speed;
    coh_plan_summary summary;
    uint64_t budget_bytes[COH_PLAN_TIERS]; /* room that was planned for; UINT64_MAX: any */
    char limit[48];
    char prices[256];        /* "prices: ...": whose times these are, no newline */
    char profile[128];       /* their profile's name */
    int is_what_if;          /* it describes no machine that is there */
    uint32_t operator_count; /* measured times that price it; else rates alone do */
} cli_variant;

/* Plans `options` with `entries` ("pcie=2x,host-memory=256GB"; "": none) in place of what its
 * profile, or its flags for memory, say. Not to fit is no failure: it is in the variant.
 * Fails: COH_ERR_ARGUMENT: an entry that is none, or that means nothing on this device. */
coh_status cli_variant_plan(const cli_options *options, const char *entries,
                            cli_variant *out_variant);

/* --what-if and --sweep: a table, or one JSON object. */
coh_status cli_plan_variants(const cli_options *options);
/* --max FAMILY. Fails: COH_ERR_FULL: none of it fits. */
coh_status cli_plan_largest(const cli_options *options);

/* Members of an object, without braces. */
void cli_variant_add_json(const cli_variant *variant, cli_line *line);

/* The points of a --sweep, as entries ("device-memory=8GB"). */
enum { CLI_SWEEP_POINTS = 64, CLI_SWEEP_POINTS_USUAL = 9 };
typedef struct cli_sweep {
    int count;
    char entries[CLI_SWEEP_POINTS][64];
} cli_sweep;

/* ENTRY=FROM:TO, :STEP (with a unit) or :COUNT behind it. FROM and TO are both sizes, or rates, or
 * factors ("1x:4x"). Fails: COH_ERR_ARGUMENT. */
coh_status cli_sweep_read(const char *text, cli_sweep *out_sweep);

#endif

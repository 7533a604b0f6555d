/* profile_file.h - a profile as text and back. The text is canonical: what parses and is written
 * again has the same figures, and the same profile always gives the same bytes. */
#ifndef COH_PLANNER_PROFILE_FILE_H
#define COH_PLANNER_PROFILE_FILE_H

#include "base/file_text.h"
#include "planner/profile.h"

#define COH_PROFILE_FORMAT  "cohobate profile"
#define COH_PROFILE_VERSION 1
/* Most bytes of a file, most signatures, samples of one and origins in it. */
#define COH_PROFILE_BYTES_MOST ((uint64_t)64 << 20)
enum {
    COH_PROFILE_OPERATORS_MOST = 1 << 16,
    COH_PROFILE_SAMPLES_MOST = 256,
    COH_PROFILE_ORIGINS_MOST = 64
};

/* Appends the file's text, sealed. Operators are written in rising order, whatever theirs is.
 * Fails: COH_ERR_MEMORY. */
coh_status coh_profile_add_text(const coh_profile *profile, coh_text *text);

/* `text` ends with a NUL beyond `bytes`. A datasheet is written by people and may go without the
 * seal; it says of every group of figures where it comes from.
 * Fails: COH_ERR_CORRUPT, COH_ERR_MEMORY; *out_profile then holds nothing. */
coh_status coh_profile_parse(const char *text, size_t bytes, coh_profile *out_profile);

/* Before <0, the same 0, or after >0: the order of operators in a file. No two are the same. */
int coh_operator_times_order(const coh_operator_times *a, const coh_operator_times *b);

/* Names in files; NULL ends each list. */
extern const char *const coh_profile_source_names[], *const coh_profile_device_names[],
                                                         *const coh_profile_dtype_names[],
                                                             *const coh_profile_phase_names[];

/* Replaces entries: "pcie=2x,device-memory=80GB". Fails: COH_ERR_ARGUMENT naming the entry. */
coh_status coh_profile_override(coh_profile *profile, const char *entries);

/* XXH3 of the text before its seal: what the seal says. Fails: COH_ERR_MEMORY. */
coh_status coh_profile_hash(const coh_profile *profile, uint64_t *out_hash);

/* The text of a shipped datasheet; NULL beyond the last. In rising order of the names. */
typedef struct coh_shipped_profile {
    const char *name, *text;
} coh_shipped_profile;
extern const coh_shipped_profile coh_shipped_profiles[];

#endif

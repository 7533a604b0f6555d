/* profile_file.h - a profile as text and back. The text is canonical: parsing and writing it again
 * keeps all figures, and the same profile always gives the same bytes. */
#ifndef COH_PLANNER_PROFILE_FILE_H
#define COH_PLANNER_PROFILE_FILE_H

#include "base/file_text.h"
#include "planner/profile.h"

#define COH_PROFILE_FORMAT  "cohobate profile"
#define COH_PROFILE_VERSION 1
/* Limits: bytes of a file; signatures, samples per signature and origins in it. */
#define COH_PROFILE_BYTES_MOST ((uint64_t)64 << 20)
enum {
    COH_PROFILE_OPERATORS_MOST = 1 << 16,
    COH_PROFILE_SAMPLES_MOST = 256,
    COH_PROFILE_ORIGINS_MOST = 64
};

/* Appends the text of the file, with its seal. Operators are written in rising order, whatever
 * their order in the profile. Fails: COH_ERR_MEMORY. */
coh_status coh_profile_add_text(const coh_profile *profile, coh_text *text);

/* `text` ends with a NUL beyond `bytes`. A datasheet is written by people and may omit the seal; it
 * gives an origin for every group of figures. Fails: COH_ERR_CORRUPT, COH_ERR_MEMORY; *out_profile
 * then holds nothing. */
coh_status coh_profile_parse(const char *text, size_t bytes, coh_profile *out_profile);

/* The order of operators in a file: <0 if `a` is before `b`, 0 if equal, >0 if after. No two
 * operators of a file are equal. */
int coh_operator_times_order(const coh_operator_times *a, const coh_operator_times *b);

/* Names in files; NULL ends each list. */
extern const char *const coh_profile_source_names[], *const coh_profile_device_names[];

/* Reads a profile by name or path, without entries. Fails: as coh_profile_read; *out_profile then
 * holds nothing. */
coh_status coh_profile_read_named(const char *name, coh_profile *out_profile);

/* Replaces entries: "pcie=2x,device-memory=80GB". Fails: COH_ERR_ARGUMENT naming the entry. */
coh_status coh_profile_override(coh_profile *profile, const char *entries);

/* Returns 1 if an entry gave the rate of host memory as a value. */
int coh_profile_host_rate_is_given(const coh_profile *profile);
/* Leaves no more shares of the host to each of `ranks` GPUs of a machine than it has. */
void coh_profile_limit_shares(coh_profile *profile, int32_t ranks);

/* XXH3 of the text before its seal, which is the value of the seal. Fails: COH_ERR_MEMORY. */
coh_status coh_profile_hash(const coh_profile *profile, uint64_t *out_hash);

/* The texts of the shipped datasheets, in rising order of their names; the entry after the last is
 * NULL. */
typedef struct coh_shipped_profile {
    const char *name, *text;
} coh_shipped_profile;
extern const coh_shipped_profile coh_shipped_profiles[];

#endif

/* machine_findings.h - the list that `cohobate doctor` prints, filled part by part.
 *
 *    coh_finding *finding = coh_finding_next(list, "memlock");
 *    COH_FINDING_SAY(finding->found, "limit of %s", size);
 *
 * Every part examines one thing and adds one finding: the state found, its cost, and the remedy. A
 * part never fails: if it cannot examine something, it reports that as a finding. For set-up only:
 * allocates and opens files. */
#ifndef COH_ENGINE_MACHINE_FINDINGS_H
#define COH_ENGINE_MACHINE_FINDINGS_H

#include "cohobate/machine.h"

typedef struct coh_finding_list {
    coh_finding *findings;
    size_t most, count;
    coh_finding spare; /* written to when the list is full */
} coh_finding_list;

/* Returns the next finding, empty and at level OK. Never NULL. */
coh_finding *coh_finding_next(coh_finding_list *list, const char *subject);

/* Prints into one of a finding's three texts, truncated to its size. */
#define COH_FINDING_SAY(text, ...) coh_finding_print((text), sizeof(text), __VA_ARGS__)
void coh_finding_print(char *text, size_t text_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Sets the level of a finding that is not OK, its cost and, printf-like, the remedy. */
void coh_finding_blame(coh_finding *finding, coh_finding_level level, const char *cost,
                       const char *remedy, ...) __attribute__((format(printf, 4, 5)));

/* Returns the name of statfs's f_type: "ext4", "tmpfs", ...; "a file system" if unknown. */
const char *coh_file_system_name(long magic);
/* Examines the driver, each GPU, cuBLASLt, cuDNN and NCCL (machine_cuda.c). */
void coh_examine_cuda(coh_finding_list *list);

#endif

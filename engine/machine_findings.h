/* machine_findings.h - the list that `cohobate doctor` prints, filled part by part.
 *
 *     coh_finding *finding = coh_finding_next(list, "memlock");
 *     COH_FINDING_SAY(finding->found, "limit of %s", size);
 *
 * Every part looks at one thing and adds one finding: what is there, what it costs, what to do. A
 * part never fails: what cannot be looked at is a finding, too. Set-up only:
 * allocates, opens files. */
#ifndef COH_ENGINE_MACHINE_FINDINGS_H
#define COH_ENGINE_MACHINE_FINDINGS_H

#include "cohobate/machine.h"

typedef struct coh_finding_list {
    coh_finding *findings;
    size_t most, count;
    coh_finding spare; /* written to when the list is full */
} coh_finding_list;

/* The next finding, empty and at level OK. Never NULL. */
coh_finding *coh_finding_next(coh_finding_list *list, const char *subject);

/* Prints into one of a finding's three texts, cut at its end. */
#define COH_FINDING_SAY(text, ...) coh_finding_print((text), sizeof(text), __VA_ARGS__)
void coh_finding_print(char *text, size_t text_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* machine_disk.c: "ext4", "tmpfs", ... by statfs's f_type; "a file system" where not known. */
const char *coh_file_system_name(long magic);
/* What moves bytes to and from the disk that holds `folder`. */
void coh_examine_memlock(coh_finding_list *list);
void coh_examine_uring(coh_finding_list *list);
void coh_examine_direct(coh_finding_list *list, const char *folder);
void coh_examine_disk(coh_finding_list *list, const char *folder);
/* machine_cuda.c: the driver, each GPU, cuBLASLt, cuDNN and NCCL. */
void coh_examine_cuda(coh_finding_list *list);

#endif

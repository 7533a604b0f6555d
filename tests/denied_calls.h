/* denied_calls.h - lets system calls fail, in a child process: a filter stays until the process
 * ends, and its children have it, too. */
#ifndef COH_TESTS_DENIED_CALLS_H
#define COH_TESTS_DENIED_CALLS_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>

/* Adds a filter of `count` instructions. Returns 0 if the system refuses filters. */
static inline int deny_by(struct sock_filter *filter, size_t count)
{
    struct sock_fprog program = { (unsigned short)count, filter };
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* Makes every call with the number `call` (SYS_...) fail with `error`. Returns 0 if it cannot. */
static inline int deny_call(uint32_t call, uint32_t error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return deny_by(filter, sizeof(filter) / sizeof(filter[0]));
}

#endif

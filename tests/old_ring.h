/* old_ring.h - an io_uring without reads and writes, as of Linux before 5.6 and of some sandboxes:
 * the program's own io_uring_submit makes operations that no kernel knows of them. Included by one
 * file of a program. */
#ifndef COH_TESTS_OLD_RING_H
#define COH_TESTS_OLD_RING_H

#include <dlfcn.h>
#include <errno.h>
#include <liburing.h>
#include <string.h>

static int ring_is_old;

int io_uring_submit(struct io_uring *ring)
{
    int (*submit)(struct io_uring * of) = NULL;
    void *found = dlsym(RTLD_NEXT, "io_uring_submit");
    memcpy(&submit, &found, sizeof(found));
    const unsigned entries = *ring->sq.kring_entries;
    for (unsigned i = 0; ring_is_old && i < entries; i++)
        if (ring->sq.sqes[i].opcode == IORING_OP_READ || ring->sq.sqes[i].opcode == IORING_OP_WRITE)
            ring->sq.sqes[i].opcode = 255;
    return submit != NULL ? submit(ring) : -ENOSYS;
}

#endif

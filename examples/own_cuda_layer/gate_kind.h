/* gate_kind.h - the layer as a kind of Cohobate. */
#ifndef GATE_KIND_H
#define GATE_KIND_H

#include <cohobate/cohobate.h>

/* One input, two parameters as wide as its last axis; on the CPU and on a GPU. */
coh_op_kind gate_kind(void);

#endif

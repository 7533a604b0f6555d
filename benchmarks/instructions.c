/* Measures the overhead of an instruction: runs a chain of LINES operators that do nothing, or
 * spin for a while, as a program in memory. The ceiling calls the same kernels in a plain loop.
 * The difference per instruction is the executor's cost: waits, entering and leaving extents,
 * counters, and the issuing thread. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "benchmarks/measure.h"
#include "engine/instruction_chain.h"

enum { INSTRUCTIONS = 2000 };

static uint64_t spin_ns;

static coh_status link_forward(const coh_call *call)
{
    (void)call;
    if (spin_ns > 0)
        for (uint64_t begin = coh_clock_ns(); coh_clock_ns() - begin < spin_ns;)
            continue;
    return COH_OK;
}

static void must(coh_status status)
{
    if (status == COH_OK)
        return;
    fprintf(stderr, "%s\n", coh_last_error());
    exit(1);
}

static void as_instructions(void *argument)
{
    must(coh_instruction_chain_run(argument));
}

static void in_a_loop(void *argument)
{
    (void)argument;
    const coh_call call = { 0 };
    for (int i = 0; i < INSTRUCTIONS; i++)
        must(link_forward(&call));
}

int main(void)
{
    static const uint64_t spins_ns[] = { 0, 10000, 100000 };
    coh_instruction_chain chain;
    must(coh_instruction_chain_create(link_forward, INSTRUCTIONS, 1, NULL, NULL, &chain));
    for (int i = 0; i < 3; i++) {
        char what[64];
        measure_result result;
        spin_ns = spins_ns[i];
        measure_pairs(as_instructions, in_a_loop, &chain, &result);
        snprintf(what, sizeof(what), "kernels of %g us", (double)spin_ns * 1e-3);
        measure_print("lines", what, INSTRUCTIONS * 1e-6, "M instructions", &result);
        fprintf(stderr, "%-10s %-22s %8.2f us a line more than its kernel\n", "", "",
                (result.ours_s - result.ceiling_s) / INSTRUCTIONS * 1e6);
    }
    coh_instruction_chain_fini(&chain);
    return 0;
}

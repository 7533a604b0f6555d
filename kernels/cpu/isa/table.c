/* The table of all row loops of one instruction set and element type, made from the lists in
 * rows.h. Next: kernels/cpu/rows.h; kernels/cpu/dispatch.c selects one of these tables. */
#include "kernels/cpu/isa/isa.h"

#include "kernels/cpu/dispatch.h"

#define TEXT_OF(isa) #isa
#define TEXT(isa)    TEXT_OF(isa)

const coh_rows COH_ISA_EXPAND(COH_ISA_EXPAND(coh_rows, COH_ISA),
                              COH_ELEMENT) = { .name = TEXT(COH_ISA),
#define FIELD(row) .row = FLOAT_ROW(row),
                                               COH_FLOAT_ROW_LIST(FIELD)
#undef FIELD
#define FIELD(row) .row = ROW(row),
                                                   COH_ROW_LIST(FIELD)
#undef FIELD
};

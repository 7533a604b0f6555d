/* plural.h - the ending of a noun behind its number: "%d step%s", steps, COH_PLURAL_S(steps). */
#ifndef COH_BASE_PLURAL_H
#define COH_BASE_PLURAL_H

#define COH_PLURAL_S(count) ((count) == 1 ? "" : "s")

#endif

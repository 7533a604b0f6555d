/* Corrections to PCRE2's character tables, so that classes match those of tokenizers 0.23: general
 * categories as in Unicode 16 (its Oniguruma), numeric characters as in Unicode 17 (Rust's), and
 * punctuation as in Unicode 8 (a separate table). PCRE2 10.40 to 10.42 have Unicode 14, 10.45 has
 * Unicode 16: listing a character that PCRE2 already has is harmless. tests/text/live_tokenizers.py
 * compares every character if tokenizers is installed. */
#include "text/pattern.h"

#define ADDED_LU "\\x{1c89}\\x{a7cb}-\\x{a7cc}\\x{a7da}\\x{a7dc}\\x{10d50}-\\x{10d65}"
#define ADDED_LL "\\x{1c8a}\\x{a7cd}\\x{a7db}\\x{10d70}-\\x{10d85}\\x{1df25}-\\x{1df2a}"
#define ADDED_LM                                                                                   \
    "\\x{10d4e}\\x{10d6f}\\x{16d40}-\\x{16d42}\\x{16d6b}-\\x{16d6c}\\x{1e030}-\\x{1e06d}"          \
    "\\x{1e4eb}"
#define ADDED_LO                                                                                   \
    "\\x{105c0}-\\x{105f3}\\x{10d4a}-\\x{10d4d}\\x{10d4f}\\x{10ec2}-\\x{10ec4}"                    \
    "\\x{1123f}-\\x{11240}\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}"          \
    "\\x{113b7}\\x{113d1}\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f02}\\x{11f04}-\\x{11f10}"           \
    "\\x{11f12}-\\x{11f33}\\x{1342f}\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}"                    \
    "\\x{16100}-\\x{1611d}\\x{16d43}-\\x{16d6a}\\x{18cff}\\x{1b132}\\x{1b155}"                     \
    "\\x{1e4d0}-\\x{1e4ea}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}"          \
    "\\x{31350}-\\x{323af}"
#define ADDED_L ADDED_LU ADDED_LL ADDED_LM ADDED_LO
#define ADDED_M                                                                                    \
    "\\x{897}\\x{cf3}\\x{ece}\\x{10d69}-\\x{10d6d}\\x{10efc}-\\x{10eff}\\x{11241}"                 \
    "\\x{113b8}-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}\\x{113cc}-\\x{113d0}"          \
    "\\x{113d2}\\x{113e1}-\\x{113e2}\\x{11f00}-\\x{11f01}\\x{11f03}\\x{11f34}-\\x{11f3a}"          \
    "\\x{11f3e}-\\x{11f42}\\x{11f5a}\\x{13440}\\x{13447}-\\x{13455}\\x{1611e}-\\x{1612f}"          \
    "\\x{1e08f}\\x{1e4ec}-\\x{1e4ef}\\x{1e5ee}-\\x{1e5ef}"
#define ADDED_ND                                                                                   \
    "\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}"         \
    "\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1e4f0}-\\x{1e4f9}"         \
    "\\x{1e5f1}-\\x{1e5fa}"
#define ADDED_NO "\\x{1d2c0}-\\x{1d2d3}"
#define ADDED_P                                                                                    \
    "\\x{1b4e}-\\x{1b4f}\\x{1b7f}\\x{10d6e}\\x{113d4}-\\x{113d5}\\x{113d7}-\\x{113d8}"             \
    "\\x{11b00}-\\x{11b09}\\x{11be1}\\x{11f43}-\\x{11f4f}\\x{16d6d}-\\x{16d6f}\\x{1e5ff}"
#define ADDED_S                                                                                    \
    "\\x{2427}-\\x{2429}\\x{2ffc}-\\x{2fff}\\x{31e4}-\\x{31e5}\\x{31ef}\\x{10d8e}-\\x{10d8f}"      \
    "\\x{1cc00}-\\x{1ccef}\\x{1cd00}-\\x{1ceb3}\\x{1f6dc}\\x{1f774}-\\x{1f776}"                    \
    "\\x{1f77b}-\\x{1f77f}\\x{1f7d9}\\x{1f8b2}-\\x{1f8bb}\\x{1f8c0}-\\x{1f8c1}"                    \
    "\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}-\\x{1faaf}"                    \
    "\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}-\\x{1fadc}\\x{1fadf}"          \
    "\\x{1fae8}-\\x{1fae9}\\x{1faf7}-\\x{1faf8}\\x{1fbcb}-\\x{1fbef}"

const char *coh_pattern_added(const char *category)
{
    static const struct row {
        const char *name, *added;
    } rows[] = {
        { "L", ADDED_L },   { "Lu", ADDED_LU }, { "Ll", ADDED_LL }, { "Lt", "" },
        { "Lm", ADDED_LM }, { "Lo", ADDED_LO }, { "M", ADDED_M },   { "N", ADDED_ND ADDED_NO },
        { "Nd", ADDED_ND }, { "Nl", "" },       { "No", ADDED_NO }, { "P", ADDED_P },
        { "S", ADDED_S },   { "Z", "" },        { "Zs", "" },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(rows[i].name, category) == 0)
            return rows[i].added;
    }
    return NULL;
}

const char coh_pattern_numeric[] =
    "[\\p{N}" ADDED_ND ADDED_NO "\\x{11de0}-\\x{11de9}\\x{16ff4}-\\x{16ff6}]";

/* The negated class is \p{P} without the additions after Unicode 8. */
const char coh_pattern_punctuation[] =
    "(?:[!-/:-@\\[-`{-~\\x{166d}\\x{111c9}]|[^\\P{P}\\x{61d}\\x{9fd}\\x{a76}\\x{c77}\\x{c84}"
    "\\x{1b4e}-\\x{1b4f}\\x{1b7d}-\\x{1b7f}\\x{2e43}-\\x{2e4f}\\x{2e52}-\\x{2e5d}\\x{10d6e}"
    "\\x{10ead}\\x{10f55}-\\x{10f59}\\x{10f86}-\\x{10f89}\\x{113d4}-\\x{113d5}"
    "\\x{113d7}-\\x{113d8}\\x{1144b}-\\x{1144f}\\x{1145a}-\\x{1145b}\\x{1145d}"
    "\\x{11660}-\\x{1166c}\\x{116b9}\\x{1183b}\\x{11944}-\\x{11946}\\x{119e2}"
    "\\x{11a3f}-\\x{11a46}\\x{11a9a}-\\x{11a9c}\\x{11a9e}-\\x{11aa2}\\x{11b00}-\\x{11b09}"
    "\\x{11be1}\\x{11c41}-\\x{11c45}\\x{11c70}-\\x{11c71}\\x{11ef7}-\\x{11ef8}"
    "\\x{11f43}-\\x{11f4f}\\x{11fff}\\x{12ff1}-\\x{12ff2}\\x{16d6d}-\\x{16d6f}"
    "\\x{16e97}-\\x{16e9a}\\x{16fe2}\\x{1e5ff}\\x{1e95e}-\\x{1e95f}])";

const char coh_pattern_word_character[] =
    "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}" ADDED_L ADDED_M ADDED_ND "]";

/* nasty.h - texts that tokenizers get wrong, each with its purpose. */
#ifndef COH_TESTS_TEXT_NASTY_H
#define COH_TESTS_TEXT_NASTY_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

typedef struct nasty_text {
    const char *bytes;
    size_t byte_count;
} nasty_text;

#define NASTY(text)                                                                                \
    {                                                                                              \
        (text), sizeof(text) - 1                                                                   \
    }

static const nasty_text nasty_texts[] = {
    NASTY("Hello world"),
    NASTY("The tokens, the windows; they're there and I'll count 'em. It's 1999."),
    NASTY("'s 't 're 've 'm 'll 'd 'S 'T 'RE 'r 'v 'l ''re '''"), /* case matters; truncated ones */
    NASTY("x'r"),                                                 /* ends within a contraction */
    NASTY(" "),
    NASTY("   "),
    NASTY(" a"),
    NASTY("  a"),
    NASTY("    a  \n  b \t\tc\n\n\n d   "),                /* the last space joins the word */
    NASTY("\r\nfour\r\n\r\n five\r\n"),                    /* CRLF */
    NASTY("a\tb\vc\fd\x1c e\x1d\x1e\x1f f"),               /* U+001C..1F are not White_Space */
    NASTY("\0\0a\0 b\x01\x02\x7f\x1b[31m"),                /* control characters */
    NASTY("<|endoftext|> and <|endoftext|><|endoftext|>"), /* the token's text, not the token */
    NASTY(
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
    NASTY("bananananananabanana hahahahahahahah"), /* overlapping pairs */
    NASTY("1234567890 \xc2\xbd\xe2\x85\x93\xc2\xb2 \xd9\xa3\xd9\xa4 12ab34"), /* kinds of number */
    NASTY("\xc3\x9c"
          "ber na\xc3\xafve caf\xc3\xa9 cafe\xcc\x81 \xc5\x82\xc3\xb3"
          "d\xc5\xba"),
    NASTY("\xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82, \xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d"),
    NASTY("\xe4\xbd\xa0\xe5\xa5\xbd\xe4\xb8\x96\xe7\x95\x8c\xe3\x80\x82\xe3\x80\x80\xed\x95\x9c"),
    NASTY("\xf0\x9f\x98\x80\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd "
          "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7"),
    NASTY("a\xc2\xa0 b\xe2\x80\x83\xe2\x80\x83"
          "c\xe3\x80\x80\xe2\x80\xa8"
          "d\xc2\x85"
          "e"), /* spaces */
    NASTY("a \xe1\xa0\x8e b\xe1\x9a\x80\xe1\x9a\x80"
          "c"), /* U+180E is not a space, U+1680 is */
    NASTY("\xff"),
    NASTY("\x80\x80 a\xbf b"), /* only continuation bytes */
    NASTY("  \xff  a \xfe"),   /* spaces before invalid bytes */
    NASTY("\xc3"),             /* truncated after 1 of 2, 2 of 3, 3 of 4 */
    NASTY("a\xe2\x82"),
    NASTY("b \xf0\x9f\x98"),
    NASTY("\xf0\x9f\x98\xf0\x9f\x98\x80\xe2\x82 \xe2\x82\xac"),
    NASTY("\xc0\xaf\xe0\x80\xaf\xf0\x80\x80\xaf\xc1\xbf"),     /* overlong */
    NASTY("\xed\xa0\x80\xed\xbf\xbf\xed\x9f\xbf"),             /* surrogates, and U+D7FF */
    NASTY("\xf4\x8f\xbf\xbf\xf4\x90\x80\x80\xf5\x80\x80\x80"), /* above U+10FFFF */
    NASTY("it'\xff"
          "s they'r\x80"
          "e"), /* a contraction cut by an invalid byte */
};
#define NASTY_COUNT (sizeof(nasty_texts) / sizeof(nasty_texts[0]))

/* Makes bytes that are mostly valid UTF-8, with words and runs; a pure function of the seed. */
static inline size_t nasty_random(uint64_t seed, char *bytes, size_t byte_count)
{
    static const nasty_text parts[] = {
        NASTY(" "),
        NASTY(" "),
        NASTY("the"),
        NASTY("token"),
        NASTY("'re"),
        NASTY("'"),
        NASTY("\n"),
        NASTY("\t"),
        NASTY("a"),
        NASTY("aa"),
        NASTY("an"),
        NASTY("16"),
        NASTY("3"),
        NASTY("--"),
        NASTY("\xc3\xa9"),
        NASTY("\xe4\xb8\x96"),
        NASTY("\xf0\x9f\x98\x80"),
        NASTY("\xe2\x80\x83"),
        NASTY("\xff"),
        NASTY("\xe2"),
        NASTY("\xf0\x9f"),
        NASTY("\x80"),
        NASTY("\r\n"),
        NASTY("_"),
    };
    size_t end = 0;
    for (uint64_t i = 0;; i++) {
        const nasty_text *part =
            &parts[coh_rng_below(seed, 1, i, sizeof(parts) / sizeof(parts[0]))];
        size_t times = coh_rng_below(seed, 2, i, 20) ? 1 : coh_rng_below(seed, 3, i, 30);
        for (; times > 0; times--) {
            if (end + part->byte_count > byte_count)
                return end;
            memcpy(bytes + end, part->bytes, part->byte_count);
            end += part->byte_count;
        }
    }
}

#endif

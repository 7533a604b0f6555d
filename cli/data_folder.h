/* data_folder.h - finds out how a folder of data is read, by the names and first bytes of all its
 * files: as its files would be, given one by one.
 *
 *     README.md, a.jsonl, b.jsonl     lines: small files about a data set do not count
 *     a.txt, b.jsonl                  texts, of which b.jsonl is one
 *     1.json, 2.json, config.json     refused; with --field or --chat the objects of 1 and 2
 *     README.md, train.parquet        refused, with the command that makes lines of it
 *     a thousand texts, logo.gz       texts: what is no text is counted and left out
 *     a.jsonl, b.jsonl.gz             refused: half of the data set would be left out
 *     a.jsonl, a.jsonl.gz             lines: the one is the other
 *     a.jsonl, metadata.json          lines, and a note: an object next to lines is about them
 *
 * Data that is no text (compressed, Parquet, Arrow, ids) is refused if the texts next to it are
 * smaller, few and short: then the data set would be left out, and what describes it be learned. */
#ifndef COH_CLI_DATA_FOLDER_H
#define COH_CLI_DATA_FOLDER_H

#include <stdint.h>

#include "cohobate/status.h"

/* `flag` is for messages, without its dashes; NULL: the folder is an operand. `takes_lines`: flags
 * say that its lines are read. *out_is_lines: they are, with or without flags. Files that cannot be
 * read are left to the reader of the folder. Fails: COH_ERR_CORRUPT: its data is no text, or would
 * be learned with commas, brackets and quotes; the message has the remedy. */
coh_status cli_data_folder_look(const char *flag, const char *folder, int takes_lines,
                                int *out_is_lines);

/* The bytes of the texts that are read of a folder without flags, in the first 4,096 files; 0 where
 * its lines are read. */
uint64_t cli_data_folder_text_bytes(const char *folder);

#endif

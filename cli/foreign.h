/* foreign.h - refuses data whose bytes are no text to learn, although texts are in it: compressed
 * files, Parquet, Arrow, and JSON and tables that would be read as plain text.
 *
 * `flag` is the flag that names the file, without its dashes; NULL: it is an operand. `head`: the
 * first bytes of the file. */
#ifndef COH_CLI_FOREIGN_H
#define COH_CLI_FOREIGN_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/status.h"

/* Does the name have this ending, in letters of any case? An ending alone is a name without. */
int cli_foreign_has_ending(const char *path, const char *ending);
/* Does a text begin with "{", as a file of JSON lines does? */
int cli_foreign_is_object(const void *head, size_t head_bytes);

/* Fails: COH_ERR_CORRUPT: the file is compressed, Parquet or Arrow; the message has the command
 * that converts it. */
coh_status cli_foreign_check(const char *flag, const char *path, const void *head,
                             size_t head_bytes);

/* Is it a file named *.json that begins as an array or an object of JSON? */
int cli_foreign_is_json(const char *path, const void *head, size_t head_bytes);
/* Does the array of such a file begin with an object? */
int cli_foreign_is_array(const char *path, const void *head, size_t head_bytes);
/* Refuses such a file where no flag says what its objects are. Returns COH_ERR_CORRUPT. */
coh_status cli_foreign_refuse_json(const char *flag, const char *path);

/* Is it a table, named *.csv or *.tsv? */
int cli_foreign_is_table(const char *path, const void *head, size_t head_bytes);
/* Refuses a table, with the command that makes lines of it. Returns COH_ERR_CORRUPT. */
coh_status cli_foreign_refuse_table(const char *flag, const char *path);

/* Does cli_foreign_check refuse the file, as one of a folder? There a zip is one by its name, too:
 * many formats are zips inside. */
int cli_foreign_is_known(const char *path, const void *head, size_t head_bytes);
/* Of such a file: does what its command makes lie next to it, so that nothing is missing? */
int cli_foreign_is_converted(const char *path, const void *head, size_t head_bytes);
/* Of such a file: does its command make JSON lines, by their name? */
int cli_foreign_is_shard(const char *path, const void *head, size_t head_bytes);
/* Refuses a folder of lines next to which are `count` such files of lines, such as the file `first`
 * with this head. `has_objects`: it is one of objects in *.json files, which lines would end.
 * Returns COH_ERR_CORRUPT. */
coh_status cli_foreign_refuse_shards(const char *flag, const char *folder, const char *first,
                                     uint64_t count, int has_objects, const void *head,
                                     size_t head_bytes);
/* Prints that `count` *.json of objects, such as `first`, are left out next to lines and arrays. */
void cli_foreign_note_objects(const char *folder, const char *first, uint64_t count);
/* Prints how many such files are left out of a folder, and the command for the first of them. */
void cli_foreign_note_left_out(const char *folder, const char *first, uint64_t count,
                               const void *head, size_t head_bytes);
/* Refuses a folder whose data are `count` files that are no texts, such as the file `first`, with
 * this head: in a format above, or ids. `has_texts`: it holds texts, too, that can be read alone.
 * Returns COH_ERR_CORRUPT. */
coh_status cli_foreign_refuse_folder(const char *flag, const char *folder, const char *first,
                                     uint64_t count, int has_texts, const void *head,
                                     size_t head_bytes);

#endif

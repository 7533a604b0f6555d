/* commands.h - one function per command. Options are parsed already (options.h); the function calls
 * the library and prints the result on standard output. main prints the message of a failure. */
#ifndef COH_CLI_COMMANDS_H
#define COH_CLI_COMMANDS_H

#include "cli/options.h"

coh_status cli_train(const cli_options *options);
coh_status cli_plan(const cli_options *options);
coh_status cli_generate(const cli_options *options);
coh_status cli_eval(const cli_options *options);
coh_status cli_tokenize(const cli_options *options);
coh_status cli_mix(const cli_options *options);
coh_status cli_inspect(const cli_options *options);
coh_status cli_export(const cli_options *options);
coh_status cli_check(const cli_options *options);
coh_status cli_check_kind(const cli_options *options);
coh_status cli_tune(const cli_options *options);
coh_status cli_profile(const cli_options *options);
coh_status cli_simulate(const cli_options *options);
coh_status cli_explain(const cli_options *options);
coh_status cli_doctor(const cli_options *options);
coh_status cli_report_runs(const cli_options *options);
coh_status cli_diff_runs(const cli_options *options);
coh_status cli_trace(const cli_options *options);
coh_status cli_watch(const cli_options *options);

/* Is the locale's encoding UTF-8? */
int cli_locale_is_utf8(void);

/* Adds the rates of a profile to its JSON; profile and inspect print the same. */
void cli_profile_add_rates_json(const coh_profile_summary *summary, cli_line *line);

#endif

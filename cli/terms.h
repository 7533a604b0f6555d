/* terms.h - names the options of the library's messages by their flags. */
#ifndef COH_CLI_TERMS_H
#define COH_CLI_TERMS_H

/* Call it before any message. */
void cli_terms_set(void);

#endif

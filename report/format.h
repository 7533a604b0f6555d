/* format.h - numbers as texts for people: an argument of printf is report_time(seconds).at. NaN
 * becomes "-". */
#ifndef COH_REPORT_FORMAT_H
#define COH_REPORT_FORMAT_H

typedef struct report_text {
    char at[40];
} report_text;

report_text report_time(double seconds);     /* "12.4 ms", "3.20 s" */
report_text report_size(double bytes);       /* "1.50 GiB" */
report_text report_rate(double bytes_per_s); /* "3.10 GB/s" */
/* Bytes written to a drive, in the decimal units of its endurance and of --disk-write-limit:
 * "30.8 TB". */
report_text report_written(double bytes);
report_text report_count(double number);  /* "124 M", "1,234" */
report_text report_percent(double share); /* "41.5 %" */
report_text report_change(double share);  /* "+4.1 %" */
report_text report_real(double number);   /* 4 digits */

/* A limit's name for people: "transfer phase" for "phase", the name in JSON; else as it is. */
const char *report_limit(const char *name);

#endif

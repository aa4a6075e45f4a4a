/* The arguments after the plugin's path in plugstack.conf. */
#ifndef TIRESIAS_ARGUMENTS_H
#define TIRESIAS_ARGUMENTS_H

#include <limits.h>

#include "options.h"

/* Which jobs are measured if they do not set it themselves. */
enum profile_rule {
	PROFILE_NONE,        /* profile=off */
	PROFILE_THE_UNKNOWN, /* profile=unknown: with GPUs, and without a profile yet */
	PROFILE_ALL,         /* profile=auto: with GPUs */
};

struct arguments {
	enum profile_rule rule;
	enum progress_choice progress; /* progress=auto|on|off: for jobs without the option */
	char run[PATH_MAX];     /* run=DIR: files of running jobs; belongs to root on each node */
	char collect[PATH_MAX]; /* collect=DIR: where the controller finds them; "" for none */
	char monitor[PATH_MAX]; /* monitor=PATH: the library to preload into tasks */
	char nccl[PATH_MAX];    /* nccl=PATH: the profiler plugin for NCCL */
};

/* Reads KEY=VALUE words; invalid ones keep their default, with a debug message. */
void arguments_read(struct arguments *arguments, int count, char *const words[]);

/* The kinds of run files (run_file.h) that a job gets for its progress, with or without its option. */
unsigned arguments_progress_kinds(const struct arguments *arguments, enum progress_choice said);

#endif

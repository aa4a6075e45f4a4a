/* What an admin writes behind the plugin's path in plugstack.conf. */
#ifndef TIRESIAS_ARGUMENTS_H
#define TIRESIAS_ARGUMENTS_H

#include <limits.h>

#include "options.h"

/* Which jobs are counted of those that do not say themselves. */
enum profile_rule {
	PROFILE_NONE,        /* profile=off */
	PROFILE_THE_UNKNOWN, /* profile=unknown: with GPUs, and without a profile yet */
	PROFILE_ALL,         /* profile=auto: with GPUs */
};

struct arguments {
	enum profile_rule rule;
	enum progress_choice progress; /* progress=auto|on|off: of jobs that do not say themselves */
	char run[PATH_MAX];     /* run=DIR: jobs' files while they run; root's, on each node */
	char collect[PATH_MAX]; /* collect=DIR: where the controller finds them; "" for nowhere */
	char monitor[PATH_MAX]; /* monitor=PATH: the library put before the tasks' own */
	char nccl[PATH_MAX];    /* nccl=PATH: the profiler plugin for NCCL */
};

/* Reads KEY=VALUE words; what cannot be used is left at its default, with a debug line. */
void arguments_read(struct arguments *arguments, int count, char *const words[]);

#endif

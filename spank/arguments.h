/* What an admin writes behind the plugin's path in plugstack.conf. */
#ifndef TIRESIAS_ARGUMENTS_H
#define TIRESIAS_ARGUMENTS_H

#include <limits.h>
#include <stdbool.h>

#include "options.h"

struct arguments {
	bool profile_unless_off; /* profile=auto; else only jobs that ask for it */
	char run[PATH_MAX];      /* run=DIR: traffic files while jobs run; root's, on each node */
	char collect[PATH_MAX];  /* collect=DIR: where the controller finds them; "" for nowhere */
	char monitor[PATH_MAX];  /* monitor=PATH: the library put before the tasks' own */
	char nccl[PATH_MAX];     /* nccl=PATH: the profiler plugin for NCCL */
};

/* Reads KEY=VALUE words; what cannot be used is left at its default, with a debug line. */
void arguments_read(struct arguments *arguments, int count, char *const words[]);

/* Whether somebody who chose so is profiled on this cluster. */
bool arguments_profile(const struct arguments *arguments, enum profile_choice choice);

#endif

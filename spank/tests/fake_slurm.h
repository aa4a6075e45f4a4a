/* Slurm as far as the plugin sees it: one job, its environment, and what the plugin registered. */
#ifndef FAKE_SLURM_H
#define FAKE_SLURM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

enum { FAKE_MOST_OPTIONS = 8, FAKE_MOST_VARIABLES = 16 };

struct fake_slurm {
	spank_context_t context;
	uint32_t job;
	uint32_t step;
	uint32_t restarts;
	uid_t user;
	gid_t group;
	char *variables[FAKE_MOST_VARIABLES]; /* NAME=VALUE */
	struct spank_option options[FAKE_MOST_OPTIONS];
	int option_count;
	char said[512];   /* the last error the user saw */
	int errors;       /* number of errors */
	int questions;    /* number of questions to slurmctld */
	int calls;        /* functions that can fail */
	int failing_call; /* the one that fails; 0: none */
};

extern struct fake_slurm fake;

/* The environment of the job; NULL removes a variable, or means that there is no environment. */
void fake_setenv(const char *name, const char *value);
const char *fake_getenv(const char *name);

/* What Slurm does with --NAME=VALUE: calls the plugin's callback. */
int fake_option(const char *name, const char *value, bool remote);

/* Frees what the job holds. */
void fake_end(void);

#endif

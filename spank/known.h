/*
 * The programs that already have a profile: the controller lists them for the nodes in one file
 * beside those that it collects (slurm_tiresias/profiler/profile_index.py).
 *
 * Lines of the file are compared as a whole and never parsed, so that no name can imitate another
 * entry.
 */
#ifndef TIRESIAS_KNOWN_H
#define TIRESIAS_KNOWN_H

#include <stdbool.h>

#include "word.h"

/* As encoded words; "" if unknown. */
struct program {
	char user[WORD_SIZE];
	char model[WORD_SIZE];
	char job_name[WORD_SIZE];
};

/*
 * Whether the controller has a profile of the model that the user named or, without a model, of the
 * user's jobs of that name. False if the folder has no such file, or it cannot be trusted.
 */
bool known_has(const char *collect, const struct program *program);

#endif

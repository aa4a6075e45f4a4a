/*
 * Which programs have a profile already: what the controller tells the nodes, in one file beside
 * those that it collects (slurm_tiresias/profiler/profile_index.py).
 *
 * Its lines are compared, never taken apart, so that no name in it can pass for something else.
 */
#ifndef TIRESIAS_KNOWN_H
#define TIRESIAS_KNOWN_H

#include <stdbool.h>

#include "word.h"

/* As words; "" where it is not known. */
struct program {
	char user[WORD_SIZE];
	char model[WORD_SIZE];
	char job_name[WORD_SIZE];
};

/*
 * Whether the controller has a profile of it: of the model that its user names, else of his jobs
 * of that name. False where there is no such file in the folder, or one that is not to be believed.
 */
bool known_has(const char *collect, const struct program *program);

#endif

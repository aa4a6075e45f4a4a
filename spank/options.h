/* The options that the plugin adds to srun, sbatch and salloc. */
#ifndef TIRESIAS_OPTIONS_H
#define TIRESIAS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include <slurm/spank.h>

enum { MODEL_SIZE = 65 };

enum profile_choice { PROFILE_AUTO, PROFILE_ON, PROFILE_OFF };

enum progress_choice {
	PROGRESS_UNSAID,
	PROGRESS_AUTO, /* reports of the job, and progress found in its output */
	PROGRESS_ON,   /* reports of the job */
	PROGRESS_OFF,
};

/* Registers all options; only slurm_spank_init may call it. */
void options_register(spank_t spank);

/* The value of --tiresias-profile; PROFILE_AUTO if it was not given. In slurmstepd, that of the
 * step. */
enum profile_choice options_step_profile(void);

/* In a prolog, that of the job. */
enum profile_choice options_job_profile(spank_t spank);

/* The value of --tiresias-progress; PROGRESS_UNSAID if it was not given. */
enum progress_choice options_step_progress(void);
enum progress_choice options_job_progress(spank_t spank);

/* PROGRESS_UNSAID for any other word. */
enum progress_choice options_progress_named(const char *word);

/* In a prolog, the value of --tiresias-model; false, and "", if it was not given. */
bool options_job_model(spank_t spank, char model[MODEL_SIZE]);

/* Copies a text of this length as a model's name; false, and "", if it is not valid. */
bool options_take_model(char model[MODEL_SIZE], const char *text, size_t length);

#endif

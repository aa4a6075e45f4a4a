/* The options that the plugin adds to srun, sbatch and salloc. */
#ifndef TIRESIAS_OPTIONS_H
#define TIRESIAS_OPTIONS_H

#include <slurm/spank.h>

enum profile_choice { PROFILE_AUTO, PROFILE_ON, PROFILE_OFF };

/* Registers all options; only slurm_spank_init may call it. */
void options_register(spank_t spank);

/* What --tiresias-profile says; PROFILE_AUTO where it was not given. In slurmstepd, of the step. */
enum profile_choice options_step_profile(void);

/* In a prolog, of the job. */
enum profile_choice options_job_profile(spank_t spank);

#endif

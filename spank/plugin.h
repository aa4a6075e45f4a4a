/* Functions shared by the plugin's files: one file for each context in which Slurm loads it. */
#ifndef TIRESIAS_PLUGIN_H
#define TIRESIAS_PLUGIN_H

#include <stdint.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

/* The variable by which a client passes the job name to prologs, as SPANK_TIRESIAS_JOB_NAME. */
#define JOB_NAME_VARIABLE "TIRESIAS_JOB_NAME"

/* srun, sbatch and salloc: registers the options, and refuses invalid values. */
void client_init(spank_t spank);
void client_init_post_opt(spank_t spank);

/* slurmd's helper, as root, before and after a run of a job on this node. */
void job_script_prolog(spank_t spank, int count, char *arguments[]);
void job_script_epilog(spank_t spank, int count, char *arguments[]);

/* slurmstepd, as root: makes files that the prolog has not made. A step that requests profiling gets
 * one, even if its job does not. */
void remote_init(spank_t spank);
void remote_init_post_opt(spank_t spank, int count, char *arguments[]);

/* slurmstepd's child, as the user, just before a task is executed. */
void remote_task_init(spank_t spank, int count, char *arguments[]);

#endif

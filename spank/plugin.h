/* What the files of the plugin share: one file for each context Slurm loads it in. */
#ifndef TIRESIAS_PLUGIN_H
#define TIRESIAS_PLUGIN_H

#include <stdint.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

/* What a client tells the prologs, where it is called SPANK_TIRESIAS_JOB_NAME. */
#define JOB_NAME_VARIABLE "TIRESIAS_JOB_NAME"

/* srun, sbatch and salloc: the options exist and nonsense is refused. */
void client_init(spank_t spank);
void client_init_post_opt(spank_t spank);

/* slurmd's helper, as root, before anything of an incarnation runs on this node, and after. */
void job_script_prolog(spank_t spank, int count, char *arguments[]);
void job_script_epilog(spank_t spank, int count, char *arguments[]);

/* slurmstepd, as root: a step that asks to be profiled although its job is not gets a file, too. */
void remote_init(spank_t spank);
void remote_init_post_opt(spank_t spank, int count, char *arguments[]);

/* slurmstepd's child, as the user, just before a task is executed. */
void remote_task_init(spank_t spank, int count, char *arguments[]);

#endif

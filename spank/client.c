/* srun (local), sbatch and salloc (allocator). */
#include <stdlib.h>

#include "options.h"
#include "plugin.h"
#include "word.h"

void client_init(spank_t spank)
{
	options_register(spank);
}

/*
 * Tells the prologs what the job is called: Slurm does not, and the steps know only their own
 * names. Of the three clients only sbatch knows it by now.
 */
void client_init_post_opt(spank_t spank)
{
	char name[WORD_SIZE];
	if (word_of(name, getenv("SLURM_JOB_NAME")))
		spank_job_control_setenv(spank, JOB_NAME_VARIABLE, name, 1);
}

/* srun (local), sbatch and salloc (allocator). */
#include <dlfcn.h>
#include <stdlib.h>

#include "options.h"
#include "plugin.h"
#include "word.h"

typedef char *option_get_t(void *options, const char *name);

void client_init(spank_t spank)
{
	options_register(spank);
}

/*
 * The job name given to sbatch, from the function that Slurm offers to cli_filter plugins: in some
 * release after 22.05 sbatch stopped putting the name into its own environment, which may have the
 * name of an enclosing job. The returned string is not freed, since sbatch exits soon.
 */
static const char *given_name(void)
{
	void *options = dlsym(RTLD_DEFAULT, "opt");
	option_get_t *get;
	*(void **)&get = dlsym(RTLD_DEFAULT, "slurm_option_get");
	return options && get ? get(options, "job-name") : NULL;
}

/* A step has its own name; its job's name is in its environment. */
static const char *job_name(void)
{
	const char *name = spank_context() == S_CTX_ALLOCATOR ? given_name() : NULL;
	return name ? name : getenv("SLURM_JOB_NAME");
}

/* Passes the job name to the prologs, because Slurm does not. */
void client_init_post_opt(spank_t spank)
{
	char name[WORD_SIZE];
	if (word_of(name, job_name()))
		spank_job_control_setenv(spank, JOB_NAME_VARIABLE, name, 1);
}

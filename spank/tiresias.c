/*
 * The SPANK plugin of slurm-tiresias: selects the functions for each context.
 *
 * Every hook returns success whatever happens: no job may fail because of it. Only the callbacks of
 * options, which run at submission, can refuse (options.c).
 */
#include "plugin.h"

SPANK_PLUGIN(tiresias, 1)

int slurm_spank_init(spank_t spank, int count, char *arguments[])
{
	(void)count;
	(void)arguments;
	switch (spank_context()) {
	case S_CTX_LOCAL:
	case S_CTX_ALLOCATOR:
		client_init(spank);
		break;
	case S_CTX_REMOTE:
		remote_init(spank);
		break;
	default:
		break;
	}
	return ESPANK_SUCCESS;
}

int slurm_spank_init_post_opt(spank_t spank, int count, char *arguments[])
{
	switch (spank_context()) {
	case S_CTX_ALLOCATOR:
		client_init_post_opt(spank);
		break;
	case S_CTX_REMOTE:
		remote_init_post_opt(spank, count, arguments);
		break;
	default:
		break;
	}
	return ESPANK_SUCCESS;
}

int slurm_spank_task_init(spank_t spank, int count, char *arguments[])
{
	if (spank_context() == S_CTX_REMOTE)
		remote_task_init(spank, count, arguments);
	return ESPANK_SUCCESS;
}

int slurm_spank_job_prolog(spank_t spank, int count, char *arguments[])
{
	if (spank_context() == S_CTX_JOB_SCRIPT)
		job_script_prolog(spank, count, arguments);
	return ESPANK_SUCCESS;
}

int slurm_spank_job_epilog(spank_t spank, int count, char *arguments[])
{
	if (spank_context() == S_CTX_JOB_SCRIPT)
		job_script_epilog(spank, count, arguments);
	return ESPANK_SUCCESS;
}

/*
 * slurmd's helper before and after a run of a job: the only hooks that run once per run and node,
 * however the run ends.
 *
 * The hook before the run is needed because only there Slurm shows the number of restarts: 22.05
 * hides it from a batch step that is still root, and an epilog already counts the requeue that
 * ended the run. The hook after the run is needed because then no process of the job is left on the
 * node. Hooks at the end of a step miss nodes without a batch script, and one step may end long
 * before the others.
 */
#include <stdlib.h>

#include "arguments.h"
#include "hint.h"
#include "known.h"
#include "plugin.h"
#include "run_file.h"

static uint32_t restarts_so_far(void)
{
	const char *count = getenv("SLURM_JOB_RESTART_COUNT");
	return count ? (uint32_t)strtoul(count, NULL, 10) : 0;
}

static bool read_job_run(spank_t spank, struct job_run *job_run)
{
	*job_run = (struct job_run){.restarts = restarts_so_far()};
	if (spank_get_item(spank, S_JOB_GID, &job_run->group) != ESPANK_SUCCESS)
		job_run->group = (gid_t)-1;
	return spank_get_item(spank, S_JOB_ID, &job_run->job) == ESPANK_SUCCESS &&
	       spank_get_item(spank, S_JOB_UID, &job_run->user) == ESPANK_SUCCESS &&
	       node_name(job_run->node);
}

/* The model and the name of the job, as the controller will know them when it reads the file. */
static void read_program(spank_t spank, struct program *program)
{
	char model[MODEL_SIZE];
	if (!options_job_model(spank, model))
		hint_model(model, getenv("SLURM_JOB_COMMENT"));
	word_of(program->model, model);
	word_of(program->user, getenv("SLURM_JOB_USER"));
	word_take(program->job_name, getenv("SPANK_" JOB_NAME_VARIABLE));
}

static bool has_profile(spank_t spank, const struct arguments *arguments)
{
	struct program program;
	read_program(spank, &program);
	return known_has(arguments->collect, &program);
}

static bool has_gpus(void)
{
	const char *gpus = getenv("SLURM_JOB_GPUS");
	return gpus && gpus[0];
}

static bool is_profiled(spank_t spank, const struct arguments *arguments)
{
	enum profile_choice choice = options_job_profile(spank);
	if (choice != PROFILE_AUTO)
		return choice == PROFILE_ON;
	if (arguments->rule == PROFILE_NONE || !has_gpus())
		return false;
	return arguments->rule == PROFILE_ALL || !has_profile(spank, arguments);
}

static unsigned wanted_kinds(spank_t spank, const struct arguments *arguments)
{
	unsigned kinds = is_profiled(spank, arguments) ? RUN_FILE_TRAFFIC : 0;
	return kinds | arguments_progress_kinds(arguments, options_job_progress(spank));
}

void job_script_prolog(spank_t spank, int count, char *words[])
{
	struct arguments arguments;
	struct job_run beginning;
	unsigned kinds;
	arguments_read(&arguments, count, words);
	if (!read_job_run(spank, &beginning))
		return;
	kinds = wanted_kinds(spank, &arguments);
	/* Remove files that an earlier run left because its node died, or steps would write into
	 * them. */
	run_files_collect(arguments.run, "", &beginning, RUN_FILE_ALL & ~kinds);
	run_files_create(arguments.run, &beginning, kinds);
}

void job_script_epilog(spank_t spank, int count, char *words[])
{
	struct arguments arguments;
	struct job_run ended;
	arguments_read(&arguments, count, words);
	if (read_job_run(spank, &ended))
		run_files_collect(arguments.run, arguments.collect, &ended, RUN_FILE_ALL);
}

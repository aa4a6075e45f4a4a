/*
 * slurmd's helper before and after an incarnation: the only hooks that run once for each, on every
 * node, however it ends.
 *
 * Before, because only here Slurm says which incarnation it is: 22.05 tells a batch step nothing
 * of its restarts as long as it is root, and an epilog already counts the requeue that ended it.
 * After, because then nothing of the job runs here any more. The hooks at the end of a step miss
 * nodes without a batch script, and one step may end long before the others.
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

static bool read_incarnation(spank_t spank, struct incarnation *incarnation)
{
	*incarnation = (struct incarnation){.restarts = restarts_so_far()};
	if (spank_get_item(spank, S_JOB_GID, &incarnation->group) != ESPANK_SUCCESS)
		incarnation->group = (gid_t)-1;
	return spank_get_item(spank, S_JOB_ID, &incarnation->job) == ESPANK_SUCCESS &&
	       spank_get_item(spank, S_JOB_UID, &incarnation->user) == ESPANK_SUCCESS &&
	       node_name(incarnation->node);
}

/* The model and the name of the job as the controller will have them, when its file is read. */
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
	enum progress_choice progress = options_job_progress(spank);
	if (progress == PROGRESS_UNSAID)
		progress = arguments->progress;
	if (progress != PROGRESS_OFF)
		kinds |= RUN_FILE_PROGRESS;
	if (progress == PROGRESS_AUTO)
		kinds |= RUN_FILE_OUTPUT;
	return kinds;
}

void job_script_prolog(spank_t spank, int count, char *words[])
{
	struct arguments arguments;
	struct incarnation beginning;
	unsigned kinds;
	arguments_read(&arguments, count, words);
	if (!read_incarnation(spank, &beginning))
		return;
	kinds = wanted_kinds(spank, &arguments);
	/* Steps would write into what an incarnation before has left, as its node died. */
	run_files_collect(arguments.run, "", &beginning, RUN_FILE_ALL & ~kinds);
	if (!run_files_create(arguments.run, &beginning, kinds)) {
		run_files_make_room(arguments.run);
		run_files_create(arguments.run, &beginning, kinds);
	}
}

void job_script_epilog(spank_t spank, int count, char *words[])
{
	struct arguments arguments;
	struct incarnation ended;
	arguments_read(&arguments, count, words);
	if (read_incarnation(spank, &ended))
		run_files_collect(arguments.run, arguments.collect, &ended, RUN_FILE_ALL);
}

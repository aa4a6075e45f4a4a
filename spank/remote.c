/*
 * slurmstepd: gives a step's tasks the files to write into, and the library that counts messages
 * and reads their output.
 *
 * Tasks work without anything that is missing. Their variables are set anew for each task,
 * according to what exists then, because their environment may come from another step, another job
 * or another node.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arguments.h"
#include "monitor/output.h"
#include "monitor/traffic.h"
#include "options.h"
#include "plugin.h"
#include "preload.h"
#include "run_file.h"

/* Not in every program of Slurm that loads the plugin. */
#pragma weak slurm_load_job
#pragma weak slurm_free_job_info_msg

static const char nccl_variable[] = "NCCL_PROFILER_PLUGIN";

/* The variable for the path of each file. */
static const struct {
	enum run_file_kind kind;
	const char *variable;
} files[] = {
	{RUN_FILE_TRAFFIC, TRAFFIC_VARIABLE},
	{RUN_FILE_PROGRESS, "TIRESIAS_PROGRESS_FILE"},
	{RUN_FILE_OUTPUT, OUTPUT_VARIABLE},
};

void remote_init(spank_t spank)
{
	options_register(spank);
}

/* The batch script and the steps of srun; not Slurm's internal steps. */
static bool is_users_step(spank_t spank)
{
	uint32_t step;
	return spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS &&
	       step != SLURM_EXTERN_CONT && step != SLURM_INTERACTIVE_STEP;
}

static bool asks(spank_t spank)
{
	return options_step_profile() == PROFILE_ON && is_users_step(spank);
}

/* The files that the step gets if they exist; without an option, the prolog has decided. */
static unsigned accepted_kinds(const struct arguments *arguments)
{
	static const unsigned progress_kinds[] = {
		[PROGRESS_UNSAID] = RUN_FILE_PROGRESS | RUN_FILE_OUTPUT,
		[PROGRESS_AUTO] = RUN_FILE_PROGRESS | RUN_FILE_OUTPUT,
		[PROGRESS_ON] = RUN_FILE_PROGRESS,
		[PROGRESS_OFF] = 0,
	};
	enum profile_choice profile = options_step_profile();
	bool left_to_prolog = profile == PROFILE_AUTO && arguments->rule != PROFILE_NONE;
	bool is_profiled = profile == PROFILE_ON || left_to_prolog;
	return progress_kinds[options_step_progress()] | (is_profiled ? RUN_FILE_TRAFFIC : 0);
}

/* srun's steps know it only from their environment; a false value there affects only the user's own
 * file. */
static uint32_t restarts_so_far(spank_t spank)
{
	char count[16];
	if (spank_getenv(spank, "SLURM_RESTART_COUNT", count, sizeof count) != ESPANK_SUCCESS)
		return 0;
	return (uint32_t)strtoul(count, NULL, 10);
}

static bool read_job_run(spank_t spank, struct job_run *job_run)
{
	*job_run = (struct job_run){.restarts = restarts_so_far(spank)};
	return spank_get_item(spank, S_JOB_ID, &job_run->job) == ESPANK_SUCCESS &&
	       spank_get_item(spank, S_JOB_UID, &job_run->user) == ESPANK_SUCCESS &&
	       spank_get_item(spank, S_JOB_GID, &job_run->group) == ESPANK_SUCCESS &&
	       node_name(job_run->node);
}

static bool is_batch_step(spank_t spank)
{
	uint32_t step;
	return spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS &&
	       step == SLURM_BATCH_SCRIPT;
}

/*
 * The files that the step lacks. slurmd 22.05 skips the prolog of a requeued job if a step of
 * another job has just started on the node, so the batch step makes up for it, as far as it can
 * know what the prolog would have made.
 */
static unsigned missing_kinds(spank_t spank, const struct arguments *arguments,
			      const struct job_run *job_run, bool is_batch)
{
	static const unsigned all[] = {RUN_FILE_TRAFFIC, RUN_FILE_PROGRESS, RUN_FILE_OUTPUT};
	unsigned missing = 0, wanted = asks(spank) ? RUN_FILE_TRAFFIC : 0;
	/* Without the folder no prolog has ever made anything here. */
	if (is_batch && access(arguments->run, F_OK) == 0)
		wanted |= arguments_progress_kinds(arguments, options_step_progress());
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		struct job_run found = *job_run;
		if (wanted & all[i] && !run_file_find(arguments->run, &found, all[i]))
			missing |= all[i];
	}
	return missing;
}

static slurm_step_id_t all_steps_of(uint32_t job)
{
	return (slurm_step_id_t){.job_id = job, .step_id = NO_VAL, .step_het_comp = NO_VAL};
}

/* The job as slurm_load_job takes it: by its id, or since Slurm 26.05 by a step id. */
#define JOB_TO_LOAD(job)                                                                           \
	_Generic(&slurm_load_job, int (*)(job_info_msg_t **, uint32_t, uint16_t): (job),           \
		default: all_steps_of(job))

/*
 * slurmctld's count of the job's restarts: 22.05 tells it to a batch step only once that is the
 * user's. Without slurmctld this takes Slurm's MessageTimeout.
 */
static bool ask_for_restarts(struct job_run *job_run)
{
	job_info_msg_t *answer = NULL;
	bool found = false;
	if (!slurm_load_job || !slurm_free_job_info_msg ||
	    slurm_load_job(&answer, JOB_TO_LOAD(job_run->job), SHOW_ALL) != SLURM_SUCCESS || !answer)
		return false;
	for (uint32_t i = 0; i < answer->record_count && !found; i++) {
		/* All tasks of an array are in the answer for its first one. */
		found = answer->job_array[i].job_id == job_run->job;
		if (found)
			job_run->restarts = answer->job_array[i].restart_cnt;
	}
	slurm_free_job_info_msg(answer);
	return found;
}

void remote_init_post_opt(spank_t spank, int count, char *words[])
{
	struct arguments arguments;
	struct job_run job_run;
	unsigned missing;
	bool is_batch = is_batch_step(spank);
	arguments_read(&arguments, count, words);
	if (!read_job_run(spank, &job_run))
		return;
	missing = missing_kinds(spank, &arguments, &job_run, is_batch);
	if (!missing || (is_batch && !ask_for_restarts(&job_run)))
		return;
	if (!run_files_create(arguments.run, &job_run, missing))
		slurm_debug("tiresias: a file is missing in %s", arguments.run);
}

/* Whether the task, which may be in a container by now, can write to its file of this kind. */
static bool find_file(const char *run, struct job_run job_run, enum run_file_kind kind,
		      char path[PATH_MAX])
{
	char name[RUN_FILE_NAME_SIZE];
	int length;
	if (!run_file_find(run, &job_run, kind))
		return false;
	run_file_name(&job_run, kind, name);
	length = snprintf(path, PATH_MAX, "%s/%s", run, name);
	return length < PATH_MAX && access(path, R_OK | W_OK) == 0;
}

/* Sets the variables with the paths of the task's files; returns the kinds that it has. */
static unsigned name_files(spank_t spank, const struct arguments *arguments)
{
	unsigned accepted = accepted_kinds(arguments), named = 0;
	struct job_run job_run;
	char path[PATH_MAX];
	if (!is_users_step(spank) || !read_job_run(spank, &job_run))
		return 0;
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
		if (!(accepted & files[i].kind) ||
		    !find_file(arguments->run, job_run, files[i].kind, path))
			continue;
		spank_setenv(spank, files[i].variable, path, 1);
		named |= files[i].kind;
	}
	return named;
}

static void set_up_nccl(spank_t spank, const char *plugin)
{
	if (is_loadable(plugin))
		spank_setenv(spank, nccl_variable, plugin, 0);
}

static void remove_nccl(spank_t spank, const char *plugin)
{
	char value[PATH_MAX];
	if (spank_getenv(spank, nccl_variable, value, sizeof value) == ESPANK_SUCCESS &&
	    strcmp(value, plugin) == 0)
		spank_unsetenv(spank, nccl_variable);
}

static void remove_all(spank_t spank, const struct arguments *arguments)
{
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
		spank_unsetenv(spank, files[i].variable);
	preload_remove(spank, arguments->monitor);
	remove_nccl(spank, arguments->nccl);
}

void remote_task_init(spank_t spank, int count, char *words[])
{
	struct arguments arguments;
	unsigned named;
	arguments_read(&arguments, count, words);
	remove_all(spank, &arguments);
	named = name_files(spank, &arguments);
	if (named & (RUN_FILE_TRAFFIC | RUN_FILE_OUTPUT) && is_loadable(arguments.monitor))
		preload_add(spank, arguments.monitor);
	if (named & RUN_FILE_TRAFFIC)
		set_up_nccl(spank, arguments.nccl);
}

/*
 * slurmstepd: gives a step's tasks a file to count in and the library that counts.
 *
 * Anything that is missing means: not profiled. What the tasks see is decided anew for each task,
 * from what is there then, because their environment may come from another step, another job or
 * another node, where other things were true.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arguments.h"
#include "monitor/traffic.h"
#include "options.h"
#include "plugin.h"
#include "preload.h"
#include "traffic_file.h"

static const char nccl_variable[] = "NCCL_PROFILER_PLUGIN";

void remote_init(spank_t spank)
{
	options_register(spank);
}

/* The batch script and what srun starts; not what Slurm runs for its own ends. */
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

/* Whether the step is profiled if it finds a file; for who does not say the prolog has decided. */
static bool is_willing(spank_t spank, const struct arguments *arguments)
{
	enum profile_choice choice = options_step_profile();
	bool left_to_prolog = choice == PROFILE_AUTO && arguments->rule != PROFILE_NONE;
	return (choice == PROFILE_ON || left_to_prolog) && is_users_step(spank);
}

/* Known to srun's steps only from their environment; a lie there misnames the liar's own file. */
static uint32_t restarts_so_far(spank_t spank)
{
	char count[16];
	if (spank_getenv(spank, "SLURM_RESTART_COUNT", count, sizeof count) != ESPANK_SUCCESS)
		return 0;
	return (uint32_t)strtoul(count, NULL, 10);
}

static bool read_incarnation(spank_t spank, struct incarnation *incarnation)
{
	*incarnation = (struct incarnation){.restarts = restarts_so_far(spank)};
	return spank_get_item(spank, S_JOB_ID, &incarnation->job) == ESPANK_SUCCESS &&
	       spank_get_item(spank, S_JOB_UID, &incarnation->user) == ESPANK_SUCCESS &&
	       spank_get_item(spank, S_JOB_GID, &incarnation->group) == ESPANK_SUCCESS &&
	       node_name(incarnation->node);
}

void remote_init_post_opt(spank_t spank, int count, char *words[])
{
	struct arguments arguments;
	struct incarnation incarnation;
	arguments_read(&arguments, count, words);
	if (!asks(spank) || !read_incarnation(spank, &incarnation) ||
	    traffic_find(arguments.run, &incarnation))
		return;
	if (!traffic_create(arguments.run, &incarnation))
		slurm_debug("tiresias: no traffic file in %s", arguments.run);
}

/* Whether the task, which may be in a container by now, can write to its traffic file. */
static bool find_traffic_file(spank_t spank, const struct arguments *arguments, char path[PATH_MAX])
{
	struct incarnation incarnation;
	char name[TRAFFIC_NAME_SIZE];
	int length;
	if (!is_willing(spank, arguments) || !read_incarnation(spank, &incarnation) ||
	    !traffic_find(arguments->run, &incarnation))
		return false;
	traffic_name(&incarnation, name);
	length = snprintf(path, PATH_MAX, "%s/%s", arguments->run, name);
	return length < PATH_MAX && access(path, R_OK | W_OK) == 0;
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
	spank_unsetenv(spank, TRAFFIC_VARIABLE);
	preload_remove(spank, arguments->monitor);
	remove_nccl(spank, arguments->nccl);
}

void remote_task_init(spank_t spank, int count, char *words[])
{
	struct arguments arguments;
	char traffic[PATH_MAX];
	arguments_read(&arguments, count, words);
	remove_all(spank, &arguments);
	if (!find_traffic_file(spank, &arguments, traffic))
		return;
	spank_setenv(spank, TRAFFIC_VARIABLE, traffic, 1);
	if (is_loadable(arguments.monitor))
		preload_add(spank, arguments.monitor);
	set_up_nccl(spank, arguments.nccl);
}

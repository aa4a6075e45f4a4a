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
#include "plugin.h"
#include "traffic_file.h"

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

void job_script_prolog(spank_t spank, int count, char *words[])
{
	struct arguments arguments;
	struct incarnation beginning;
	arguments_read(&arguments, count, words);
	if (arguments_profile(&arguments, options_job_profile(spank)) &&
	    read_incarnation(spank, &beginning))
		traffic_create(arguments.run, &beginning);
}

void job_script_epilog(spank_t spank, int count, char *words[])
{
	struct arguments arguments;
	struct incarnation ended;
	arguments_read(&arguments, count, words);
	if (read_incarnation(spank, &ended))
		traffic_collect(arguments.run, arguments.collect, &ended);
}

#include "fake_slurm.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_slurm fake;

static bool fails_now(void)
{
	fake.calls++;
	return fake.calls == fake.failing_call;
}

/* ---------------------------------------------------------------------------------------------
 * For the tests
 */

static char **slot_of(const char *name)
{
	size_t length = strlen(name);
	for (int i = 0; i < FAKE_MOST_VARIABLES; i++) {
		char *variable = fake.variables[i];
		if (variable && strncmp(variable, name, length) == 0 && variable[length] == '=')
			return &fake.variables[i];
	}
	return NULL;
}

static char **free_slot(void)
{
	for (int i = 0; i < FAKE_MOST_VARIABLES; i++)
		if (!fake.variables[i])
			return &fake.variables[i];
	abort();
}

void fake_setenv(const char *name, const char *value)
{
	char **slot = slot_of(name);
	if (slot) {
		free(*slot);
		*slot = NULL;
	}
	if (value && asprintf(slot ? slot : free_slot(), "%s=%s", name, value) < 0)
		abort();
}

const char *fake_getenv(const char *name)
{
	char **slot = slot_of(name);
	return slot ? *slot + strlen(name) + 1 : NULL;
}

static struct spank_option *option_named(const char *name)
{
	for (int i = 0; i < fake.option_count; i++)
		if (strcmp(fake.options[i].name, name) == 0)
			return &fake.options[i];
	return NULL;
}

int fake_option(const char *name, const char *value, bool remote)
{
	const struct spank_option *option = option_named(name);
	if (!option)
		abort();
	return option->cb(option->val, value, remote);
}

void fake_end(void)
{
	for (int i = 0; i < FAKE_MOST_VARIABLES; i++)
		free(fake.variables[i]);
	memset(&fake, 0, sizeof fake);
}

/* ---------------------------------------------------------------------------------------------
 * What the plugin calls. As in Slurm, only slurmstepd has an environment.
 */

spank_context_t spank_context(void)
{
	return fake.context;
}

spank_err_t spank_option_register(spank_t spank, struct spank_option *option)
{
	struct spank_option *known = option_named(option->name);
	(void)spank;
	if (fails_now() || fake.option_count == FAKE_MOST_OPTIONS)
		return ESPANK_BAD_ARG;
	*(known ? known : &fake.options[fake.option_count++]) = *option;
	return ESPANK_SUCCESS;
}

/* As in a prolog, where the job's options are in the environment. */
spank_err_t spank_option_getopt(spank_t spank, struct spank_option *option, char **value)
{
	char name[128] = "SPANK__SLURM_SPANK_OPTION_tiresias_";
	char *canonical = name + strlen(name);
	(void)spank;
	if (fails_now() || fake.context != S_CTX_JOB_SCRIPT || !option->has_arg)
		return ESPANK_NOT_AVAIL;
	strncat(name, option->name, sizeof name - strlen(name) - 1);
	for (char *at = canonical; *at; at++)
		*at = *at == '-' ? '_' : *at;
	*value = getenv(name);
	return *value ? ESPANK_SUCCESS : ESPANK_ERROR;
}

static bool is_known(spank_item_t item)
{
	if (fake.context == S_CTX_JOB_SCRIPT)
		return item == S_JOB_ID || item == S_JOB_UID || item == S_JOB_GID;
	return fake.context == S_CTX_REMOTE;
}

static spank_err_t put_item(spank_item_t item, void *to)
{
	switch (item) {
	case S_JOB_ID:
		*(uint32_t *)to = fake.job;
		return ESPANK_SUCCESS;
	case S_JOB_STEPID:
		*(uint32_t *)to = fake.step;
		return ESPANK_SUCCESS;
	case S_JOB_UID:
		*(uid_t *)to = fake.user;
		return ESPANK_SUCCESS;
	case S_JOB_GID:
		*(gid_t *)to = fake.group;
		return ESPANK_SUCCESS;
	default:
		return ESPANK_BAD_ARG;
	}
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
	va_list rest;
	void *to;
	(void)spank;
	if (fails_now() || !is_known(item))
		return ESPANK_NOT_AVAIL;
	va_start(rest, item);
	to = va_arg(rest, void *);
	va_end(rest);
	return put_item(item, to);
}

spank_err_t spank_getenv(spank_t spank, const char *name, char *buffer, int size)
{
	const char *value = fake_getenv(name);
	(void)spank;
	if (fails_now() || fake.context != S_CTX_REMOTE)
		return ESPANK_NOT_REMOTE;
	if (!value)
		return ESPANK_ENV_NOEXIST;
	return snprintf(buffer, (size_t)size, "%s", value) < size ? ESPANK_SUCCESS : ESPANK_NOSPACE;
}

spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int overwrite)
{
	(void)spank;
	if (fails_now() || fake.context != S_CTX_REMOTE)
		return ESPANK_NOT_REMOTE;
	if (fake_getenv(name) && !overwrite)
		return ESPANK_ENV_EXISTS;
	fake_setenv(name, value);
	return ESPANK_SUCCESS;
}

spank_err_t spank_unsetenv(spank_t spank, const char *name)
{
	(void)spank;
	if (fails_now() || fake.context != S_CTX_REMOTE)
		return ESPANK_NOT_REMOTE;
	fake_setenv(name, NULL);
	return ESPANK_SUCCESS;
}

/* As in Slurm, a prolog that runs later finds it in its environment. */
spank_err_t spank_job_control_setenv(spank_t spank, const char *name, const char *value,
				     int overwrite)
{
	char in_prologs[128];
	(void)spank;
	if (fails_now() || (fake.context != S_CTX_LOCAL && fake.context != S_CTX_ALLOCATOR))
		return ESPANK_NOT_LOCAL;
	snprintf(in_prologs, sizeof in_prologs, "SPANK_%s", name);
	return setenv(in_prologs, value, overwrite) == 0 ? ESPANK_SUCCESS : ESPANK_NOSPACE;
}

/* As in Slurm, with other jobs in the answer, such as tasks of the same array. */
static int answer_for(job_info_msg_t **answer, uint32_t job)
{
	fake.questions++;
	if (fails_now())
		return SLURM_ERROR;
	*answer = calloc(1, sizeof **answer);
	(*answer)->record_count = 2;
	(*answer)->job_array = calloc(2, sizeof *(*answer)->job_array);
	(*answer)->job_array[0].job_id = job + 1;
	(*answer)->job_array[0].restart_cnt = 99;
	(*answer)->job_array[1].job_id = fake.job;
	(*answer)->job_array[1].restart_cnt = (uint16_t)fake.restarts;
	return SLURM_SUCCESS;
}

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
int slurm_load_job(job_info_msg_t **answer, slurm_step_id_t step, uint16_t flags)
{
	(void)flags;
	return answer_for(answer, step.job_id);
}
#else
int slurm_load_job(job_info_msg_t **answer, uint32_t job, uint16_t flags)
{
	(void)flags;
	return answer_for(answer, job);
}
#endif

void slurm_free_job_info_msg(job_info_msg_t *answer)
{
	free(answer->job_array);
	free(answer);
}

void slurm_error(const char *format, ...)
{
	va_list rest;
	va_start(rest, format);
	vsnprintf(fake.said, sizeof fake.said, format, rest);
	va_end(rest);
	fake.errors++;
}

void slurm_debug(const char *format, ...)
{
	(void)format;
}

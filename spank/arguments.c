#include "arguments.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "run_file.h"

/* ld.so splits LD_PRELOAD at blanks and colons, so our paths must contain neither. */
static const char splitting[] = " :\t\n";

static const char *const rules[] = {
	[PROFILE_NONE] = "off", [PROFILE_THE_UNKNOWN] = "unknown", [PROFILE_ALL] = "auto"};

/* The path of some file in the folder that this plugin was loaded from; "" if unknown. */
static void path_beside_plugin(char path[PATH_MAX], const char *name)
{
	Dl_info self;
	const char *slash;
	int folder, length;
	path[0] = '\0';
	if (!dladdr((const void *)(uintptr_t)arguments_read, &self) || !self.dli_fname)
		return;
	slash = strrchr(self.dli_fname, '/');
	folder = slash ? (int)(slash - self.dli_fname) : 0;
	length = snprintf(path, PATH_MAX, "%.*s/%s", folder, self.dli_fname, name);
	if (length < 0 || length >= PATH_MAX || strpbrk(path, splitting))
		path[0] = '\0';
}

static const char *value_of(const char *word, const char *key)
{
	size_t length = strlen(key);
	return strncmp(word, key, length) == 0 && word[length] == '=' ? word + length + 1 : NULL;
}

static bool take_path(char path[PATH_MAX], const char *word, const char *key)
{
	const char *value = value_of(word, key);
	if (!value || value[0] != '/' || strpbrk(value, splitting) || strlen(value) >= PATH_MAX)
		return false;
	memcpy(path, value, strlen(value) + 1);
	return true;
}

static bool take_profile(struct arguments *arguments, const char *word)
{
	const char *value = value_of(word, "profile");
	for (size_t i = 0; value && i < sizeof rules / sizeof rules[0]; i++) {
		if (strcmp(value, rules[i]) != 0)
			continue;
		arguments->rule = (enum profile_rule)i;
		return true;
	}
	return false;
}

static bool take_progress(struct arguments *arguments, const char *word)
{
	const char *value = value_of(word, "progress");
	enum progress_choice choice = value ? options_progress_named(value) : PROGRESS_UNSAID;
	if (choice != PROGRESS_UNSAID)
		arguments->progress = choice;
	return choice != PROGRESS_UNSAID;
}

static void take_word(struct arguments *arguments, const char *word)
{
	if (take_path(arguments->run, word, "run") ||
	    take_path(arguments->collect, word, "collect") ||
	    take_path(arguments->monitor, word, "monitor") ||
	    take_path(arguments->nccl, word, "nccl") || take_profile(arguments, word) ||
	    take_progress(arguments, word))
		return;
	slurm_debug("tiresias: plugstack.conf: cannot use \"%s\"", word);
}

void arguments_read(struct arguments *arguments, int count, char *const words[])
{
	*arguments = (struct arguments){
		.progress = PROGRESS_ON,
		.run = "/run/slurm-tiresias",
	};
	path_beside_plugin(arguments->monitor, "libtiresias_monitor.so");
	path_beside_plugin(arguments->nccl, "libnccl-profiler-tiresias.so");
	for (int i = 0; i < count; i++)
		take_word(arguments, words[i]);
}

unsigned arguments_progress_kinds(const struct arguments *arguments, enum progress_choice said)
{
	static const unsigned kinds[] = {
		[PROGRESS_AUTO] = RUN_FILE_PROGRESS | RUN_FILE_OUTPUT,
		[PROGRESS_ON] = RUN_FILE_PROGRESS,
		[PROGRESS_OFF] = 0,
	};
	return kinds[said == PROGRESS_UNSAID ? arguments->progress : said];
}

/*
 * The options as one table: name, argument and help of each.
 *
 * Slurm itself carries the values: into the submission, where etc/job_submit.lua finds them, and to
 * the steps on the nodes.
 */
#include "options.h"

#include <stdint.h>
#include <string.h>

#include <slurm/slurm.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum {
	MOST_MODEL_LENGTH = MODEL_SIZE - 1,
	MOST_SECONDS = 3600,
	MOST_SECONDS_DIGITS = 4,
	MOST_TIMES_DIGITS = 2,
	MOST_PATH_LENGTH = 256,
};

#define DIGITS "0123456789"
#define LETTERS_AND_DIGITS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" DIGITS

enum option {
	OPTION_MODEL,
	OPTION_PLACEMENT,
	OPTION_PROFILE,
	OPTION_PROGRESS,
	OPTION_CHECKPOINT,
	OPTION_CHECKPOINT_DIR,
	OPTION_RESTART,
};

struct rule {
	const char *name;
	const char *takes;
	const char *help;
	const char *expected;
	bool (*accepts)(const char *value);
};

static const char *const placements[] = {"auto", "consolidate", "spread"};

static const char *const profiles[] = {
	[PROFILE_AUTO] = "auto", [PROFILE_ON] = "on", [PROFILE_OFF] = "off"};

/* In the order of enum progress_choice. */
static const char *const progresses[] = {"auto", "on", "off"};

/* Signals a program can catch. */
static const char *const signals[] = {"HUP", "INT",  "QUIT", "USR1", "USR2",   "ALRM",  "TERM",
				      "URG", "CONT", "XCPU", "PROF", "VTALRM", "WINCH", "PWR"};

static enum profile_choice profile = PROFILE_AUTO;
static enum progress_choice progress = PROGRESS_UNSAID;

/* The index of the word equal to the first `length` bytes of a value; -1 if there is none. */
static int index_of(const char *value, size_t length, const char *const words[], size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strlen(words[i]) == length && memcmp(words[i], value, length) == 0)
			return (int)i;
	return -1;
}

static bool is_model(const char *value)
{
	size_t length = strnlen(value, MOST_MODEL_LENGTH + 1);
	return length >= 1 && length <= MOST_MODEL_LENGTH && strchr(LETTERS_AND_DIGITS, value[0]) &&
	       strspn(value, LETTERS_AND_DIGITS "._+-") == length;
}

static bool is_placement(const char *value)
{
	return index_of(value, strlen(value), placements, COUNT(placements)) >= 0;
}

static bool is_profile(const char *value)
{
	return index_of(value, strlen(value), profiles, COUNT(profiles)) >= 0;
}

static enum profile_choice profile_named(const char *value)
{
	return (enum profile_choice)index_of(value, strlen(value), profiles, COUNT(profiles));
}

enum progress_choice options_progress_named(const char *word)
{
	int index = index_of(word, strlen(word), progresses, COUNT(progresses));
	return (enum progress_choice)(PROGRESS_AUTO + index);
}

static bool is_progress(const char *value)
{
	return options_progress_named(value) != PROGRESS_UNSAID;
}

static bool is_seconds(const char *value)
{
	size_t length = strnlen(value, MOST_SECONDS_DIGITS + 1);
	if (length < 1 || length > MOST_SECONDS_DIGITS || strspn(value, DIGITS) != length)
		return false;
	int seconds = 0;
	for (const char *digit = value; *digit; digit++)
		seconds = seconds * 10 + (*digit - '0');
	return seconds <= MOST_SECONDS;
}

static bool is_checkpoint(const char *value)
{
	const char *at = strchr(value, '@');
	if (!at || !is_seconds(at + 1))
		return false;
	if (strncmp(value, "SIG", 3) == 0)
		value += 3;
	return index_of(value, (size_t)(at - value), signals, COUNT(signals)) >= 0;
}

/* An absolute path that a hint can carry; the same as in slurm_tiresias/job_hints.py. */
static bool is_path(const char *value)
{
	size_t length = strnlen(value, MOST_PATH_LENGTH + 1);
	if (length < 2 || length > MOST_PATH_LENGTH || value[0] != '/' ||
	    strspn(value, LETTERS_AND_DIGITS "/._+@:~%-") != length)
		return false;
	for (const char *name = value + 1; *name;) {
		size_t name_length = strcspn(name, "/");
		if (name_length == 0 || (name_length <= 2 && strspn(name, ".") == name_length))
			return false;
		name += name_length + (name[name_length] == '/');
	}
	return true;
}

static bool is_times(const char *value)
{
	size_t length = strnlen(value, MOST_TIMES_DIGITS + 1);
	return length >= 1 && length <= MOST_TIMES_DIGITS && strspn(value, DIGITS) == length;
}

static const struct rule rules[] = {
	[OPTION_MODEL] = {"tiresias-model", "NAME",
			  "[tiresias] the model that is trained, e.g. vgg16: its profile decides "
			  "whether the job is kept on few nodes",
			  "a name of up to 64 letters, digits and . _ + -, e.g. vgg16", is_model},
	[OPTION_PLACEMENT] =
		{"tiresias-placement", "auto|consolidate|spread",
		 "[tiresias] keep the job on few nodes, spread it over free GPUs, or let "
		 "its profile decide (auto)",
		 "auto, consolidate or spread", is_placement},
	[OPTION_PROFILE] =
		{"tiresias-profile", "auto|on|off",
		 "[tiresias] count the sizes of the messages that the job sends; auto is "
		 "what this cluster is set to",
		 "auto, on or off", is_profile},
	[OPTION_PROGRESS] =
		{"tiresias-progress", "auto|on|off",
		 "[tiresias] how far the job is: as it reports itself (on), also as it "
		 "prints (auto), or not at all (off)",
		 "auto, on or off", is_progress},
	[OPTION_CHECKPOINT] =
		{"tiresias-checkpoint", "SIGNAL@SECONDS",
		 "[tiresias] the signal that asks the job to save its state before it is "
		 "preempted, and how long that takes, e.g. USR1@60",
		 "a signal and up to 3600 seconds, e.g. USR1@60", is_checkpoint},
	[OPTION_CHECKPOINT_DIR] =
		{"tiresias-checkpoint-dir", "PATH",
		 "[tiresias] the folder in which the job saves its state: its newest file tells "
		 "when the job last saved",
		 "an absolute path (no . or ..) of up to 256 letters, digits and / . _ + @ : ~ % -",
		 is_path},
	[OPTION_RESTART] =
		{"tiresias-restart", "TIMES",
		 "[tiresias] restart the job when it fails, at most so often without progress",
		 "a number of up to two digits", is_times},
};

static int refuse(const struct rule *rule)
{
	slurm_error("--%s takes %s.", rule->name, rule->expected);
	return -1;
}

/*
 * Slurm's callback for every option; -1 refuses a submission. On a node nothing is refused: a value
 * from a client without these checks must not harm the job.
 */
static int take(int number, const char *value, int remote)
{
	if (!value || !rules[number].accepts(value))
		return remote ? 0 : refuse(&rules[number]);
	if (number == OPTION_PROFILE)
		profile = profile_named(value);
	if (number == OPTION_PROGRESS)
		progress = options_progress_named(value);
	return 0;
}

/* Slurm copies its argument, although it declares it as writable. */
static struct spank_option in_slurms_form(int number)
{
	return (struct spank_option){
		.name = (char *)(uintptr_t)rules[number].name,
		.arginfo = (char *)(uintptr_t)rules[number].takes,
		.usage = (char *)(uintptr_t)rules[number].help,
		.has_arg = 1,
		.val = number,
		.cb = take,
	};
}

void options_register(spank_t spank)
{
	profile = PROFILE_AUTO;
	progress = PROGRESS_UNSAID;
	for (size_t i = 0; i < COUNT(rules); i++) {
		struct spank_option option = in_slurms_form((int)i);
		if (spank_option_register(spank, &option) != ESPANK_SUCCESS)
			slurm_debug("tiresias: cannot register --%s", option.name);
	}
}

enum profile_choice options_step_profile(void)
{
	return profile;
}

enum progress_choice options_step_progress(void)
{
	return progress;
}

/* NULL if the option was not given. */
static const char *said_by_job(spank_t spank, int number)
{
	struct spank_option option = in_slurms_form(number);
	char *value = NULL;
	return spank_option_getopt(spank, &option, &value) == ESPANK_SUCCESS ? value : NULL;
}

enum profile_choice options_job_profile(spank_t spank)
{
	const char *value = said_by_job(spank, OPTION_PROFILE);
	return value && is_profile(value) ? profile_named(value) : PROFILE_AUTO;
}

enum progress_choice options_job_progress(spank_t spank)
{
	const char *value = said_by_job(spank, OPTION_PROGRESS);
	return value ? options_progress_named(value) : PROGRESS_UNSAID;
}

bool options_job_model(spank_t spank, char model[MODEL_SIZE])
{
	const char *value = said_by_job(spank, OPTION_MODEL);
	return options_take_model(model, value, value ? strlen(value) : 0);
}

bool options_take_model(char model[MODEL_SIZE], const char *text, size_t length)
{
	model[0] = '\0';
	if (length < 1 || length >= MODEL_SIZE)
		return false;
	memcpy(model, text, length);
	model[length] = '\0';
	if (!is_model(model))
		model[0] = '\0';
	return model[0];
}

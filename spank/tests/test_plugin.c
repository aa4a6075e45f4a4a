/*
 * Tests of the plugin with a fake Slurm: every case runs in its own process, like every step, with
 * the hooks in slurmstepd's order.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fake_slurm.h"
#include "monitor/traffic.h"

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))
#define NOBODY 65534

#define CHECK(condition) check((condition), #condition, __LINE__)

static char folder[] = "/tmp/tiresias-test-XXXXXX";
static char run[PATH_MAX];
static char collect[PATH_MAX];
static char library[PATH_MAX];
static char words[8][PATH_MAX + 16];
static int word_count;
static const char *run_case;

static void check(bool holds, const char *condition, int line)
{
	if (holds)
		return;
	fprintf(stderr, "%s: line %d: not so: %s\n", run_case, line, condition);
	exit(1);
}

/* ---------------------------------------------------------------------------------------------
 * Acts
 */

static char **plugstack(void)
{
	static char *list[COUNT(words)];
	for (int i = 0; i < COUNT(words); i++)
		list[i] = words[i];
	return list;
}

static void argument(const char *key, const char *value)
{
	snprintf(words[word_count++], sizeof words[0], "%s=%s", key, value);
}

static void init(spank_context_t context)
{
	fake.context = context;
	CHECK(slurm_spank_init(NULL, word_count, plugstack()) == 0);
}

static void post_opt(void)
{
	CHECK(slurm_spank_init_post_opt(NULL, word_count, plugstack()) == 0);
}

static void task_init(void)
{
	CHECK(slurm_spank_task_init(NULL, word_count, plugstack()) == 0);
}

static void epilog(void)
{
	fake.context = S_CTX_JOB_SCRIPT;
	setenv("SLURMD_NODENAME", "n1", 1);
	CHECK(slurm_spank_job_epilog(NULL, word_count, plugstack()) == 0);
}

static void set_restarts(const char *name)
{
	char count[16];
	snprintf(count, sizeof count, "%u", fake.restarts);
	setenv(name, count, 1);
	fake_setenv(name, count);
}

/* The options on the command line, as a prolog finds them; NULL: none. */
static void say(const char *option, const char *value)
{
	char name[128];
	snprintf(name, sizeof name, "SPANK__SLURM_SPANK_OPTION_tiresias_tiresias_%s", option);
	if (value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

/* sbatch, with the job name if it knows it by then. */
static void submit(const char *job_name)
{
	unsetenv("SPANK_TIRESIAS_JOB_NAME");
	setenv("SLURM_JOB_NAME", job_name, 1);
	init(S_CTX_ALLOCATOR);
	post_opt();
	unsetenv("SLURM_JOB_NAME");
}

static void prolog(const char *profile)
{
	fake.context = S_CTX_JOB_SCRIPT;
	set_restarts("SLURM_JOB_RESTART_COUNT");
	if (profile)
		say("profile", profile);
	CHECK(slurm_spank_job_prolog(NULL, word_count, plugstack()) == 0);
}

/* One of srun's steps, from its start until just before its task is executed. */
static void step(const char *profile)
{
	init(S_CTX_REMOTE);
	set_restarts("SLURM_RESTART_COUNT");
	if (profile)
		CHECK(fake_option("tiresias-profile", profile, true) == 0);
	post_opt();
	task_init();
}

static const char *in(const char *parent, const char *name)
{
	static char paths[4][2 * PATH_MAX];
	static int next;
	char *path = paths[next++ % COUNT(paths)];
	snprintf(path, sizeof paths[0], "%s/%s", parent, name);
	return path;
}

static const char *traffic(void)
{
	return in(run, "7.2.n1.traffic");
}

static const char *collected(void)
{
	return in(collect, "7.2.n1.traffic");
}

static bool exists(const char *path)
{
	struct stat status;
	return lstat(path, &status) == 0;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status;
	(void)kind;
	(void)place;
	return remove(path);
}

static struct stat status_of(const char *path)
{
	struct stat status;
	CHECK(lstat(path, &status) == 0);
	return status;
}

static int entries_in(const char *path)
{
	DIR *entries = opendir(path);
	int count = -2; /* . and .. */
	CHECK(entries);
	while (readdir(entries))
		count++;
	closedir(entries);
	return count;
}

/* What a task does with its file. */
static void count_one_message(void)
{
	int file = open(traffic(), O_RDWR);
	struct traffic_file *mapped =
		mmap(NULL, sizeof *mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(mapped != MAP_FAILED);
	traffic_describe(&mapped->header);
	mapped->sections[TRAFFIC_MESSAGES].octaves[10].slots[0] =
		(struct traffic_slot){.bytes = 1024, .messages = 1};
	munmap(mapped, sizeof *mapped);
	close(file);
}

static void write_file(const char *path, const char *content, size_t size)
{
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	CHECK(file >= 0 && write(file, content, size) == (ssize_t)size);
	close(file);
}

/* ---------------------------------------------------------------------------------------------
 * Submitting
 */

static const char *const names[] = {"tiresias-model", "tiresias-placement", "tiresias-profile",
				    "tiresias-progress", "tiresias-checkpoint",
				    "tiresias-checkpoint-dir", "tiresias-restart"};

static void the_options_exist_with_help_wherever_jobs_are_submitted_or_run(void)
{
	const spank_context_t contexts[] = {S_CTX_LOCAL, S_CTX_ALLOCATOR, S_CTX_REMOTE};
	for (int i = 0; i < COUNT(contexts); i++) {
		init(contexts[i]);
		CHECK(fake.option_count == COUNT(names));
		for (int j = 0; j < COUNT(names); j++) {
			CHECK(strcmp(fake.options[j].name, names[j]) == 0);
			CHECK(strncmp(fake.options[j].usage, "[tiresias] ", 11) == 0);
			CHECK(fake.options[j].has_arg && fake.options[j].arginfo[0]);
		}
		fake_end();
	}
}

static void slurmd_itself_gets_no_options(void)
{
	init(S_CTX_SLURMD);
	init(S_CTX_ERROR);
	init(S_CTX_JOB_SCRIPT);
	CHECK(fake.option_count == 0);
}

static void sense_is_accepted(void)
{
	static const char *const sense[][2] = {
		{"tiresias-model", "vgg16"},
		{"tiresias-model", "meta-llama.Llama_3+8B"},
		{"tiresias-model",
		 "0123456789012345678901234567890123456789012345678901234567890123"},
		{"tiresias-placement", "auto"},
		{"tiresias-placement", "consolidate"},
		{"tiresias-placement", "spread"},
		{"tiresias-profile", "auto"},
		{"tiresias-profile", "on"},
		{"tiresias-profile", "off"},
		{"tiresias-progress", "auto"},
		{"tiresias-progress", "on"},
		{"tiresias-progress", "off"},
		{"tiresias-checkpoint", "USR1@60"},
		{"tiresias-checkpoint", "SIGTERM@0"},
		{"tiresias-checkpoint", "INT@3600"},
		{"tiresias-checkpoint-dir", "/scratch/ann/run-1"},
		{"tiresias-checkpoint-dir", "/scratch/ann/.ckpt/...+@:~%20_/"},
		{"tiresias-restart", "3"},
	};
	init(S_CTX_ALLOCATOR);
	for (int i = 0; i < COUNT(sense); i++)
		CHECK(fake_option(sense[i][0], sense[i][1], false) == 0);
	CHECK(fake.errors == 0);
}

static const char *const nonsense[][2] = {
	{"tiresias-model", ""},
	{"tiresias-model", "-vgg16"},
	{"tiresias-model", "vgg 16"},
	{"tiresias-model", "vgg16\nplacement=spread"},
	{"tiresias-model", "vgg16,placement=spread"},
	{"tiresias-model", "../../etc/passwd"},
	{"tiresias-model", "x'; drop table profile; --"},
	{"tiresias-model", "na\xc3\xafve"},
	{"tiresias-model", "01234567890123456789012345678901234567890123456789012345678901234"},
	{"tiresias-placement", ""},
	{"tiresias-placement", "packed"},
	{"tiresias-placement", "consolidated"},
	{"tiresias-placement", "Spread"},
	{"tiresias-profile", "yes"},
	{"tiresias-profile", "on "},
	{"tiresias-progress", ""},
	{"tiresias-progress", "yes"},
	{"tiresias-progress", "off,on"},
	{"tiresias-checkpoint", ""},
	{"tiresias-checkpoint", "USR1"},
	{"tiresias-checkpoint", "@60"},
	{"tiresias-checkpoint", "SIG@60"},
	{"tiresias-checkpoint", "KILL@60"},
	{"tiresias-checkpoint", "USR1@"},
	{"tiresias-checkpoint", "USR1@-1"},
	{"tiresias-checkpoint", "USR1@3601"},
	{"tiresias-checkpoint", "USR1@99999999999999999999"},
	{"tiresias-checkpoint", "USR1@1.5"},
	{"tiresias-checkpoint", "USR1@60@60"},
	{"tiresias-restart", ""},
	{"tiresias-restart", "100"},
	{"tiresias-restart", "-1"},
	{"tiresias-checkpoint-dir", ""},
	{"tiresias-checkpoint-dir", "/"},
	{"tiresias-checkpoint-dir", "scratch/ann"},
	{"tiresias-checkpoint-dir", "./run1"},
	{"tiresias-checkpoint-dir", "/scratch/../etc"},
	{"tiresias-checkpoint-dir", "/scratch/."},
	{"tiresias-checkpoint-dir", "/scratch/.."},
	{"tiresias-checkpoint-dir", "//scratch"},
	{"tiresias-checkpoint-dir", "/scratch//"},
	{"tiresias-checkpoint-dir", "/my runs"},
	{"tiresias-checkpoint-dir", "/runs,model=vgg16"},
	{"tiresias-checkpoint-dir", "/runs\n"},
	{"tiresias-checkpoint-dir", "/na\xc3\xafve"},
};

static void nonsense_is_refused_with_one_line_that_says_what_to_write(void)
{
	init(S_CTX_ALLOCATOR);
	for (int i = 0; i < COUNT(nonsense); i++) {
		CHECK(fake_option(nonsense[i][0], nonsense[i][1], false) == -1);
		CHECK(fake.errors == i + 1);
		CHECK(strstr(fake.said, nonsense[i][0]) && strstr(fake.said, " takes "));
		CHECK(!strchr(fake.said, '\n') && strlen(fake.said) < 120);
	}
}

static void a_value_of_64_kilobytes_is_refused_with_one_short_line(void)
{
	static char huge[65537];
	memset(huge, 'a', sizeof huge - 1);
	init(S_CTX_LOCAL);
	for (int i = 0; i < COUNT(names); i++)
		CHECK(fake_option(names[i], huge, false) == -1 && strlen(fake.said) < 120);
	CHECK(fake_option("tiresias-model", NULL, false) == -1);
}

static void a_path_has_256_characters_at_most(void)
{
	char path[258] = "/";
	memset(path + 1, 'a', 255);
	init(S_CTX_ALLOCATOR);
	CHECK(fake_option("tiresias-checkpoint-dir", path, false) == 0);
	path[256] = 'a';
	CHECK(fake_option("tiresias-checkpoint-dir", path, false) == -1);
}

static void on_a_node_nonsense_costs_a_job_nothing(void)
{
	init(S_CTX_REMOTE);
	for (int i = 0; i < COUNT(nonsense); i++)
		CHECK(fake_option(nonsense[i][0], nonsense[i][1], true) == 0);
	CHECK(fake.errors == 0);
	post_opt();
	CHECK(!exists(run));
}

/* ---------------------------------------------------------------------------------------------
 * Starting
 */

static void check_untouched(void)
{
	task_init();
	CHECK(!exists(traffic()));
	CHECK(!fake_getenv("TIRESIAS_TRAFFIC_FILE") && !fake_getenv("LD_PRELOAD"));
	CHECK(!fake_getenv("NCCL_PROFILER_PLUGIN"));
}

static void nobody_is_profiled_who_does_not_ask(void)
{
	step(NULL);
	check_untouched();
}

static void auto_means_what_the_cluster_is_set_to(void)
{
	prolog("auto");
	step("auto");
	check_untouched();
	argument("profile", "auto");
	prolog("auto");
	step("auto");
	CHECK(strcmp(fake_getenv("TIRESIAS_TRAFFIC_FILE"), traffic()) == 0);
}

static void a_step_that_does_not_say_goes_by_what_the_prolog_decided(void)
{
	argument("profile", "auto");
	step("auto");
	check_untouched();
	prolog(NULL);
	step(NULL);
	CHECK(fake_getenv("TIRESIAS_TRAFFIC_FILE"));
}

static void on_a_cluster_that_profiles_a_job_and_a_step_can_decline(void)
{
	argument("profile", "auto");
	prolog("off");
	step("off");
	check_untouched();
	prolog("auto");
	step("off");
	CHECK(exists(traffic()) && !fake_getenv("TIRESIAS_TRAFFIC_FILE"));
}

static void a_job_that_asks_gets_an_empty_file_of_its_own_with_its_space_reserved(void)
{
	static struct traffic_file content;
	struct stat status;
	umask(0077);
	step("on");
	status = status_of(traffic());
	CHECK(S_ISREG(status.st_mode) && (status.st_mode & 07777) == 0600);
	CHECK(status.st_uid == fake.user && status.st_gid == fake.group);
	CHECK(status.st_size == TRAFFIC_FILE_BYTES && status.st_blocks * 512 >= TRAFFIC_FILE_BYTES);
	status = status_of(run);
	CHECK((status.st_mode & 07777) == 0755 && status.st_uid == geteuid());
	FILE *file = fopen(traffic(), "r");
	CHECK(file && fread(&content, sizeof content, 1, file) == 1);
	fclose(file);
	CHECK(!traffic_fault(&content, sizeof content) && content.header.magic == 0);
}

static void its_tasks_find_the_file_and_the_libraries(void)
{
	step("on");
	CHECK(strcmp(fake_getenv("TIRESIAS_TRAFFIC_FILE"), traffic()) == 0);
	CHECK(strcmp(fake_getenv("LD_PRELOAD"), library) == 0);
	CHECK(strcmp(fake_getenv("NCCL_PROFILER_PLUGIN"), library) == 0);
}

static void what_the_user_preloads_stays_in_front(void)
{
	char expected[2 * PATH_MAX];
	fake_setenv("LD_PRELOAD", "/a.so /b.so");
	fake_setenv("NCCL_PROFILER_PLUGIN", "mine");
	step("on");
	snprintf(expected, sizeof expected, "/a.so /b.so:%s", library);
	CHECK(strcmp(fake_getenv("LD_PRELOAD"), expected) == 0);
	CHECK(strcmp(fake_getenv("NCCL_PROFILER_PLUGIN"), "mine") == 0);
}

static void a_step_inside_the_batch_script_gets_the_library_once(void)
{
	step("on");
	fake.step = 0;
	step("on");
	CHECK(strcmp(fake_getenv("LD_PRELOAD"), library) == 0);
}

static void a_step_keeps_what_the_step_before_has_counted(void)
{
	step("on");
	count_one_message();
	step("on");
	fake_setenv("LD_PRELOAD", NULL);
	epilog();
	CHECK(status_of(collected()).st_size == TRAFFIC_FILE_BYTES);
}

static void what_came_along_from_another_job_is_taken_away(void)
{
	char inherited[5 * PATH_MAX];
	snprintf(inherited, sizeof inherited, "%s:/a.so:%s:/x%s:%s", library, library, library,
		 library);
	fake_setenv("LD_PRELOAD", inherited);
	fake_setenv("TIRESIAS_TRAFFIC_FILE", "/run/slurm-tiresias/6.0.n1.traffic");
	fake_setenv("NCCL_PROFILER_PLUGIN", library);
	step("off");
	snprintf(inherited, sizeof inherited, "/a.so:/x%s", library);
	CHECK(strcmp(fake_getenv("LD_PRELOAD"), inherited) == 0);
	CHECK(!fake_getenv("TIRESIAS_TRAFFIC_FILE") && !fake_getenv("NCCL_PROFILER_PLUGIN"));
	fake_setenv("LD_PRELOAD", library);
	step("off");
	CHECK(!fake_getenv("LD_PRELOAD"));
}

static void check_no_library_is_named(void)
{
	fake_setenv("LD_PRELOAD", library);
	step("on");
	CHECK(!fake_getenv("LD_PRELOAD") && !fake_getenv("NCCL_PROFILER_PLUGIN"));
}

static void a_missing_library_is_not_named(void)
{
	snprintf(library, sizeof library, "%s/missing.so", folder);
	word_count -= 2;
	argument("monitor", library);
	argument("nccl", library);
	check_no_library_is_named();
}

static void a_library_that_is_none_is_not_named(void)
{
	static const char half_installed[] = "\177ELF\002\001\001";
	a_missing_library_is_not_named();
	write_file(library, "", 0);
	check_no_library_is_named();
	write_file(library, half_installed, sizeof half_installed);
	check_no_library_is_named();
	static const char wrong_machine[64] = "\177ELF\002\001\001\0\0\0\0\0\0\0\0\0\003\0\377\377";
	write_file(library, wrong_machine, sizeof wrong_machine);
	check_no_library_is_named();
}

static void a_list_too_long_to_be_ours_to_change_stays(void)
{
	static char list[65536];
	memset(list, 'a', sizeof list - 1);
	fake_setenv("LD_PRELOAD", list);
	step("on");
	CHECK(strcmp(fake_getenv("LD_PRELOAD"), list) == 0);
}

static void what_slurm_runs_for_its_own_ends_is_left_alone(void)
{
	fake.step = SLURM_EXTERN_CONT;
	step("on");
	check_untouched();
	fake.step = SLURM_INTERACTIVE_STEP;
	step("on");
	check_untouched();
}

static void a_node_whose_name_is_no_file_name_is_not_profiled(void)
{
	static const char *const strange[] = {
		"",      ".",
		"../n1", "n1/x",
		"n 1",   "n1234567890123456789012345678901234567890123456789012345678901234567890"};
	for (int i = 0; i < COUNT(strange); i++) {
		setenv("SLURMD_NODENAME", strange[i], 1);
		step("on");
		CHECK(!exists(run) || entries_in(run) == 0);
		CHECK(!fake_getenv("TIRESIAS_TRAFFIC_FILE"));
	}
}

static void a_run_folder_that_others_can_change_is_not_used(void)
{
	CHECK(mkdir(run, 0755) == 0 && chmod(run, 0777) == 0);
	step("on");
	check_untouched();
	CHECK(rmdir(run) == 0 && symlink(collect, run) == 0);
	step("on");
	check_untouched();
	CHECK(unlink(run) == 0 && mkdir(run, 0755) == 0 && chown(run, fake.user, fake.group) == 0);
	step("on");
	CHECK(geteuid() != 0 || entries_in(run) == 0);
	CHECK(geteuid() != 0 || !fake_getenv("TIRESIAS_TRAFFIC_FILE"));
	CHECK(nftw(run, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0);
	write_file(run, "", 0);
	step("on");
	CHECK(!fake_getenv("TIRESIAS_TRAFFIC_FILE"));
	epilog();
}

static void where_the_run_folder_cannot_be_made_nothing_happens(void)
{
	word_count = 0;
	argument("run", "/proc/tiresias");
	step("on");
	CHECK(!fake_getenv("TIRESIAS_TRAFFIC_FILE"));
}

static void a_full_disk_leaves_no_file_behind(void)
{
	struct rlimit few = {.rlim_cur = 4096, .rlim_max = 4096};
	signal(SIGXFSZ, SIG_IGN);
	CHECK(setrlimit(RLIMIT_FSIZE, &few) == 0);
	step("on");
	check_untouched();
}

static void arguments_that_cannot_be_used_are_left_out(void)
{
	static const char *const unusable[] = {"run",           "run=",
					       "run=relative",  "run=/a b",
					       "progress",      "progress=",
					       "progress=auto ", "profile=always",
					       "=",             "",
					       "nothing=1"};
	char *list[COUNT(words) + COUNT(unusable)];
	memcpy(list, plugstack(), sizeof list[0] * (size_t)word_count);
	for (int i = 0; i < COUNT(unusable); i++)
		list[word_count + i] = (char *)(uintptr_t)unusable[i];
	init(S_CTX_REMOTE);
	set_restarts("SLURM_RESTART_COUNT");
	CHECK(fake_option("tiresias-profile", "on", true) == 0);
	CHECK(slurm_spank_init_post_opt(NULL, word_count + COUNT(unusable), list) == 0);
	CHECK(exists(traffic()));
	fake.context = S_CTX_JOB_SCRIPT;
	CHECK(slurm_spank_job_prolog(NULL, word_count + COUNT(unusable), list) == 0);
	CHECK(!exists(in(run, "7.2.n1.progress")));
}

static void the_prolog_creates_the_file_of_the_run_and_its_steps_use_it(void)
{
	prolog("on");
	CHECK(exists(traffic()));
	init(S_CTX_REMOTE);
	CHECK(fake_option("tiresias-profile", "on", true) == 0);
	post_opt(); /* Like a batch step on 22.05, which cannot know its restarts yet. */
	task_init();
	CHECK(entries_in(run) == 1);
	CHECK(strcmp(fake_getenv("TIRESIAS_TRAFFIC_FILE"), traffic()) == 0);
}

static void the_prolog_makes_no_file_for_who_does_not_ask(void)
{
	prolog(NULL);
	prolog("off");
	prolog("auto");
	prolog("nonsense");
	CHECK(!exists(run));
	argument("profile", "auto");
	prolog("off");
	CHECK(!exists(run));
	prolog("nonsense");
	CHECK(exists(traffic()));
}

static void files_of_an_earlier_run_are_not_used(void)
{
	fake.restarts = 1;
	prolog("on");
	fake.restarts = 10;
	prolog("on");
	fake.restarts = 9;
	prolog("on");
	step("on");
	CHECK(strcmp(fake_getenv("TIRESIAS_TRAFFIC_FILE"), in(run, "7.10.n1.traffic")) == 0);
}

/* ---------------------------------------------------------------------------------------------
 * Jobs without a profile
 */

static void count_the_unknown(void)
{
	argument("profile", "unknown");
	submit("train");
}

/* Whether a job without options is measured. */
static bool is_counted(void)
{
	bool made;
	prolog(NULL);
	made = exists(traffic());
	if (made)
		CHECK(unlink(traffic()) == 0);
	return made;
}

static const char *known(void)
{
	return in(collect, "known");
}

/* Write the controller's file. */
static void tell(const char *lines)
{
	char content[2048];
	snprintf(content, sizeof content, "tiresias-known 1\n%s", lines);
	write_file(known(), content, strlen(content));
	CHECK(chmod(known(), 0644) == 0);
}

static void a_job_is_counted_until_its_users_jobs_of_that_name_have_a_profile(void)
{
	count_the_unknown();
	CHECK(is_counted());
	tell("");
	CHECK(is_counted());
	tell("job train bob\njob train2 ann\njob strain ann\nmodel train\nmodel train ann\n");
	CHECK(is_counted());
	tell("job strain ann\njob train ann\njob train bob\n");
	CHECK(!is_counted());
	submit("other");
	CHECK(is_counted());
}

static void what_the_prolog_decided_holds_for_the_steps(void)
{
	count_the_unknown();
	tell("job train ann\n");
	prolog(NULL);
	step(NULL);
	check_untouched();
	tell("");
	prolog(NULL);
	tell("job train ann\n");
	step(NULL);
	CHECK(strcmp(fake_getenv("TIRESIAS_TRAFFIC_FILE"), traffic()) == 0);
}

static void an_unmeasured_job_does_not_use_files_of_an_earlier_run(void)
{
	count_the_unknown();
	prolog(NULL);
	fake.restarts++;
	tell("job train ann\n");
	prolog(NULL);
	step(NULL);
	CHECK(entries_in(run) == 0 && entries_in(collect) == 1);
	CHECK(!fake_getenv("TIRESIAS_TRAFFIC_FILE"));
}

static void of_a_job_that_names_its_model_the_models_profile_counts(void)
{
	count_the_unknown();
	tell("job train ann\nmodel bert\nmodel mine+1.0 ann\nmodel his bob\n");
	CHECK(!is_counted());
	static const char *const known_models[] = {"bert", "mine+1.0"};
	for (int i = 0; i < COUNT(known_models); i++) {
		say("model", known_models[i]);
		CHECK(!is_counted());
	}
	static const char *const unknown_models[] = {"his", "Bert", "ber", "bert1", "ann"};
	for (int i = 0; i < COUNT(unknown_models); i++) {
		say("model", unknown_models[i]);
		CHECK(is_counted());
	}
	say("model", "bert\nmodel x"); /* an invalid model name: as if no model was named */
	CHECK(!is_counted());
}

static void a_built_in_model_is_known_in_any_spelling(void)
{
	count_the_unknown();
	tell("built-in inception3\nbuilt-in vgg16\n");
	static const char *const spellings[] = {"vgg16", "VGG-16", "v.g_g+16", "Inception_V3",
						"inceptionv3", "inception3"};
	for (int i = 0; i < COUNT(spellings); i++) {
		say("model", spellings[i]);
		CHECK(!is_counted());
	}
	static const char *const others[] = {"vgg19", "vgg", "vgg16v3", "inceptionv4", "0+-._"};
	for (int i = 0; i < COUNT(others); i++) {
		say("model", others[i]);
		CHECK(is_counted());
	}
}

static void a_model_may_be_named_in_the_comment(void)
{
	count_the_unknown();
	tell("built-in vgg16\nmodel bert\n");
	static const char *const naming[] = {"tiresias:model=vgg16",
					     "run 3\ttiresias:placement=auto,model=VGG-16 again",
					     "xtiresias:model=x tiresias:model=bert,profile=auto"};
	for (int i = 0; i < COUNT(naming); i++) {
		setenv("SLURM_JOB_COMMENT", naming[i], 1);
		CHECK(!is_counted());
	}
	static const char *const others[] = {"",
					     "tiresias:",
					     "tiresias:model=",
					     "tiresias: model=vgg16",
					     "tiresias:amodel=vgg16",
					     "tiresias:model=vgg16;",
					     "tiresias:,,,model",
					     "not-tiresias:model=vgg16",
					     "tiresias:model=gpt"};
	for (int i = 0; i < COUNT(others); i++) {
		setenv("SLURM_JOB_COMMENT", others[i], 1);
		CHECK(is_counted());
	}
	setenv("SLURM_JOB_COMMENT", naming[0], 1);
	say("model", "gpt"); /* the option takes precedence */
	CHECK(is_counted());
}

static void whoever_says_on_or_off_is_obeyed(void)
{
	count_the_unknown();
	say("profile", "off");
	CHECK(!is_counted());
	tell("job train ann\n");
	say("profile", "on");
	CHECK(is_counted());
}

static void jobs_without_gpus_are_counted_only_if_they_ask(void)
{
	static const char *const rules[] = {"auto", "unknown"};
	for (int i = 0; i < COUNT(rules); i++) {
		argument("profile", rules[i]);
		say("profile", NULL);
		unsetenv("SLURM_JOB_GPUS");
		CHECK(!is_counted());
		setenv("SLURM_JOB_GPUS", "", 1);
		CHECK(!is_counted());
		say("profile", "on");
		CHECK(is_counted());
		word_count--;
	}
}

static void no_name_can_pass_for_another(void)
{
	static const char *const names_and_words[][2] = {
		{"my job", "my%20job"},
		{"100%\n", "100%25%0A"},
		{"na\xc3\xafve\xff", "na%C3%AFve%FF"},
		{"a-b_c.d~e+f", "a-b_c.d~e+f"},
		{"train ann\njob other", "train%20ann%0Ajob%20other"},
	};
	count_the_unknown();
	tell("job train ann\njob other ann\n");
	for (int i = 0; i < COUNT(names_and_words); i++) {
		char line[256];
		submit(names_and_words[i][0]);
		CHECK(strcmp(getenv("SPANK_TIRESIAS_JOB_NAME"), names_and_words[i][1]) == 0);
		CHECK(is_counted());
		snprintf(line, sizeof line, "job %s ann\n", names_and_words[i][1]);
		tell(line);
		CHECK(!is_counted());
		tell("job train ann\njob other ann\n");
	}
}

static void a_client_that_sends_what_it_likes_as_the_jobs_name_finds_nothing(void)
{
	static char huge[1 << 20];
	static const char *const sent[] = {"", "x ann\njob train", "train ann", "\n", "%0A", "%",
					   "%s%n", huge};
	memset(huge, 'a', sizeof huge - 1);
	count_the_unknown();
	tell("job train ann\njob x ann\nbuilt-in vgg16\n");
	for (int i = 0; i < COUNT(sent); i++) {
		setenv("SPANK_TIRESIAS_JOB_NAME", sent[i], 1);
		CHECK(is_counted());
	}
}

static void a_job_without_a_name_a_user_or_a_comment_is_counted(void)
{
	static char long_name[1200];
	count_the_unknown();
	tell("job train ann\n");
	unsetenv("SLURM_JOB_USER");
	CHECK(is_counted());
	setenv("SLURM_JOB_USER", "ann", 1);
	memset(long_name, '%', sizeof long_name - 1);
	submit(long_name);
	CHECK(!getenv("SPANK_TIRESIAS_JOB_NAME") && is_counted());
	submit("");
	CHECK(!getenv("SPANK_TIRESIAS_JOB_NAME") && is_counted());
}

/* A file that says that the job has a profile, and is trustworthy except for one thing. */
static void tell_of_train(void)
{
	unlink(known());
	tell("job train ann\n");
	CHECK(!is_counted());
}

static void a_file_that_is_not_the_controllers_says_nothing(void)
{
	count_the_unknown();
	tell_of_train();
	CHECK(chmod(known(), 0664) == 0 && is_counted());
	CHECK(chmod(known(), 0646) == 0 && is_counted());
	tell_of_train();
	CHECK(rename(known(), in(folder, "elsewhere")) == 0);
	CHECK(symlink(in(folder, "elsewhere"), known()) == 0 && is_counted());
	CHECK(unlink(known()) == 0 && mkfifo(known(), 0644) == 0 && is_counted());
	CHECK(unlink(known()) == 0 && mkdir(known(), 0755) == 0 && is_counted());
	CHECK(rmdir(known()) == 0 && is_counted());
	if (geteuid() != 0)
		return;
	tell_of_train();
	CHECK(chown(known(), fake.user, fake.group) == 0 && is_counted());
	CHECK(chown(collect, fake.user, fake.group) == 0 && !is_counted());
}

static void a_file_that_is_none_of_the_controllers_making_says_nothing(void)
{
	static const char *const others[] = {"",
					     "\njob train ann\n",
					     "tiresias-known 1",
					     "tiresias-known 2\njob train ann\n",
					     "tiresias-known 1\njob train ann",
					     "tiresias-known 1\njob train\n ann\n"};
	count_the_unknown();
	for (int i = 0; i < COUNT(others); i++) {
		tell_of_train();
		write_file(known(), others[i], strlen(others[i]));
		CHECK(is_counted());
	}
	tell_of_train();
	CHECK(truncate(known(), 4 << 20) == 0 && !is_counted());
	CHECK(truncate(known(), (4 << 20) + 1) == 0 && is_counted());
	CHECK(truncate(known(), 1L << 40) == 0 && is_counted());
}

static void without_a_folder_to_collect_in_nothing_is_known(void)
{
	count_the_unknown();
	tell_of_train();
	CHECK(unlink(known()) == 0 && rmdir(collect) == 0 && is_counted());
	write_file(collect, "", 0);
	CHECK(is_counted());
	word_count = 0;
	argument("run", run);
	argument("profile", "unknown");
	CHECK(is_counted());
}

/* ---------------------------------------------------------------------------------------------
 * Ending
 */

static void what_was_counted_is_collected_once_and_whole(void)
{
	struct stat status;
	step("on");
	count_one_message();
	epilog();
	status = status_of(collected());
	CHECK(S_ISREG(status.st_mode) && (status.st_mode & 07777) == 0640);
	CHECK(status.st_uid == geteuid() && status.st_gid == status_of(collect).st_gid);
	CHECK(status.st_size == TRAFFIC_FILE_BYTES);
	CHECK(entries_in(run) == 0 && entries_in(collect) == 1);
	epilog();
	CHECK(entries_in(collect) == 1);
}

static void the_files_of_each_run_are_collected(void)
{
	step("on");
	epilog();
	fake.restarts = 3;
	step("on");
	epilog();
	CHECK(exists(collected()) && exists(in(collect, "7.3.n1.traffic")));
}

static void a_node_that_slurm_does_not_name_goes_by_its_host(void)
{
	char host[HOST_NAME_MAX + 1] = "", name[HOST_NAME_MAX + 32];
	unsetenv("SLURMD_NODENAME");
	CHECK(gethostname(host, sizeof host - 1) == 0);
	host[strcspn(host, ".")] = '\0';
	snprintf(name, sizeof name, "7.2.%s.traffic", host);
	step("on");
	CHECK(exists(in(run, name)));
}

static void other_jobs_and_other_nodes_keep_theirs(void)
{
	step("on");
	fake.job = 70;
	step("on");
	fake.job = 7;
	setenv("SLURMD_NODENAME", "n10", 1);
	step("on");
	write_file(in(run, "7.x.n1.traffic"), "", 0);
	write_file(in(run, "7.n1.traffic"), "", 0);
	write_file(in(run, "7.00000000000.n1.traffic"), "", 0);
	epilog();
	CHECK(entries_in(run) == 5 && entries_in(collect) == 1);
}

static void check_refused(void)
{
	epilog();
	CHECK(entries_in(run) == 0 && entries_in(collect) == 0);
}

static void a_link_is_not_followed(void)
{
	step("on");
	CHECK(rename(traffic(), in(folder, "elsewhere")) == 0);
	CHECK(symlink(in(folder, "elsewhere"), traffic()) == 0);
	check_refused();
}

static void a_file_with_a_second_name_is_refused(void)
{
	step("on");
	CHECK(link(traffic(), in(folder, "second")) == 0);
	check_refused();
}

static void a_file_of_another_size_is_refused(void)
{
	static const off_t sizes[] = {0, TRAFFIC_FILE_BYTES - 1, TRAFFIC_FILE_BYTES + 1, 1L << 40};
	for (int i = 0; i < COUNT(sizes); i++) {
		step("on");
		CHECK(truncate(traffic(), sizes[i]) == 0);
		check_refused();
	}
}

static void what_is_no_file_is_refused(void)
{
	step("on");
	CHECK(unlink(traffic()) == 0 && mkfifo(traffic(), 0600) == 0);
	check_refused();
}

/* A lease makes the kernel ask the owner of a file, and wait, before another process opens it. */
static void nobody_can_make_the_end_of_a_job_wait(void)
{
	int ready[2];
	char taken = 'n';
	step("on");
	CHECK(pipe(ready) == 0);
	pid_t holder = fork();
	if (holder == 0) {
		int file = open(traffic(), O_RDWR);
		signal(SIGIO, SIG_IGN);
		alarm(10);
		taken = fcntl(file, F_SETLEASE, F_WRLCK) == 0 ? 'y' : 'n';
		_exit(write(ready[1], &taken, 1) != 1 || pause());
	}
	CHECK(read(ready[0], &taken, 1) == 1 && taken == 'y');
	alarm(5);
	check_refused();
	alarm(0);
	CHECK(kill(holder, SIGKILL) == 0 && waitpid(holder, NULL, 0) == holder);
	close(ready[0]);
	close(ready[1]);
}

static void a_file_of_another_user_is_refused(void)
{
	step("on");
	fake.user++;
	check_refused();
}

static void a_forged_file_is_refused(void)
{
	static char forged[TRAFFIC_FILE_BYTES];
	memset(forged, 0xff, sizeof forged);
	step("on");
	write_file(traffic(), forged, sizeof forged);
	check_refused();
}

static void a_vanished_file_is_no_matter(void)
{
	step("on");
	CHECK(unlink(traffic()) == 0);
	check_refused();
	CHECK(rmdir(run) == 0);
	epilog();
}

static void without_a_folder_to_collect_in_nothing_is_left_on_the_node(void)
{
	step("on");
	CHECK(rmdir(collect) == 0);
	epilog();
	CHECK(entries_in(run) == 0 && !exists(collect));
	step("on");
	write_file(collect, "", 0);
	epilog();
	CHECK(entries_in(run) == 0);
}

static void a_disk_that_is_full_at_the_end_leaves_no_half_file(void)
{
	struct rlimit few = {.rlim_cur = 4096, .rlim_max = 4096};
	step("on");
	signal(SIGXFSZ, SIG_IGN);
	CHECK(setrlimit(RLIMIT_FSIZE, &few) == 0);
	check_refused();
}

static void what_a_killed_epilog_left_is_written_over(void)
{
	step("on");
	write_file(in(collect, ".7.2.n1.traffic.new"), "half", 4);
	epilog();
	CHECK(exists(collected()) && entries_in(collect) == 1);
}

/* A process of the user that has changed the file, and keeps it open. */
static pid_t user_who(const char *path, void (*acts)(int file))
{
	int ready[2];
	char done;
	CHECK(pipe(ready) == 0);
	pid_t user = fork();
	if (user == 0) {
		int file = open(path, O_RDWR);
		alarm(20);
		acts(file);
		_exit(write(ready[1], "y", 1) != 1 || pause());
	}
	close(ready[1]);
	CHECK(read(ready[0], &done, 1) == 1);
	close(ready[0]);
	return user;
}

static void end(pid_t user)
{
	CHECK(kill(user, SIGKILL) == 0 && waitpid(user, NULL, 0) == user);
}

static void writes_all_he_can(int file)
{
	static char some[65536];
	while (write(file, some, sizeof some) > 0)
		;
}

/* The size is unchanged. */
static void reserves_all_he_can(int file)
{
	for (off_t more = 1 << 20; more >= 4096; more /= 2)
		while (fallocate(file, FALLOC_FL_KEEP_SIZE, status_of(traffic()).st_blocks * 512,
				 more) == 0)
			;
}

static void attaches_all_he_can(int file)
{
	char name[32];
	for (int i = 0; i < 100000; i++) {
		snprintf(name, sizeof name, "user.%d", i);
		if (fsetxattr(file, name, "", 0, 0) != 0)
			break;
	}
}

/*
 * As etc/slurm-tiresias.mount has it, but smaller, and gone with this process, however it ends.
 * False where nothing can be mounted.
 */
static bool mount_run(void)
{
	CHECK(mkdir(run, 0755) == 0);
	return unshare(CLONE_NEWNS) == 0 && mount("none", "/", "none", MS_REC | MS_PRIVATE, "") == 0 &&
	       mount("tiresias-test", run, "tmpfs", 0, "size=1m,nr_inodes=300,mode=0755") == 0;
}

static void a_user_who_fills_the_folder_does_not_keep_others_from_being_counted(void)
{
	void (*const ways[])(int) = {writes_all_he_can, reserves_all_he_can, attaches_all_he_can};
	if (geteuid() != 0 || !mount_run())
		return;
	for (int i = 0; i < COUNT(ways); i++) {
		fake.job = 7;
		prolog("on");
		pid_t user = user_who(traffic(), ways[i]);
		fake.job = 8;
		prolog("on");
		CHECK(exists(in(run, "8.2.n1.traffic")));
		CHECK(status_of(traffic()).st_blocks * 512 <= TRAFFIC_FILE_BYTES);
		epilog();
		fake.job = 7;
		epilog();
		end(user);
	}
	CHECK(entries_in(run) == 0 && umount(run) == 0);
}

/*
 * From here on root has the rights that a server with root_squash leaves it: those of any other
 * user. Files on the node itself belong to root, so that the test can continue.
 */
static void squash_root(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
	uint32_t rights = 1U << CAP_CHOWN | 1U << CAP_DAC_OVERRIDE | 1U << CAP_DAC_READ_SEARCH |
			  1U << CAP_FOWNER;
	CHECK(syscall(SYS_capget, &header, sets) == 0);
	sets[0].effective &= ~rights;
	sets[0].permitted &= ~rights;
	CHECK(syscall(SYS_capset, &header, sets) == 0);
	fake.user = fake.group = 0;
}

/* The folder belongs to the controller's user. */
static void give_away_collect(mode_t mode)
{
	CHECK(chmod(folder, 0755) == 0);
	CHECK(chown(collect, NOBODY, NOBODY) == 0 && chmod(collect, mode) == 0);
}

static void check_collected_by(uid_t owner, gid_t group)
{
	struct stat status;
	CHECK(setfsuid((uid_t)-1) == 0 && setfsgid((gid_t)-1) == 0);
	setfsgid(group);
	setfsuid(owner);
	status = status_of(collected());
	CHECK(S_ISREG(status.st_mode) && (status.st_mode & 07777) == 0640);
	CHECK(status.st_uid == owner && status.st_gid == group);
	CHECK(status.st_size == TRAFFIC_FILE_BYTES && entries_in(collect) == 1);
	CHECK(unlink(collected()) == 0);
	setfsuid(geteuid());
	setfsgid(getegid());
}

/* A process cannot regain rights that it has dropped, and the folder must be removed. */
static void in_child(void (*body)(void))
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		body();
		fake_end();
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void epilog_of_squashed_root(void)
{
	squash_root();
	step("on");
	epilog();
	check_collected_by(NOBODY, NOBODY);
	CHECK(entries_in(run) == 0);
}

/* As with root_squash: in a folder with mode 0777 root may create files, but not chown them. */
static void where_root_may_not_write_the_owner_of_the_folder_does(void)
{
	static const mode_t modes[] = {0700, 0750, 0755, 0777, 01777};
	if (geteuid() != 0)
		return;
	for (int i = 0; i < COUNT(modes); i++) {
		give_away_collect(modes[i]);
		in_child(epilog_of_squashed_root);
	}
}

static void prolog_of_squashed_root(void)
{
	squash_root();
	CHECK(!is_counted());
	CHECK(setfsuid((uid_t)-1) == 0 && setfsgid((gid_t)-1) == 0);
	submit("other");
	CHECK(is_counted());
}

static void where_root_may_not_read_the_folder_what_is_known_is_known(void)
{
	if (geteuid() != 0)
		return;
	count_the_unknown();
	tell_of_train();
	CHECK(chown(known(), NOBODY, NOBODY) == 0);
	give_away_collect(0700);
	in_child(prolog_of_squashed_root);
}

/* Whichever of Slurm's functions fails, every hook returns success and nothing leaks. */
static void slurm_itself_may_fail_anywhere(void)
{
	int calls;
	count_the_unknown();
	argument("progress", "auto");
	prolog(NULL);
	step("on");
	epilog();
	calls = fake.calls;
	CHECK(calls > 20);
	for (int failing = 1; failing <= calls + 1; failing++) {
		fake.calls = 0;
		fake.failing_call = failing;
		submit("train");
		prolog(NULL);
		init(S_CTX_REMOTE);
		post_opt();
		task_init();
		epilog();
	}
}

/* ---------------------------------------------------------------------------------------------
 * How far a job is
 */

static const struct made {
	const char *name;
	off_t bytes;
} progress_files[] = {{"7.2.n1.progress", 1024}, {"7.2.n1.output", 4096}};

static const char *progress(void)
{
	return in(run, progress_files[0].name);
}

static const char *output(void)
{
	return in(run, progress_files[1].name);
}

/* The batch script of a job with this option. On 22.05 it does not know its restarts yet. */
static void batch_step(const char *said)
{
	init(S_CTX_REMOTE);
	fake_setenv("SLURM_RESTART_COUNT", NULL);
	if (said)
		CHECK(fake_option("tiresias-progress", said, true) == 0);
	post_opt();
	set_restarts("SLURM_RESTART_COUNT");
	task_init();
}

/* Run a job on a site with these settings, from its prolog to its task. */
static void start_job(const char *site, const char *said)
{
	argument("progress", site);
	say("progress", said);
	prolog(NULL);
	batch_step(said);
}

static const char *collected_progress(const char *name)
{
	return in(in(collect, "progress"), name);
}

/* The same on a cluster whose controller has created a folder for reports. */
static void start_job_with_both_files(void)
{
	mkdir(in(collect, "progress"), 0755);
	start_job("auto", NULL);
	CHECK(fake_getenv("TIRESIAS_PROGRESS_FILE") && fake_getenv("TIRESIAS_OUTPUT_FILE"));
	word_count--;
}

static void write_into(const char *name, char byte)
{
	int file = open(in(run, name), O_RDWR);
	CHECK(pwrite(file, &byte, 1, 100) == 1);
	close(file);
}

static bool is_named(const char *variable, const char *path)
{
	const char *value = fake_getenv(variable);
	return value && strcmp(value, path) == 0;
}

static void check_nothing_of_progress_is_named(void)
{
	CHECK(!fake_getenv("TIRESIAS_PROGRESS_FILE") && !fake_getenv("TIRESIAS_OUTPUT_FILE"));
	CHECK(!fake_getenv("LD_PRELOAD"));
}

static void by_default_a_job_gets_a_progress_file_and_no_output_file(void)
{
	word_count = 0;
	argument("run", run);
	argument("monitor", library);
	argument("nccl", library);
	prolog(NULL);
	step(NULL);
	CHECK(is_named("TIRESIAS_PROGRESS_FILE", progress()));
	CHECK(entries_in(run) == 1);
	CHECK(!fake_getenv("TIRESIAS_OUTPUT_FILE") && !fake_getenv("TIRESIAS_TRAFFIC_FILE"));
	CHECK(!fake_getenv("LD_PRELOAD") && !fake_getenv("NCCL_PROFILER_PLUGIN"));
}

static void with_auto_the_monitor_is_preloaded_and_finds_the_output_file(void)
{
	start_job("auto", NULL);
	CHECK(is_named("TIRESIAS_PROGRESS_FILE", progress()));
	CHECK(is_named("TIRESIAS_OUTPUT_FILE", output()));
	CHECK(is_named("LD_PRELOAD", library));
	CHECK(!fake_getenv("TIRESIAS_TRAFFIC_FILE") && !fake_getenv("NCCL_PROFILER_PLUGIN"));
	CHECK(entries_in(run) == 2);
}

static void a_job_may_have_its_messages_counted_and_its_output_read(void)
{
	start_job_with_both_files();
	step("on");
	CHECK(is_named("TIRESIAS_TRAFFIC_FILE", traffic()));
	CHECK(is_named("TIRESIAS_PROGRESS_FILE", progress()));
	CHECK(is_named("TIRESIAS_OUTPUT_FILE", output()));
	CHECK(is_named("LD_PRELOAD", library) && is_named("NCCL_PROFILER_PLUGIN", library));
}

static void the_progress_files_are_the_users_and_empty_with_their_space_reserved(void)
{
	static const char zeros[4096];
	umask(0077);
	start_job("auto", NULL);
	for (int i = 0; i < COUNT(progress_files); i++) {
		char content[4097];
		const char *path = in(run, progress_files[i].name);
		struct stat status = status_of(path);
		CHECK(S_ISREG(status.st_mode) && (status.st_mode & 07777) == 0600);
		CHECK(status.st_uid == fake.user && status.st_gid == fake.group);
		CHECK(status.st_size == progress_files[i].bytes);
		CHECK(status.st_blocks * 512 >= status.st_size);
		int file = open(path, O_RDONLY);
		CHECK(read(file, content, sizeof content) == status.st_size);
		CHECK(memcmp(content, zeros, (size_t)status.st_size) == 0);
		close(file);
	}
}

static void what_a_job_says_goes_before_what_the_site_says(void)
{
	static const struct {
		const char *site, *said;
		bool progress, output;
	} cases[] = {
		{"off", NULL, false, false},  {"off", "on", true, false},
		{"off", "auto", true, true},  {"on", "off", false, false},
		{"on", "auto", true, true},   {"auto", "off", false, false},
		{"auto", "on", true, false},  {"on", "nonsense", true, false},
		{"auto", "ON", true, true},
	};
	for (int i = 0; i < COUNT(cases); i++) {
		start_job(cases[i].site, cases[i].said);
		CHECK(exists(progress()) == cases[i].progress);
		CHECK(exists(output()) == cases[i].output);
		CHECK(!!fake_getenv("TIRESIAS_PROGRESS_FILE") == cases[i].progress);
		CHECK(!!fake_getenv("TIRESIAS_OUTPUT_FILE") == cases[i].output);
		word_count--;
		epilog();
	}
}

static void step_that_says(const char *said)
{
	fake.step = 0;
	init(S_CTX_REMOTE);
	CHECK(fake_option("tiresias-progress", said, true) == 0);
	post_opt();
	task_init();
}

static void a_step_may_decline_but_not_ask_for_more_than_its_job_has(void)
{
	start_job("on", NULL);
	step_that_says("auto");
	CHECK(is_named("TIRESIAS_PROGRESS_FILE", progress()) && !exists(output()));
	CHECK(!fake_getenv("TIRESIAS_OUTPUT_FILE") && !fake_getenv("LD_PRELOAD"));
	step_that_says("off");
	check_nothing_of_progress_is_named();
	epilog();
	start_job("auto", NULL);
	step_that_says("on");
	CHECK(is_named("TIRESIAS_PROGRESS_FILE", progress()));
	CHECK(!fake_getenv("TIRESIAS_OUTPUT_FILE") && !fake_getenv("LD_PRELOAD"));
	epilog();
	start_job("off", NULL);
	step_that_says("auto");
	check_nothing_of_progress_is_named();
	CHECK(entries_in(run) == 0);
}

static void a_step_without_the_option_has_what_its_job_asked_for(void)
{
	start_job("off", "auto");
	CHECK(is_named("TIRESIAS_PROGRESS_FILE", progress()));
	CHECK(is_named("TIRESIAS_OUTPUT_FILE", output()));
}

static void progress_files_that_came_along_from_another_job_are_taken_away(void)
{
	fake_setenv("TIRESIAS_PROGRESS_FILE", "/run/slurm-tiresias/6.0.n1.progress");
	fake_setenv("TIRESIAS_OUTPUT_FILE", "/run/slurm-tiresias/6.0.n1.output");
	fake_setenv("LD_PRELOAD", library);
	start_job("off", NULL);
	check_nothing_of_progress_is_named();
}

static void a_batch_step_whose_prolog_was_skipped_makes_its_progress_files(void)
{
	static const struct {
		const char *site, *said;
		bool progress, output;
	} cases_of[] = {{"on", NULL, true, false},
			{"on", "auto", true, true},
			{"auto", "off", false, false},
			{"off", "on", true, false}};
	CHECK(mkdir(run, 0755) == 0);
	for (int i = 0; i < COUNT(cases_of); i++) {
		argument("progress", cases_of[i].site);
		batch_step(cases_of[i].said);
		word_count--;
		CHECK(exists(progress()) == cases_of[i].progress);
		CHECK(exists(output()) == cases_of[i].output);
		CHECK(is_named("TIRESIAS_PROGRESS_FILE", progress()) == cases_of[i].progress);
		CHECK(!cases_of[i].progress || status_of(progress()).st_uid == fake.user);
		epilog();
	}
}

static void slurmctld_is_asked_only_where_a_file_is_missing(void)
{
	start_job("auto", NULL);
	CHECK(fake.questions == 0);
	epilog();
	fake.step = 0;
	step(NULL);
	CHECK(fake.questions == 0 && entries_in(run) == 0);
	fake.step = SLURM_BATCH_SCRIPT;
	batch_step("off");
	CHECK(fake.questions == 0 && entries_in(run) == 0);
	batch_step(NULL);
	batch_step(NULL);
	CHECK(fake.questions == 1 && entries_in(run) == 2);
	epilog();
	CHECK(rmdir(run) == 0);
	batch_step(NULL);
	CHECK(fake.questions == 1 && !exists(run));
}

static void a_progress_file_is_not_made_for_an_unknown_run(void)
{
	CHECK(mkdir(run, 0755) == 0);
	argument("progress", "on");
	for (int failing = 1; failing <= 12; failing++) {
		fake.calls = 0;
		fake.failing_call = failing;
		batch_step(NULL);
		CHECK(entries_in(run) == 0 || exists(progress()));
		epilog();
	}
}

static void extern_and_interactive_steps_get_no_progress_files(void)
{
	static const uint32_t own[] = {SLURM_EXTERN_CONT, SLURM_INTERACTIVE_STEP};
	for (int i = 0; i < COUNT(own); i++) {
		fake.step = own[i];
		start_job("auto", NULL);
		check_nothing_of_progress_is_named();
		word_count--;
	}
}

static void a_job_reports_without_the_monitor(void)
{
	snprintf(library, sizeof library, "%s/missing.so", folder);
	argument("monitor", library);
	start_job("auto", NULL);
	CHECK(is_named("TIRESIAS_PROGRESS_FILE", progress()) && !fake_getenv("LD_PRELOAD"));
}

static void check_progress_collected(const char *name, int files, off_t bytes)
{
	struct stat status = status_of(collected_progress(name));
	CHECK(S_ISREG(status.st_mode) && (status.st_mode & 07777) == 0640);
	CHECK(status.st_uid == geteuid() && status.st_size == bytes);
	CHECK(status.st_gid == status_of(in(collect, "progress")).st_gid);
	CHECK(entries_in(run) == 0 && entries_in(in(collect, "progress")) == files);
}

static void progress_files_are_collected_in_the_subfolder_progress(void)
{
	start_job_with_both_files();
	write_into("7.2.n1.progress", 'x');
	write_into("7.2.n1.output", 'x');
	epilog();
	/* What a job prints stays on its node. */
	check_progress_collected("7.2.n1.progress", 1, 1024);
	CHECK(entries_in(collect) == 1);
	fake.restarts++;
	start_job_with_both_files();
	write_into("7.3.n1.progress", 'x');
	epilog();
	check_progress_collected("7.3.n1.progress", 2, 1024);
}

static void progress_files_without_content_are_not_collected(void)
{
	start_job_with_both_files();
	write_into("7.2.n1.progress", 0);
	epilog();
	CHECK(entries_in(run) == 0 && entries_in(in(collect, "progress")) == 0);
}

static void check_no_progress_collected(void)
{
	epilog();
	CHECK(entries_in(run) == 0 && entries_in(in(collect, "progress")) == 0);
}

static void a_progress_file_that_the_user_has_replaced_is_not_collected(void)
{
	for (int i = 0; i < COUNT(progress_files); i++) {
		const char *name = progress_files[i].name;
		char path[2 * PATH_MAX];
		snprintf(path, sizeof path, "%s", in(run, name));
		start_job_with_both_files();
		write_into(name, 'x');
		CHECK(rename(path, in(folder, "elsewhere")) == 0);
		CHECK(symlink(in(folder, "elsewhere"), path) == 0);
		check_no_progress_collected();
		start_job_with_both_files();
		CHECK(unlink(path) == 0 && mkfifo(path, 0600) == 0);
		check_no_progress_collected();
		start_job_with_both_files();
		write_into(name, 'x');
		CHECK(link(path, in(folder, "second")) == 0);
		check_no_progress_collected();
		CHECK(unlink(in(folder, "second")) == 0);
		start_job_with_both_files();
		write_into(name, 'x');
		fake.user++;
		check_no_progress_collected();
		fake.user--;
	}
}

static void a_progress_file_of_another_size_is_not_collected(void)
{
	static const off_t more[] = {-1, 1, 1L << 40};
	for (int i = 0; i < COUNT(progress_files); i++) {
		for (int j = 0; j < COUNT(more); j++) {
			const char *name = progress_files[i].name;
			start_job_with_both_files();
			write_into(name, 'x');
			CHECK(truncate(in(run, name), progress_files[i].bytes + more[j]) == 0);
			check_no_progress_collected();
		}
	}
}

static void without_the_subfolder_progress_nothing_is_collected(void)
{
	start_job_with_both_files();
	write_into("7.2.n1.progress", 'x');
	CHECK(rmdir(in(collect, "progress")) == 0);
	epilog();
	CHECK(entries_in(run) == 0 && entries_in(collect) == 0);
	start_job_with_both_files();
	write_into("7.2.n1.progress", 'x');
	CHECK(rmdir(in(collect, "progress")) == 0);
	CHECK(mkdir(in(folder, "elsewhere"), 0755) == 0);
	CHECK(symlink(in(folder, "elsewhere"), in(collect, "progress")) == 0);
	epilog();
	CHECK(entries_in(run) == 0 && entries_in(in(folder, "elsewhere")) == 0);
}

static void progress_files_of_an_earlier_run_are_not_reported_into(void)
{
	start_job_with_both_files();
	fake.restarts++;
	start_job("on", NULL);
	CHECK(is_named("TIRESIAS_PROGRESS_FILE", in(run, "7.3.n1.progress")));
	CHECK(!fake_getenv("TIRESIAS_OUTPUT_FILE") && !exists(output()));
	fake.restarts++;
	start_job("off", NULL);
	check_nothing_of_progress_is_named();
	CHECK(entries_in(run) == 0);
}

static void a_user_who_fills_the_folder_does_not_keep_others_from_reporting(void)
{
	if (geteuid() != 0 || !mount_run())
		return;
	start_job_with_both_files();
	pid_t user = user_who(progress(), writes_all_he_can);
	CHECK(status_of(progress()).st_size > 1024);
	fake.job = 8;
	start_job_with_both_files();
	CHECK(status_of(progress()).st_size == 1024);
	epilog();
	fake.job = 7;
	epilog();
	end(user);
	CHECK(entries_in(run) == 0 && umount(run) == 0);
}

static void progress_of_squashed_root(void)
{
	squash_root();
	start_job_with_both_files();
	write_into("7.2.n1.progress", 'x');
	epilog();
	CHECK(entries_in(run) == 0);
	CHECK(setfsuid((uid_t)-1) == 0 && setfsgid((gid_t)-1) == 0);
	setfsgid(NOBODY);
	setfsuid(NOBODY);
	struct stat status = status_of(collected_progress("7.2.n1.progress"));
	CHECK(status.st_uid == NOBODY && status.st_gid == NOBODY && status.st_size == 1024);
	CHECK((status.st_mode & 07777) == 0640 && entries_in(in(collect, "progress")) == 1);
	setfsuid(geteuid());
	setfsgid(getegid());
}

static void where_root_may_not_write_the_owner_of_the_folder_collects_progress(void)
{
	if (geteuid() != 0)
		return;
	CHECK(mkdir(in(collect, "progress"), 0700) == 0);
	CHECK(chown(in(collect, "progress"), NOBODY, NOBODY) == 0);
	give_away_collect(0700);
	in_child(progress_of_squashed_root);
}

/* ---------------------------------------------------------------------------------------------
 * Running the cases
 */

#define CASE(name) {#name, name}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	CASE(the_options_exist_with_help_wherever_jobs_are_submitted_or_run),
	CASE(slurmd_itself_gets_no_options),
	CASE(sense_is_accepted),
	CASE(nonsense_is_refused_with_one_line_that_says_what_to_write),
	CASE(a_value_of_64_kilobytes_is_refused_with_one_short_line),
	CASE(a_path_has_256_characters_at_most),
	CASE(on_a_node_nonsense_costs_a_job_nothing),
	CASE(nobody_is_profiled_who_does_not_ask),
	CASE(auto_means_what_the_cluster_is_set_to),
	CASE(a_step_that_does_not_say_goes_by_what_the_prolog_decided),
	CASE(on_a_cluster_that_profiles_a_job_and_a_step_can_decline),
	CASE(a_job_that_asks_gets_an_empty_file_of_its_own_with_its_space_reserved),
	CASE(its_tasks_find_the_file_and_the_libraries),
	CASE(what_the_user_preloads_stays_in_front),
	CASE(a_step_inside_the_batch_script_gets_the_library_once),
	CASE(a_step_keeps_what_the_step_before_has_counted),
	CASE(what_came_along_from_another_job_is_taken_away),
	CASE(a_missing_library_is_not_named),
	CASE(a_library_that_is_none_is_not_named),
	CASE(a_list_too_long_to_be_ours_to_change_stays),
	CASE(what_slurm_runs_for_its_own_ends_is_left_alone),
	CASE(a_node_whose_name_is_no_file_name_is_not_profiled),
	CASE(a_run_folder_that_others_can_change_is_not_used),
	CASE(where_the_run_folder_cannot_be_made_nothing_happens),
	CASE(a_full_disk_leaves_no_file_behind),
	CASE(arguments_that_cannot_be_used_are_left_out),
	CASE(the_prolog_creates_the_file_of_the_run_and_its_steps_use_it),
	CASE(the_prolog_makes_no_file_for_who_does_not_ask),
	CASE(files_of_an_earlier_run_are_not_used),
	CASE(a_job_is_counted_until_its_users_jobs_of_that_name_have_a_profile),
	CASE(what_the_prolog_decided_holds_for_the_steps),
	CASE(an_unmeasured_job_does_not_use_files_of_an_earlier_run),
	CASE(of_a_job_that_names_its_model_the_models_profile_counts),
	CASE(a_built_in_model_is_known_in_any_spelling),
	CASE(a_model_may_be_named_in_the_comment),
	CASE(whoever_says_on_or_off_is_obeyed),
	CASE(jobs_without_gpus_are_counted_only_if_they_ask),
	CASE(no_name_can_pass_for_another),
	CASE(a_client_that_sends_what_it_likes_as_the_jobs_name_finds_nothing),
	CASE(a_job_without_a_name_a_user_or_a_comment_is_counted),
	CASE(a_file_that_is_not_the_controllers_says_nothing),
	CASE(a_file_that_is_none_of_the_controllers_making_says_nothing),
	CASE(without_a_folder_to_collect_in_nothing_is_known),
	CASE(what_was_counted_is_collected_once_and_whole),
	CASE(the_files_of_each_run_are_collected),
	CASE(a_node_that_slurm_does_not_name_goes_by_its_host),
	CASE(other_jobs_and_other_nodes_keep_theirs),
	CASE(a_link_is_not_followed),
	CASE(a_file_with_a_second_name_is_refused),
	CASE(a_file_of_another_size_is_refused),
	CASE(what_is_no_file_is_refused),
	CASE(nobody_can_make_the_end_of_a_job_wait),
	CASE(a_file_of_another_user_is_refused),
	CASE(a_forged_file_is_refused),
	CASE(a_vanished_file_is_no_matter),
	CASE(without_a_folder_to_collect_in_nothing_is_left_on_the_node),
	CASE(a_disk_that_is_full_at_the_end_leaves_no_half_file),
	CASE(what_a_killed_epilog_left_is_written_over),
	CASE(a_user_who_fills_the_folder_does_not_keep_others_from_being_counted),
	CASE(where_root_may_not_write_the_owner_of_the_folder_does),
	CASE(where_root_may_not_read_the_folder_what_is_known_is_known),
	CASE(slurm_itself_may_fail_anywhere),
	CASE(by_default_a_job_gets_a_progress_file_and_no_output_file),
	CASE(with_auto_the_monitor_is_preloaded_and_finds_the_output_file),
	CASE(a_job_may_have_its_messages_counted_and_its_output_read),
	CASE(the_progress_files_are_the_users_and_empty_with_their_space_reserved),
	CASE(what_a_job_says_goes_before_what_the_site_says),
	CASE(a_step_may_decline_but_not_ask_for_more_than_its_job_has),
	CASE(a_step_without_the_option_has_what_its_job_asked_for),
	CASE(progress_files_that_came_along_from_another_job_are_taken_away),
	CASE(extern_and_interactive_steps_get_no_progress_files),
	CASE(a_job_reports_without_the_monitor),
	CASE(a_batch_step_whose_prolog_was_skipped_makes_its_progress_files),
	CASE(slurmctld_is_asked_only_where_a_file_is_missing),
	CASE(a_progress_file_is_not_made_for_an_unknown_run),
	CASE(progress_files_are_collected_in_the_subfolder_progress),
	CASE(progress_files_without_content_are_not_collected),
	CASE(a_progress_file_that_the_user_has_replaced_is_not_collected),
	CASE(a_progress_file_of_another_size_is_not_collected),
	CASE(without_the_subfolder_progress_nothing_is_collected),
	CASE(progress_files_of_an_earlier_run_are_not_reported_into),
	CASE(a_user_who_fills_the_folder_does_not_keep_others_from_reporting),
	CASE(where_root_may_not_write_the_owner_of_the_folder_collects_progress),
};

static int open_files;

static void set_up(void)
{
	open_files = entries_in("/proc/self/fd");
	CHECK(mkdtemp(folder));
	snprintf(run, sizeof run, "%s/run", folder);
	snprintf(collect, sizeof collect, "%s/collect", folder);
	CHECK(mkdir(collect, 0755) == 0);
	/* Not /proc/self/exe: valgrind 3.24 would find itself there. */
	CHECK(realpath(program_invocation_name, library));
	argument("run", run);
	argument("collect", collect);
	argument("progress", "off"); /* which is not the default */
	argument("monitor", library);
	argument("nccl", library);
	bool root = geteuid() == 0;
	fake = (struct fake_slurm){.job = 7, .restarts = 2, .step = SLURM_BATCH_SCRIPT};
	fake.user = root ? NOBODY : getuid();
	fake.group = root ? NOBODY : getgid();
	setenv("SLURMD_NODENAME", "n1", 1);
	setenv("SLURM_JOB_USER", "ann", 1);
	setenv("SLURM_JOB_GPUS", "0,1", 1);
}

static void tear_down(void)
{
	CHECK(entries_in("/proc/self/fd") == open_files);
	fake_end();
	nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int run_alone(int number)
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		run_case = cases[number].name;
		alarm(60);
		set_up();
		cases[number].run();
		tear_down();
		exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
		fprintf(stderr, "FAILED %s\n", cases[number].name);
		return 1;
	}
	return 0;
}

int main(int count, char *arguments[])
{
	int failed = 0, ran = 0;
	for (int i = 0; i < COUNT(cases); i++) {
		if (count > 1 && !strstr(cases[i].name, arguments[1]))
			continue;
		failed += run_alone(i);
		ran++;
	}
	printf("%d cases, %d failed\n", ran, failed);
	return failed || !ran;
}

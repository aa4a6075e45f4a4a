/* Unit tests of the output file: counts in text, and which texts are kept. Each case runs in its
 * own process with its own output file. */
#define _GNU_SOURCE
#include "../output.h"
#include "../output_line.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) check((condition), #condition, __LINE__)

static char path[] = "/tmp/tiresias-output.XXXXXX";

static void check(bool holds, const char *condition, int line)
{
	if (holds)
		return;
	fprintf(stderr, "  line %d: %s does not hold\n", line, condition);
	exit(1);
}

static struct output_file *content(void)
{
	static struct output_file file;
	int fd = open(path, O_RDONLY);

	CHECK(fd >= 0 && read(fd, &file, sizeof(file)) == (ssize_t)sizeof(file));
	close(fd);
	return &file;
}

static int slots_in_use(void)
{
	const struct output_file *file = content();
	int used = 0;

	for (int i = 0; i < OUTPUT_SLOTS; i++)
		used += file->slots[i].magic == OUTPUT_MAGIC;
	return used;
}

/* The slot whose text begins like this; NULL if there is none. */
static const struct output_slot *slot_of(const char *beginning)
{
	const struct output_file *file = content();

	for (int i = 0; i < OUTPUT_SLOTS; i++)
		if (file->slots[i].magic == OUTPUT_MAGIC &&
		    strncmp(file->slots[i].text, beginning, strlen(beginning)) == 0)
			return &file->slots[i];
	return NULL;
}

static void begin(void)
{
	output_begin();
	CHECK(output_is_on());
}

/* From memory of exactly this size, so that the sanitizers detect an access beyond it. */
static void print_bytes(const char *bytes, size_t number)
{
	char *copy = malloc(number == 0 ? 1 : number);

	memcpy(copy, bytes, number);
	output_printed(copy, number, number);
	free(copy);
}

static void print(const char *text)
{
	print_bytes(text, strlen(text));
}

static struct output_count count_of(const char *text)
{
	struct output_count count = {0};
	size_t bytes = strlen(text);
	char *copy = malloc(bytes);

	memcpy(copy, text, bytes);
	CHECK(output_count_in(copy, bytes, &count));
	free(copy);
	return count;
}

static bool counts(const char *text, uint64_t step, uint64_t total)
{
	struct output_count count = count_of(text);

	return count.step == step && count.total == total;
}

static bool counts_nothing(const char *text)
{
	struct output_count count;

	return !output_count_in(text, strlen(text), &count);
}

static bool are_alike(const char *one, const char *other)
{
	return count_of(one).shape == count_of(other).shape;
}

static void counts_are_found(void)
{
	CHECK(counts("Epoch 3/90", 3, 90));
	CHECK(counts("epoch 3 of 90", 3, 90));
	CHECK(counts("Epoch [3/90], Step [120/5000], Loss: 0.2", 120, 5000));
	CHECK(counts(" 12%|█▏        | 120/1000 [00:12<01:30, 9.7it/s]", 120, 1000));
	CHECK(counts(" iteration      120/    5000 | consumed samples: 960", 120, 5000));
	CHECK(counts("\x1b[1m 120/5000\x1b[0m \x1b[32m━━━\x1b[0m 5s 42ms/step", 120, 5000));
	CHECK(counts("0/1", 0, 1) && counts("step=5/5.", 5, 5));
	CHECK(counts("Training 12%", 12, 100) && counts("12.5 % done", 12, 100));
	CHECK(counts("999999999999999/999999999999999", 999999999999999, 999999999999999));
}

static void what_is_no_count_is_not_looked_at(void)
{
	const char *const others[] = {
		"", "/", "%", " of ", "loss 0.25", "11/23/2026", "/data/1/2", "v1/2", "1.5/2",
		"7/2", "0/0", "3/4.5", "3/4x", "https://a/b/1/2", "120it [00:12, 9.7it/s]",
		"model: 50%|█████     | 2.20G/4.40G [00:10<00:10, 220MB/s]", "101%", "%%%", "2 of a",
		"9999999999999999/9999999999999999", "1 / / 2", "a of 2", "3 of", "1/", "/1",
	};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (!counts_nothing(others[i]))
			check(false, others[i], __LINE__);
}

static void what_changes_from_line_to_line_makes_no_other_shape(void)
{
	CHECK(are_alike("  1%|▏         | 1/90 [00:01<?]", "100%|██████████| 90/90 [01:30<00:00]"));
	CHECK(are_alike("e: 45%|####5     | 45/99", "e: 40%|####      | 40/99"));
	CHECK(are_alike("[2026-11-23 10:00:01] lr 1e-05 step 2/9", "[2026-11-24 9:59:59] lr 0.01 step 3/9"));
	CHECK(are_alike("\x1b[31m1/9\x1b[0m", "\x1b[1;32m 2/9"));
	CHECK(are_alike("Epoch [1/3], Step [1/9]", "Epoch [2/3], Step [9/9], loss 0.2"));
	CHECK(!are_alike("Epoch 1/9", "Step 1/9"));
	CHECK(!are_alike("1/9", "1/10"));
	CHECK(!are_alike("Эпоха 1/9", "Шаг 1/9"));
}

static void the_latest_text_of_a_shape_is_kept(void)
{
	const struct output_slot *slot;

	begin();
	CHECK(slots_in_use() == 0);
	print("\r  0%|          | 0/90 [00:00<?, ?it/s]");
	print("\r  2%|2         | 2/90 [00:00<?, ?it/s]");
	print("\r  2%|2         | 2/90 [00:05<?, ?it/s]");
	slot = slot_of("  2%|2         | 2/90 [00:05<?, ?it/s]");
	CHECK(slots_in_use() == 1 && slot != NULL);
	CHECK(slot->seen == 3 && slot->moved == 1 && slot->step == 2 && slot->total == 90);
	CHECK(slot->length == 38 && slot->sequence == 3 && slot->written == 3);
	CHECK(slot->text[slot->length] == '\0' && slot->reserved == 0);
	CHECK(slot->first_ms != 0 && slot->first_ms <= slot->changed_ms);
	CHECK(slot->changed_ms <= slot->last_ms);
}

static void a_shorter_text_leaves_nothing_of_a_longer_one(void)
{
	begin();
	print("step 1/9 and something behind it\n");
	print("step 2/9\n");
	CHECK(slot_of("step 2/9") != NULL && slot_of("step 2/9")->text[8] == '\0');
	CHECK(slot_of("step 2/9")->length == 8);
}

static void each_line_of_what_was_written_counts(void)
{
	begin();
	print("Epoch 1/3\nsomething\r\n\n\rstep 7/9\rstep 8/9\nloss 0.3");
	CHECK(slots_in_use() == 2);
	CHECK(slot_of("Epoch 1/3") != NULL && slot_of("step 8/9") != NULL);
}

static void only_the_end_of_much_text_is_looked_at(void)
{
	char much[20000];

	begin();
	memset(much, 'x', sizeof(much));
	memcpy(much, "early 1/9\n", 10);
	memcpy(much + sizeof(much) - 20, "\nlate 1/9\nstep 12/50", 20);
	print_bytes(much, sizeof(much));
	CHECK(slots_in_use() == 1 && slot_of("late 1/9") != NULL);
	print_bytes(much, 5000);
	CHECK(slots_in_use() == 1);
	memset(much, '\n', sizeof(much));
	print_bytes(much, sizeof(much));
	memset(much, '/', sizeof(much));
	print_bytes(much, sizeof(much));
	CHECK(slots_in_use() == 1);
}

static void of_a_long_line_the_beginning_is_kept(void)
{
	char line[1500];

	begin();
	memset(line, 'x', sizeof(line));
	memcpy(line, "step 1/9 ", 9);
	print_bytes(line, sizeof(line));
	CHECK(slot_of("step 1/9 xxx")->length == OUTPUT_TEXT_BYTES);
	CHECK(slot_of("step 1/9 xxx")->reserved == 0);
}

static void a_number_that_was_cut_off_does_not_count(void)
{
	begin();
	output_printed("step 1/3\nstep 12/50", 21, 19);
	CHECK(slots_in_use() == 1 && slot_of("step 1/3") != NULL);
	output_printed("step 12/50", 12, 10);
	CHECK(slots_in_use() == 1);
}

static void parts_are_put_together(void)
{
	char long_part[3000];
	struct iovec parts[] = {
		{long_part, sizeof(long_part)}, {"\nste", 4}, {NULL, 0}, {"p 1", 3}, {"20/5000\n", 8},
	};

	begin();
	memset(long_part, 'x', sizeof(long_part));
	output_printed_parts(parts, 5, 3015);
	CHECK(slots_in_use() == 1 && slot_of("step 120/5000") != NULL);
	output_printed_parts(parts + 1, 4, 10);
	CHECK(slots_in_use() == 1);
	output_printed_parts(parts + 1, 4, 15);
	CHECK(slot_of("step 120/5000")->seen == 2);
	output_printed_parts(parts, 0, 0);
}

/* A name without digits, which are not part of a shape. */
static void noise(int number, const char *rest)
{
	char text[64], name[16];
	int length = 0;

	do
		name[length++] = (char)('a' + number % 26);
	while ((number /= 26) > 0);
	snprintf(text, sizeof(text), "%.*s %s\n", length, name, rest);
	print(text);
}

static void a_bar_that_has_begun_outlasts_noise(void)
{
	begin();
	print("Epochs: 0/90\r");
	for (int i = 0; i < 1000; i++) {
		noise(i, "file 2/3");
		noise(i, "all 3/3");
		print(i % 2 == 0 ? "step 5/100\r" : "step 99/100\r");
	}
	CHECK(slot_of("Epochs: 0/90") != NULL && slot_of("step 99/100") != NULL);
}

static void bars_that_move_outlast_others_that_begin(void)
{
	begin();
	print("Epochs: 5/90\r");
	print("Epochs: 6/90\r");
	for (int i = 0; i < 1000; i++)
		noise(i, "part 0/3");
	CHECK(slot_of("Epochs: 6/90") != NULL);
}

static void what_has_ended_makes_room_first(void)
{
	begin();
	print("Epochs: 0/90\r");
	print("loading 1/2\nloading 2/2\n");
	for (int i = 0; i < OUTPUT_SLOTS - 2; i++)
		noise(i, "part 2/3");
	CHECK(slot_of("loading 2/2") != NULL);
	print("step 0/5000\r");
	CHECK(slot_of("loading") == NULL && slot_of("Epochs") && slot_of("a part") && slot_of("step"));
}

static void only_the_first_process_keeps_anything(void)
{
	setenv("RANK", "1", 1);
	output_begin();
	CHECK(!output_is_on());
	setenv("RANK", "one", 1);
	setenv("PMI_RANK", "00", 1);
	setenv("SLURM_PROCID", "3", 1);
	begin();
}

static void files_that_are_not_right_are_left_alone(void)
{
	char link[] = "/tmp/tiresias-link.XXXXXX";

	CHECK(truncate(path, OUTPUT_FILE_BYTES + 1) == 0);
	output_begin();
	CHECK(!output_is_on());
	CHECK(truncate(path, OUTPUT_FILE_BYTES) == 0);
	close(mkstemp(link));
	CHECK(unlink(link) == 0 && symlink(path, link) == 0);
	setenv(OUTPUT_VARIABLE, link, 1);
	output_begin();
	CHECK(unlink(link) == 0 && !output_is_on());
	unsetenv(OUTPUT_VARIABLE);
	output_begin();
	CHECK(!output_is_on());
}

static void a_file_that_is_cut_off_harms_nothing(void)
{
	begin();
	CHECK(truncate(path, 0) == 0);
	for (int i = 0; i < 100; i++)
		print("step 1/9\n");
}

static unsigned int chance(unsigned int *seed)
{
	*seed = *seed * 1103515245 + 12345;
	return *seed >> 16;
}

static void forged_files_harm_nothing(void)
{
	unsigned int seed = 7;
	int fd = open(path, O_RDWR);

	for (int i = 0; i < OUTPUT_FILE_BYTES; i++) {
		char byte = (char)chance(&seed);

		CHECK(pwrite(fd, &byte, 1, i) == 1);
	}
	for (int i = 0; i < OUTPUT_SLOTS; i++)
		CHECK(pwrite(fd, "OUT1", 4, 512 * i) == 4);
	close(fd);
	begin();
	for (int i = 0; i < 1000; i++)
		noise(i, "1/9\n");
}

static void no_bytes_harm_anything(void)
{
	static const char alphabet[] = "0123456789//%% of.-e\n\r\x1b[mE\xE2\x96\x88_";
	unsigned int seed = 11;
	char text[600];

	begin();
	for (int i = 0; i < 30000; i++) {
		size_t bytes = chance(&seed) % (i % 50 == 0 ? sizeof(text) : 30);

		for (size_t at = 0; at < bytes; at++)
			text[at] = alphabet[chance(&seed) % (sizeof(alphabet) - 1)];
		print_bytes(text, bytes);
	}
}

#define THREADS 4
#define PRINTED 2000

static void *print_much(void *unused)
{
	char line[32];

	for (int i = 0; i < PRINTED; i++) {
		int length = snprintf(line, sizeof(line), "step %d/%d\n", i, PRINTED);

		output_printed(line, (size_t)length, (size_t)length);
		noise(i % 20, "part 1/2");
	}
	return unused;
}

static void threads_and_processes_print_at_once(void)
{
	pthread_t threads[THREADS];

	begin();
	for (int i = 0; i < 2; i++)
		if (fork() == 0) {
			print_much(NULL);
			_exit(0);
		}
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, print_much, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	while (wait(NULL) > 0)
		continue;
	print("step 1/2000 last\n");
	CHECK(slot_of("step 1/2000 last")->sequence == slot_of("step 1/2000 last")->written);
}

static volatile sig_atomic_t interruptions;

static void print_from_handler(int number)
{
	(void)number;
	output_printed("handler 1/9\n", 12, 12);
	interruptions++;
}

static void a_signal_handler_may_print(void)
{
	struct itimerval often = {.it_interval.tv_usec = 50, .it_value.tv_usec = 50};

	begin();
	signal(SIGALRM, print_from_handler);
	setitimer(ITIMER_REAL, &often, NULL);
	while (interruptions < 200)
		output_printed("step 1/9\n", 9, 9);
	signal(SIGALRM, SIG_IGN);
	print("step 2/9\n");
	CHECK(slot_of("step 2/9") != NULL && slot_of("handler 1/9") != NULL && slots_in_use() == 2);
}

#define CASE(name) {#name, name}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	CASE(counts_are_found),
	CASE(what_is_no_count_is_not_looked_at),
	CASE(what_changes_from_line_to_line_makes_no_other_shape),
	CASE(the_latest_text_of_a_shape_is_kept),
	CASE(a_shorter_text_leaves_nothing_of_a_longer_one),
	CASE(each_line_of_what_was_written_counts),
	CASE(only_the_end_of_much_text_is_looked_at),
	CASE(of_a_long_line_the_beginning_is_kept),
	CASE(a_number_that_was_cut_off_does_not_count),
	CASE(parts_are_put_together),
	CASE(a_bar_that_has_begun_outlasts_noise),
	CASE(bars_that_move_outlast_others_that_begin),
	CASE(what_has_ended_makes_room_first),
	CASE(only_the_first_process_keeps_anything),
	CASE(files_that_are_not_right_are_left_alone),
	CASE(a_file_that_is_cut_off_harms_nothing),
	CASE(forged_files_harm_nothing),
	CASE(no_bytes_harm_anything),
	CASE(threads_and_processes_print_at_once),
	CASE(a_signal_handler_may_print),
};

static bool passes(void (*run)(void))
{
	int fd = mkstemp(path);
	int status = 1;

	CHECK(fd >= 0 && ftruncate(fd, OUTPUT_FILE_BYTES) == 0);
	close(fd);
	setenv(OUTPUT_VARIABLE, path, 1);
	if (fork() == 0) {
		run();
		exit(0);
	}
	wait(&status);
	unlink(path);
	memset(path + sizeof(path) - 7, 'X', 6);
	return status == 0;
}

int main(void)
{
	int failed = 0;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bool passed = passes(cases[i].run);

		printf("%s %s\n", passed ? "ok    " : "FAILED", cases[i].name);
		fflush(stdout);
		failed += !passed;
	}
	return failed == 0 ? 0 : 1;
}

/* Unit tests of the traffic file, of counting into it, and of joining messages. Each case runs in
 * its own process with its own traffic file. */
#define _GNU_SOURCE
#include "../counting.h"
#include "../descriptors.h"
#include "../own_list.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) check((condition), #condition, __LINE__)
#define KILO 1000

#define AT(field) offsetof(struct traffic_file, field)

static char path[] = "/tmp/tiresias-traffic.XXXXXX";

static void check(bool holds, const char *condition, int line)
{
	if (holds)
		return;
	fprintf(stderr, "  line %d: %s does not hold\n", line, condition);
	exit(1);
}

/* The current content of the file. */
static struct traffic_file *content(void)
{
	static struct traffic_file file;
	int fd = open(path, O_RDONLY);

	CHECK(fd >= 0 && read(fd, &file, sizeof(file)) == (ssize_t)sizeof(file));
	close(fd);
	return &file;
}

static uint64_t messages_in(const struct traffic_slot *slots, uint64_t bytes)
{
	for (int i = 0; i < TRAFFIC_SLOTS; i++)
		if (slots[i].bytes == bytes)
			return slots[i].messages;
	return 0;
}

/* The sum over the lists of all threads. */
static uint64_t messages_in_lists(uint64_t bytes)
{
	const struct traffic_file *file = content();
	uint64_t messages = 0;

	for (int i = 0; i < TRAFFIC_LISTS; i++)
		messages += messages_in(file->lists[i].slots, bytes);
	return messages;
}

static uint64_t messages_of(uint64_t bytes)
{
	const struct traffic_section *section = &content()->sections[TRAFFIC_MESSAGES];
	uint64_t messages = messages_in_lists(bytes);

	for (int o = 0; o < TRAFFIC_OCTAVES; o++)
		messages += messages_in(section->octaves[o].slots, bytes);
	return messages;
}

/* All messages of the section, listed and not. */
static uint64_t messages_in_all(void)
{
	const struct traffic_section *section = &content()->sections[TRAFFIC_MESSAGES];
	uint64_t messages = 0;

	for (int o = 0; o < TRAFFIC_OCTAVES; o++) {
		messages += section->octaves[o].unlisted_messages;
		for (int i = 0; i < TRAFFIC_SLOTS; i++)
			messages += section->octaves[o].slots[i].messages;
	}
	return messages;
}

static bool is_valid(void)
{
	return traffic_fault(content(), sizeof(struct traffic_file)) == NULL;
}

static void begin(void)
{
	descriptors_begin();
	own_list_begin();
	counting_begin();
	CHECK(counting_is_on());
}

static void an_empty_file_is_valid_and_gets_its_header(void)
{
	CHECK(is_valid());
	begin();
	CHECK(content()->header.magic == TRAFFIC_MAGIC && is_valid());
}

static void every_message_is_counted_by_its_size(void)
{
	begin();
	for (int i = 0; i < 1000; i++)
		count_message(TRAFFIC_MESSAGES, 4096);
	count_message(TRAFFIC_MESSAGES, 411041792);
	count_message(TRAFFIC_MESSAGES, 1);
	count_message(TRAFFIC_MESSAGES, 0);
	count_message(TRAFFIC_MESSAGES, UINT64_MAX);
	CHECK(messages_of(4096) == 1000 && messages_of(411041792) == 1 && messages_of(1) == 1);
	CHECK(messages_of(TRAFFIC_LARGEST_BYTES) == 1 && messages_in_all() == 1003 && is_valid());
}

static void sections_are_kept_apart(void)
{
	begin();
	count_message(TRAFFIC_COLLECTIVES, 4096);
	CHECK(messages_in_all() == 0 && is_valid());
	CHECK(memcmp(&content()->sections[TRAFFIC_MESSAGES],
		     &content()->sections[TRAFFIC_COLLECTIVES],
		     sizeof(struct traffic_section)) != 0);
}

static void sizes_without_a_slot_are_counted_together(void)
{
	const struct traffic_octave *octave;

	begin();
	for (int round = 0; round < 3; round++)
		for (uint64_t i = 0; i < TRAFFIC_SLOTS + 10; i++)
			count_message(TRAFFIC_MESSAGES, 4096 + i);
	octave = &content()->sections[TRAFFIC_MESSAGES].octaves[12];
	CHECK(octave->unlisted_messages == 30 && octave->unlisted_largest_bytes == 4096 + 41);
	CHECK(octave->unlisted_bytes == 3 * (10 * 4096 + 32 + 33 + 34 + 35 + 36 + 37 + 38 + 39 + 40 + 41));
	CHECK(messages_of(4096 + 31) == 3 && messages_in_all() == 126 && is_valid());
}

static void *count_many(void *nothing)
{
	for (uint64_t i = 0; i < 60 * KILO; i++)
		count_message(TRAFFIC_MESSAGES, 1024 + i % 60);
	return nothing;
}

static void threads_lose_nothing(void)
{
	pthread_t threads[8];
	const struct traffic_octave *octave;

	begin();
	for (int i = 0; i < 8; i++)
		CHECK(pthread_create(&threads[i], NULL, count_many, NULL) == 0);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	octave = &content()->sections[TRAFFIC_MESSAGES].octaves[10];
	CHECK(messages_in_all() == 8 * 60 * KILO && is_valid());
	CHECK(octave->unlisted_messages == (60 - TRAFFIC_SLOTS) * 8 * KILO);
	for (int i = 0; i < TRAFFIC_SLOTS; i++)
		CHECK(octave->slots[i].messages == 8 * KILO);
}

static void processes_share_the_file(void)
{
	for (int i = 0; i < 4; i++) {
		if (fork() == 0) {
			begin();
			count_many(NULL);
			_exit(0);
		}
	}
	while (wait(NULL) > 0)
		continue;
	CHECK(messages_in_all() == 4 * 60 * KILO && is_valid());
}

static void count_small(uint64_t bytes, int times)
{
	for (int i = 0; i < times; i++)
		count_small_message(bytes);
}

static void a_thread_that_sends_much_takes_a_list(void)
{
	begin();
	count_small(1000, LIST_AFTER_MESSAGES);
	CHECK(content()->lists_taken == 1 && messages_in_lists(1000) == 0);
	count_small(1000, 5);
	count_small(3000, 6);
	CHECK(content()->lists_taken == 1 && is_valid());
	CHECK(messages_in_lists(1000) == 5 && messages_in_lists(3000) == 6);
	CHECK(messages_of(1000) == LIST_AFTER_MESSAGES + 5);
}

static void sizes_that_find_no_place_in_a_list_count_where_all_do(void)
{
	begin();
	count_small(1000, LIST_AFTER_MESSAGES);
	for (uint64_t bytes = 1; bytes <= 2 * TRAFFIC_SLOTS; bytes++)
		count_small(bytes << 10, 3);
	for (uint64_t bytes = 1; bytes <= 2 * TRAFFIC_SLOTS; bytes++)
		CHECK(messages_of(bytes << 10) == 3);
	CHECK(messages_in_lists(TRAFFIC_SLOTS << 10) == 3);
	CHECK(messages_in_lists((TRAFFIC_SLOTS + 1) << 10) == 0 && is_valid());
}

static void *send_much(void *nothing)
{
	count_small(1000, 3 * LIST_AFTER_MESSAGES);
	return nothing;
}

static void when_all_lists_are_taken_threads_count_where_all_do(void)
{
	enum { MANY = TRAFFIC_LISTS + 8 };
	pthread_t threads[MANY];

	begin();
	for (int i = 0; i < MANY; i++)
		CHECK(pthread_create(&threads[i], NULL, send_much, NULL) == 0);
	for (int i = 0; i < MANY; i++)
		pthread_join(threads[i], NULL);
	CHECK(content()->lists_taken == TRAFFIC_LISTS && is_valid());
	CHECK(messages_of(1000) == (uint64_t)MANY * 3 * LIST_AFTER_MESSAGES);
	CHECK(messages_in_lists(1000) == (uint64_t)TRAFFIC_LISTS * 2 * LIST_AFTER_MESSAGES);
}

static void a_forked_child_leaves_the_list_to_its_parent(void)
{
	begin();
	count_small(1000, LIST_AFTER_MESSAGES);
	for (int child = 0; child < 4; child++) {
		if (fork() == 0) {
			count_small(1000, 50 * LIST_AFTER_MESSAGES);
			_exit(0);
		}
	}
	count_small(1000, 50 * LIST_AFTER_MESSAGES);
	while (wait(NULL) > 0)
		continue;
	CHECK(content()->lists_taken == 5 && is_valid());
	CHECK(messages_of(1000) == (1 + 5 * 50) * LIST_AFTER_MESSAGES);
}

/* The child has its parent's list as well: some counts may be lost, but nothing worse. */
static void a_child_made_behind_the_back_of_libc_spoils_nothing(void)
{
	const uint64_t all = (1 + 2 * 50) * LIST_AFTER_MESSAGES;

	begin();
	count_small(1000, LIST_AFTER_MESSAGES);
	if (syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) == 0) {
		count_small(1000, 50 * LIST_AFTER_MESSAGES);
		_exit(0);
	}
	count_small(1000, 50 * LIST_AFTER_MESSAGES);
	while (wait(NULL) > 0)
		continue;
	CHECK(messages_of(1000) <= all && messages_of(1000) > all / 2 && is_valid());
}

static volatile sig_atomic_t signals;

static void count_from_handler(int number)
{
	(void)number;
	signals = signals + 1;
	count_small_message(1000);
}

static void a_signal_handler_counts_into_the_list_of_its_thread(void)
{
	const struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
	const struct sigaction action = {.sa_handler = count_from_handler};
	uint64_t messages = 0;

	begin();
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (; signals < 2 * KILO; messages++)
		count_small_message(1000);
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	CHECK(messages_of(1000) == messages + (uint64_t)signals && is_valid());
}

static void off_with(const char *name)
{
	if (name == NULL)
		unsetenv(TRAFFIC_VARIABLE);
	else
		setenv(TRAFFIC_VARIABLE, name, 1);
	counting_begin();
	CHECK(!counting_is_on());
	count_message(TRAFFIC_MESSAGES, 4096);
}

static void nothing_is_counted_without_a_file(void)
{
	off_with(NULL);
	off_with("");
	off_with("/nonexistent/file");
	off_with("/tmp");
	off_with("/dev/zero");
}

static void a_file_of_another_size_is_left_alone(void)
{
	CHECK(truncate(path, 100) == 0);
	off_with(path);
	CHECK(truncate(path, 2 * TRAFFIC_FILE_BYTES) == 0);
	off_with(path);
}

static void a_file_of_another_version_is_left_alone(void)
{
	struct traffic_header other;
	int fd = open(path, O_WRONLY);

	traffic_describe(&other);
	other.version = TRAFFIC_VERSION - 1;
	CHECK(write(fd, &other, sizeof(other)) == (ssize_t)sizeof(other));
	off_with(path);
	CHECK(memcmp(&content()->header, &other, sizeof(other)) == 0);
}

static void a_link_is_not_followed(void)
{
	char link[sizeof(path) + 5];

	snprintf(link, sizeof(link), "%s.link", path);
	CHECK(symlink(path, link) == 0);
	off_with(link);
	unlink(link);
}

/* One change at a time to a valid file, and the resulting message of the check. */
static const char *fault_with(size_t offset, uint64_t value)
{
	static struct traffic_file file;

	traffic_describe(&file.header);
	file.sections[0].octaves[12].slots[3] = (struct traffic_slot){4096, 7};
	file.sections[0].octaves[12].slots[4] = (struct traffic_slot){5000, 7};
	file.lists_taken = 2;
	file.lists[1].slots[3] = (struct traffic_slot){4096, 7};
	file.lists[1].slots[4] = (struct traffic_slot){500, 7};
	CHECK(traffic_fault(&file, sizeof(file)) == NULL);
	memcpy((char *)&file + offset, &value, sizeof(value));
	return traffic_fault(&file, sizeof(file));
}

static bool faulty(size_t offset, uint64_t value, const char *fault)
{
	const char *found = fault_with(offset, value);

	return found != NULL && strcmp(found, fault) == 0;
}

/* The child's copy is modified permanently, so each case runs in its own process. */
static void forged(size_t offset, uint64_t value, const char *fault)
{
	pid_t child = fork();
	int status = 0;

	if (child == 0)
		_exit(faulty(offset, value, fault) ? 0 : 1);
	CHECK(waitpid(child, &status, 0) == child);
	if (status != 0)
		fprintf(stderr, "  expected: %s\n", fault);
	CHECK(status == 0);
}

static void forged_files_are_refused(void)
{
	const size_t slots = AT(sections[0].octaves[12].slots);
	const size_t octave = AT(sections[0].octaves[12]);
	const size_t list = AT(lists[1].slots[3]);
	const char *alien = "a size in an octave that is not its own";
	const char *unowned = "data in a list that nobody took";

	forged(0, 1, "not a traffic file");
	forged(8, 1, "a traffic file of another version");
	forged(16, UINT64_MAX, "a header that contradicts its version");
	forged(slots, 4096 * 2, alien);
	forged(slots, 4095, alien);
	forged(slots, UINT64_MAX, alien);
	forged(slots, 5000, "a size listed twice");
	forged(slots + 8, 1, "messages in a free slot");
	forged(octave, 1, "unlisted messages without a largest size");
	forged(octave + 8, 1, "unlisted bytes without messages");
	forged(octave + 16, 1, "a largest size in an octave that is not its own");
	forged(octave + 24, 1, "a reserved field that is not zero");
	forged(AT(unused), 1, "data behind the last section");
	forged(AT(lists) - 8, UINT64_C(1) << 63, "data behind the last section");
	forged(AT(lists_taken), TRAFFIC_LISTS + 1, "more lists taken than there are");
	forged(AT(lists_taken), UINT64_MAX, "more lists taken than there are");
	forged(AT(lists_taken), 1, unowned);
	forged(sizeof(struct traffic_file) - 8, UINT64_C(1) << 63, unowned);
	forged(list, 500, "a size listed twice");
	forged(list, TRAFFIC_LARGEST_BYTES + 1, "a size larger than any");
	forged(list, 0, "messages in a free slot");
}

static void files_of_another_size_are_refused(void)
{
	static struct traffic_file file;

	CHECK(strcmp(traffic_fault(&file, 0), "a file of the wrong size") == 0);
	CHECK(strcmp(traffic_fault(&file, 100), "a file of the wrong size") == 0);
	CHECK(traffic_fault(&file, sizeof(file)) == NULL);
}

/* Whatever a user writes, the check ends, and reads only the file. */
static void noise_is_refused(void)
{
	static struct traffic_file file;
	unsigned int seed = 1;

	for (int round = 0; round < 2000; round++) {
		traffic_describe(&file.header);
		for (int i = 0; i < 8; i++) {
			size_t at = (size_t)rand_r(&seed) % sizeof(file);
			((unsigned char *)&file)[at] = (unsigned char)(rand_r(&seed) % 256);
		}
		traffic_fault(&file, sizeof(file));
	}
	CHECK(traffic_fault(&file, sizeof(file)) != NULL);
}

static void a_message_goes_on_where_it_was_left(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	begin();
	descriptor_sent(fd, 1000, 400, false);
	CHECK(messages_in_all() == 0);
	descriptor_sent(fd, 600, 500, false);
	descriptor_sent(fd, 100, 100, false);
	CHECK(messages_of(1000) == 1 && messages_in_all() == 1);
	descriptor_sent(fd, 1000, 400, false);
	descriptor_sent(fd, 601, 601, false);
	CHECK(messages_of(400) == 1 && messages_of(601) == 1 && messages_in_all() == 3);
	descriptor_sent(fd, 1000, 300, false);
	descriptors_forget((unsigned int)fd, (unsigned int)fd);
	descriptor_sent(fd, 700, 700, false);
	CHECK(messages_of(300) == 1 && messages_of(700) == 1 && messages_in_all() == 5);
	descriptor_sent(fd, 50, 50, true);
	descriptors_end();
	CHECK(messages_of(50) == 1 && messages_in_all() == 6);
}

static void descriptors_of_other_kinds_do_not_count(void)
{
	int pair[2];

	begin();
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	descriptor_sent(pair[0], 100, 100, false);
	descriptor_sent(pair[0], 1 << 20, 1 << 20, false);
	descriptor_sent(1 << 20, 100, 100, false);
	CHECK(messages_in_all() == 0);
	CHECK(dup2(socket(AF_INET6, SOCK_STREAM, 0), pair[0]) == pair[0]);
	descriptor_sent(pair[0], 1 << 20, 1 << 20, false);
	CHECK(messages_of(1 << 20) == 1 && messages_in_all() == 1);
}

#define THREADS 4
#define FRESH 256 /* descriptors without cached state: the first process to use one takes it over */

static int contended[FRESH];
static pthread_barrier_t all_threads;

static void *send_in_parts(void *nothing)
{
	for (int o = 0; o < FRESH; o++) {
		pthread_barrier_wait(&all_threads);
		for (int i = 0; i < 32; i++) {
			descriptor_sent(contended[o], 1000, 400, false);
			descriptor_sent(contended[o], 600, 600, false);
			if (i % 7 == 0)
				descriptors_forget((unsigned int)contended[o],
						   (unsigned int)contended[o]);
		}
	}
	return nothing;
}

/* Threads that interleave their messages produce meaningless sizes, but the bytes are exact. */
static void bytes_are_never_lost(void)
{
	pthread_t threads[THREADS];
	uint64_t bytes = 0;

	begin();
	for (int o = 0; o < FRESH; o++)
		contended[o] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(contended[FRESH - 1] >= 0);
	CHECK(pthread_barrier_init(&all_threads, NULL, THREADS) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, send_in_parts, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&all_threads);
	descriptors_end();
	for (int o = 0; o < TRAFFIC_OCTAVES; o++) {
		const struct traffic_octave *octave = &content()->sections[0].octaves[o];

		bytes += octave->unlisted_bytes;
		for (int i = 0; i < TRAFFIC_SLOTS; i++)
			bytes += octave->slots[i].bytes * octave->slots[i].messages;
	}
	CHECK(bytes == THREADS * FRESH * 32 * 1000 && is_valid());
	for (int o = 0; o < FRESH; o++)
		close(contended[o]);
}

#define CASE(name) {#name, name}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	CASE(an_empty_file_is_valid_and_gets_its_header),
	CASE(every_message_is_counted_by_its_size),
	CASE(sections_are_kept_apart),
	CASE(sizes_without_a_slot_are_counted_together),
	CASE(threads_lose_nothing),
	CASE(processes_share_the_file),
	CASE(a_thread_that_sends_much_takes_a_list),
	CASE(sizes_that_find_no_place_in_a_list_count_where_all_do),
	CASE(when_all_lists_are_taken_threads_count_where_all_do),
	CASE(a_forked_child_leaves_the_list_to_its_parent),
	CASE(a_child_made_behind_the_back_of_libc_spoils_nothing),
	CASE(a_signal_handler_counts_into_the_list_of_its_thread),
	CASE(nothing_is_counted_without_a_file),
	CASE(a_file_of_another_size_is_left_alone),
	CASE(a_file_of_another_version_is_left_alone),
	CASE(a_link_is_not_followed),
	CASE(forged_files_are_refused),
	CASE(files_of_another_size_are_refused),
	CASE(noise_is_refused),
	CASE(a_message_goes_on_where_it_was_left),
	CASE(descriptors_of_other_kinds_do_not_count),
	CASE(bytes_are_never_lost),
};

static bool passes(void (*run)(void))
{
	int fd = mkstemp(path);
	int status = 1;

	CHECK(fd >= 0 && ftruncate(fd, TRAFFIC_FILE_BYTES) == 0);
	close(fd);
	setenv(TRAFFIC_VARIABLE, path, 1);
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

/* The benchmark's printer: writes LINES of one KIND to its output, one write each. Prints on stderr
 * the nanoseconds per line. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TEXTS 1000

static const struct {
	const char *name;
	const char *format; /* of a step, and of TEXTS */
} kinds[] = {
	{"log", "2026-11-23 10:00:00,123 INFO trainer: loss 0.%04d, learning rate 0.0003, grad 1.7\n"},
	{"path", "2026-11-23 10:00:00,123 INFO saved /scratch/user/run-%04d/checkpoint/model.pt\n"},
	{"step", "2026-11-23 10:00:00,123 INFO trainer: step %4d/%d, loss 0.3141, rate 0.0003\n"},
	{"tqdm", "\rtrain:  45%%|████▌     | %d/%d [00:12<01:30,  9.71it/s, loss=0.314]"},
};

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static char texts[TEXTS][160];

int main(int count, char **arguments)
{
	long lines = count == 3 ? atol(arguments[1]) : 0;
	const char *format = NULL;
	double began_ns;

	for (size_t i = 0; count == 3 && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(kinds[i].name, arguments[2]) == 0)
			format = kinds[i].format;
	if (lines <= 0 || format == NULL) {
		fprintf(stderr, "usage: printer LINES log|path|step|tqdm\n");
		return 2;
	}
	for (int i = 0; i < TEXTS; i++)
		snprintf(texts[i], sizeof(texts[i]), format, i, TEXTS);
	began_ns = now_ns();
	for (long i = 0; i < lines; i++) {
		const char *text = texts[i % TEXTS];

		if (write(STDOUT_FILENO, text, strlen(text)) < 0)
			return 1;
	}
	fprintf(stderr, "%.1f\n", (now_ns() - began_ns) / (double)lines);
	return 0;
}

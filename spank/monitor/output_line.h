/* Finds the count in a piece of printed text. */
#ifndef TIRESIAS_OUTPUT_LINE_H
#define TIRESIAS_OUTPUT_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct output_count {
	uint64_t shape; /* hash of the words before it, and of its total */
	uint64_t step;
	uint64_t total;
};

/* Find the last count in a piece of text: "step/total", "step of total", otherwise "step%"; false
 * if there is none. Examines each byte a bounded number of times. The text may change meanwhile. */
bool output_count_in(const char *text, size_t bytes, struct output_count *count);

#endif

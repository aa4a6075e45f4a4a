/* Files of the job that are mapped for as long as the process lives. */
#ifndef TIRESIAS_MAPPED_FILE_H
#define TIRESIAS_MAPPED_FILE_H

#include <stddef.h>

#define MAPPED_FILES 2 /* at the same time */

/* Map the file that an environment variable names; NULL where it is not a regular file of exactly
 * `bytes` bytes that may be written to. A file that is cut off later is replaced by memory of this
 * process alone: for that a handler for SIGBUS is installed. */
void *map_named_file(const char *variable, size_t bytes);

/* Unmap what map_named_file has mapped. */
void unmap_file(void *mapped);

#endif

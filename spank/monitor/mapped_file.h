/* Files of the job that are mapped for as long as the process lives. */
#ifndef TIRESIAS_MAPPED_FILE_H
#define TIRESIAS_MAPPED_FILE_H

#include <stddef.h>

#define MAPPED_FILES 2 /* maximum number at the same time */

/* Map the file that an environment variable names; NULL unless it is a regular, writable file of
 * exactly `bytes` bytes. If the file is truncated later, it is replaced by memory of this process;
 * for that a SIGBUS handler is installed. */
void *map_named_file(const char *variable, size_t bytes);

/* Unmap what map_named_file has mapped. */
void unmap_file(void *mapped);

#endif

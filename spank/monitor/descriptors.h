/* What the descriptors of this process are, and which of their messages are not yet complete. */
#ifndef TIRESIAS_DESCRIPTORS_H
#define TIRESIAS_DESCRIPTORS_H

#include <stdbool.h>
#include <stddef.h>

/* Learn which process this is: entries are kept for this one and no other that shares its memory
 * for a while (vfork). Called once, before anything else here. */
void descriptors_begin(void);

/* A send of `wanted` bytes on a descriptor succeeded for `sent` of them; `more` is to follow and
 * belongs to the same message (MSG_MORE). Counts the message when it is complete, if the
 * descriptor is an AF_INET or AF_INET6 socket. Keeps errno. */
void descriptor_sent(int fd, size_t wanted, size_t sent, bool more);

/* The descriptors from `first` to `last` are about to be closed or to become something else. */
void descriptors_forget(unsigned int first, unsigned int last);

/* The process ends: count what no send has completed. */
void descriptors_end(void);

#endif

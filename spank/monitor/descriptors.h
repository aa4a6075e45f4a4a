/* Tracks what the descriptors of this process are, and which of their messages are incomplete. */
#ifndef TIRESIAS_DESCRIPTORS_H
#define TIRESIAS_DESCRIPTORS_H

#include <stdbool.h>
#include <stddef.h>

/* Record the process id: entries are valid for this process only, not for another one that shares
 * its memory for a while (vfork). Called once, before anything else here. */
void descriptors_begin(void);

/* A send of `wanted` bytes on a descriptor succeeded for `sent` of them; with `more` the next send
 * continues the same message (MSG_MORE). Counts the message when it is complete, if the descriptor
 * is an AF_INET or AF_INET6 socket. Preserves errno. */
void descriptor_sent(int fd, size_t wanted, size_t sent, bool more);

/* The descriptors from `first` to `last` are about to be closed or replaced. */
void descriptors_forget(unsigned int first, unsigned int last);

/* The process ends: count messages that no send has completed. */
void descriptors_end(void);

#endif

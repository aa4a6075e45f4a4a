/*
 * Files in a folder of another user on a shared file system. Root may be nobody there: NFS with
 * root_squash, which is the default of its servers.
 */
#ifndef TIRESIAS_AS_OWNER_H
#define TIRESIAS_AS_OWNER_H

/*
 * From here on this thread creates and opens files as the owner and group of a folder, until
 * as_ourselves(). If that is not possible, nothing changes.
 */
void as_owner_of(int folder);
void as_ourselves(void);

#endif

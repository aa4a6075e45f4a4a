/*
 * The file into which the tasks of a job count on one node (layout: monitor/traffic.h).
 *
 * Root makes it in a folder where only root can make, rename or remove files; it is the user's to
 * write. So its name can be believed, and nothing else about it.
 */
#ifndef TIRESIAS_TRAFFIC_FILE_H
#define TIRESIAS_TRAFFIC_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { NODE_SIZE = 65, TRAFFIC_NAME_SIZE = 128 };

/* One run of a job, from a start to its end or requeue, on one node. */
struct incarnation {
	uint32_t job;
	uint32_t restarts;
	uid_t user;
	gid_t group;
	char node[NODE_SIZE];
};

/*
 * Slurm's name of this node, which a host with several slurmd has several of. False where it could
 * not be part of a file's name. It is in Slurm's own environment; a task's may have come along from
 * another node.
 */
bool node_name(char node[NODE_SIZE]);

/* JOB.RESTARTS.NODE.traffic */
void traffic_name(const struct incarnation *incarnation, char name[TRAFFIC_NAME_SIZE]);

/*
 * Makes the file, all zero, with its space reserved: a disk that fills up later cannot kill a task
 * that writes through its mapping. False if there is none now; a file that a step before has made
 * is left as it is.
 */
bool traffic_create(const char *run, const struct incarnation *incarnation);

/* Cuts users' files in the folder to the size that they were made with. */
void traffic_make_room(const char *run);

/*
 * Whether there is a file of the job on this node; if so, takes over its number of restarts. What
 * an incarnation before has left, because the node died under it, has a lower one.
 */
bool traffic_find(const char *run, struct incarnation *incarnation);

/* Takes away what a job has left on a node, whatever its restarts, and copies what is sound. */
void traffic_collect(const char *run, const char *collect, const struct incarnation *ended);

#endif

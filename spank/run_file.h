/*
 * The files into which the tasks of a job write on one node: what they send (layout:
 * monitor/traffic.h), how far they are (slurm_tiresias/job/record.py), and what they print of it.
 *
 * Root makes them in a folder where only root can make, rename or remove files; they are the user's
 * to write. So their names can be believed, and nothing else about them.
 */
#ifndef TIRESIAS_RUN_FILE_H
#define TIRESIAS_RUN_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { NODE_SIZE = 65, RUN_FILE_NAME_SIZE = 128 };

/* Together, a set of them. */
enum run_file_kind {
	RUN_FILE_TRAFFIC = 1,
	RUN_FILE_PROGRESS = 2,
	RUN_FILE_OUTPUT = 4,
	RUN_FILE_ALL = 7,
};

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

/* JOB.RESTARTS.NODE.KIND */
void run_file_name(const struct incarnation *incarnation, enum run_file_kind kind,
		   char name[RUN_FILE_NAME_SIZE]);

/*
 * Makes the files of these kinds, all zero, with their space reserved: a disk that fills up later
 * cannot kill a task that writes through its mapping. False if one is not there now; a file that a
 * step before has made is left as it is.
 */
bool run_files_create(const char *run, const struct incarnation *incarnation, unsigned kinds);

/* Cuts users' files in the folder to the size that they were made with. */
void run_files_make_room(const char *run);

/*
 * Whether there is a file of the job on this node; if so, takes over its number of restarts. What
 * an incarnation before has left, because the node died under it, has a lower one.
 */
bool run_file_find(const char *run, struct incarnation *incarnation, enum run_file_kind kind);

/*
 * Takes away what a job has left of these kinds on a node, whatever its restarts, and copies what is
 * sound; "" for nowhere.
 */
void run_files_collect(const char *run, const char *collect, const struct incarnation *ended,
		       unsigned kinds);

#endif

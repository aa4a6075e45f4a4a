/*
 * The files that the tasks of a job write on one node: what they send (layout: monitor/traffic.h),
 * their progress (slurm_tiresias/job/record.py), and the progress that they print.
 *
 * Root creates them in a folder where only root can create, rename or remove files; the user can
 * write their content. So their names can be trusted, and nothing else about them.
 */
#ifndef TIRESIAS_RUN_FILE_H
#define TIRESIAS_RUN_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { NODE_SIZE = 65, RUN_FILE_NAME_SIZE = 128 };

/* A set of kinds is the sum of these. */
enum run_file_kind {
	RUN_FILE_TRAFFIC = 1,
	RUN_FILE_PROGRESS = 2,
	RUN_FILE_OUTPUT = 4,
	RUN_FILE_ALL = 7,
};

/* One run of a job, from a start to its end or requeue, on one node. */
struct job_run {
	uint32_t job;
	uint32_t restarts;
	uid_t user;
	gid_t group;
	char node[NODE_SIZE];
};

/*
 * Slurm's name of this node; a host with several slurmd has several. False if it cannot be part of
 * a file name. It is in Slurm's own environment; that of a task may come from another node.
 */
bool node_name(char node[NODE_SIZE]);

/* JOB.RESTARTS.NODE.KIND */
void run_file_name(const struct job_run *job_run, enum run_file_kind kind,
		   char name[RUN_FILE_NAME_SIZE]);

/*
 * Creates the files of these kinds, all zero, with their blocks reserved: otherwise a disk that
 * fills up later could kill a task that writes through its mapping. False if one does not exist
 * now; a file made by an earlier step is left as it is. If the folder is full, it first truncates
 * users' files in it to their original size.
 */
bool run_files_create(const char *run, const struct job_run *job_run, unsigned kinds);

/*
 * Whether the job has a file on this node; if so, takes over its number of restarts. Files of an
 * earlier run, left because the node died, have a lower number.
 */
bool run_file_find(const char *run, struct job_run *job_run, enum run_file_kind kind);

/*
 * Removes all files of a job of these kinds on a node, whatever their restarts, and copies the
 * valid ones; "" copies nothing.
 */
void run_files_collect(const char *run, const char *collect, const struct job_run *ended,
		       unsigned kinds);

#endif

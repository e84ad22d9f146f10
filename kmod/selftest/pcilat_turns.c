// SPDX-License-Identifier: GPL-2.0-only
/*
 * One run of pcilat whose CPUs take turns, until a signal ends it:
 *
 *   pcilat_turns ADDRESS READS
 *				every CPU that is online reads the first register READS
 *				times in each of its turns
 *
 * The test looks at the module's workers meanwhile. A run that fails otherwise ends with
 * a message and status 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/pcilat.h>

#define CPUS_MAX	64

int main(int argc, char **argv)
{
	struct pcilat_run run = {
		.size = sizeof(run),
		.kind = PCILAT_KIND_READ,
		.order = PCILAT_ORDER_INTERLEAVED,
		.rounds = UINT32_MAX,
		.batch = 1,
		.width = 4,
	};
	__u32 cpus[CPUS_MAX];
	char path[64];
	long n, i;
	int fd;

	if (argc != 3) {
		fprintf(stderr, "pcilat_turns ADDRESS READS\n");
		return 1;
	}
	n = sysconf(_SC_NPROCESSORS_ONLN);
	for (i = 0; i < n && i < CPUS_MAX; i++)
		cpus[i] = i;
	run.cpus = (uintptr_t)cpus;
	run.ncpus = i;
	run.count = (__u64)run.rounds * strtoul(argv[2], NULL, 0);
	snprintf(path, sizeof(path), "/dev/pcilat/%s", argv[1]);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, PCILAT_IOC_RUN, &run)) {
		fprintf(stderr, "pcilat_turns: %s: %s\n", path, strerror(errno));
		return 1;
	}
	return 0;
}

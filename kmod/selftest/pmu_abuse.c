// SPDX-License-Identifier: GPL-2.0-only
/*
 * Asks the counters' PMUs for events that they do not have, and makes all calls on
 * their events that perf's system calls allow: pmu_abuse SEED TIMES.
 *
 * Each answer must be success or one of a few errnos. A request that docs/pmu.md
 * refuses must not succeed. Otherwise it ends with a message and status 1.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/perf_event.h>

#define PMUS		"/sys/bus/event_source/devices"
#define FDS_MAX		64
#define PMUS_MAX	128

static struct {
	unsigned int type;
	bool is_drw;
} pmus[PMUS_MAX];
static unsigned int npmus;
static int fds[FDS_MAX];
static __u64 state;

static __u64 draw(__u64 below)
{
	__u64 z = state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	z ^= z >> 31;
	return below ? z % below : z;
}

static bool maybe(void)
{
	return !draw(6);
}

static void find_pmus(void)
{
	DIR *folder = opendir(PMUS);
	struct dirent *entry;
	char path[512];
	FILE *from;

	while (folder && (entry = readdir(folder)) && npmus < PMUS_MAX) {
		bool is_drw = !strncmp(entry->d_name, "ali_drw_", 8);

		if (!is_drw && strncmp(entry->d_name, "dwc_rootport_", 13))
			continue;
		snprintf(path, sizeof(path), PMUS "/%s/type", entry->d_name);
		from = fopen(path, "r");
		if (from && fscanf(from, "%u", &pmus[npmus].type) == 1)
			pmus[npmus++].is_drw = is_drw;
		if (from)
			fclose(from);
	}
	if (folder)
		closedir(folder);
}

static __u64 draw_config(bool is_drw)
{
	switch (draw(4)) {
	case 0:
		return draw(0);
	case 1:
		return 1ULL << draw(64);
	case 2:
		return draw(0x100);
	default:
		return is_drw ? draw(0x40) : 1 << 16 | draw(8) << 8 | draw(0x20);
	}
}

/* What both PMUs refuse, whatever else stands there. */
static bool is_refused(const struct perf_event_attr *attr, bool is_drw, pid_t pid, int cpu,
		       unsigned long flags)
{
	if (attr->sample_period || attr->config1 || attr->config2 || attr->exclude_user ||
	    attr->exclude_kernel)
		return true;
	if (pid != -1 || cpu < 0 || flags & PERF_FLAG_PID_CGROUP)
		return true;
	return is_drw ? attr->config > 0x3d && attr->config != 0x80 : attr->config >> 28;
}

static bool is_expected(int error)
{
	static const int expected[] = {
		EINVAL, ENODEV, ENOENT, EOPNOTSUPP, EBADF, ESRCH, E2BIG, EBUSY, EACCES, ENOSPC,
		ENOTTY,
	};
	unsigned int i;

	for (i = 0; i < sizeof(expected) / sizeof(*expected); i++) {
		if (expected[i] == error)
			return true;
	}
	return false;
}

static void open_one(int *fd)
{
	static const int cpus[] = { -1, 0, 1, 2, 3, 4, 4096, -2147483647 };
	unsigned int n = draw(npmus);
	struct {
		struct perf_event_attr attr;
		char tail[64];
	} asked = { .attr.size = sizeof(asked.attr) };
	struct perf_event_attr *attr = &asked.attr;
	unsigned long flags = maybe() ? draw(16) : 0;
	pid_t pid = maybe() ? (pid_t)draw(3) * 100000 : -1;
	int cpu = maybe() ? cpus[draw(8)] : 0, leader = maybe() ? fds[draw(FDS_MAX)] : -1;

	attr->type = pmus[n].type;
	attr->config = draw_config(pmus[n].is_drw);
	if (maybe())
		attr->config1 = draw(0);
	if (maybe())
		attr->config2 = draw(0);
	if (maybe())
		attr->sample_period = draw(2) ? draw(0) >> 1 : 1;
	attr->freq = attr->sample_period && maybe();
	if (maybe())
		attr->sample_type = draw(1 << 20);
	if (maybe())
		attr->read_format = draw(32);
	attr->disabled = maybe();
	attr->inherit = maybe();
	attr->pinned = maybe();
	attr->exclusive = maybe();
	attr->exclude_user = maybe();
	attr->exclude_kernel = maybe();
	attr->enable_on_exec = maybe();
	attr->mmap = maybe();
	attr->task = maybe();
	if (maybe()) {
		attr->size = draw(sizeof(asked) + 1);
		asked.tail[draw(sizeof(asked.tail))] = draw(2);
	}
	*fd = syscall(SYS_perf_event_open, attr, pid, cpu, leader, flags);
	if (*fd >= 0 && attr->size >= PERF_ATTR_SIZE_VER1 &&
	    is_refused(attr, pmus[n].is_drw, pid, cpu, flags)) {
		fprintf(stderr, "pmu_abuse: type %u took config %#llx, config1 %#llx, period %llu,",
			attr->type, attr->config, attr->config1, attr->sample_period);
		fprintf(stderr, " pid %d, cpu %d\n", pid, cpu);
		exit(1);
	}
	if (*fd < 0 && !is_expected(errno)) {
		fprintf(stderr, "pmu_abuse: config %#llx, pid %d, cpu %d: %s\n", attr->config, pid,
			cpu, strerrorname_np(errno));
		exit(1);
	}
}

static void use_one(int *fd)
{
	static const unsigned long requests[] = {
		PERF_EVENT_IOC_ENABLE, PERF_EVENT_IOC_DISABLE, PERF_EVENT_IOC_REFRESH,
		PERF_EVENT_IOC_RESET, PERF_EVENT_IOC_SET_OUTPUT, PERF_EVENT_IOC_PAUSE_OUTPUT,
	};
	__u64 words[64];
	__u64 period = draw(0) >> 1;
	void *mapped;

	switch (draw(6)) {
	case 0:
		close(*fd);
		*fd = -1;
		break;
	case 1:
		ioctl(*fd, PERF_EVENT_IOC_PERIOD, &period);
		break;
	case 2:
		ioctl(*fd, PERF_EVENT_IOC_SET_FILTER, "start 0x1000/4096");
		break;
	case 3:
		mapped = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
		if (mapped != MAP_FAILED)
			munmap(mapped, 8192);
		break;
	case 4:
		if (read(*fd, words, draw(sizeof(words))) < 0 && errno != ENOSPC &&
		    errno != EINVAL) {
			fprintf(stderr, "pmu_abuse: read: %s\n", strerrorname_np(errno));
			exit(1);
		}
		break;
	default:
		ioctl(*fd, requests[draw(sizeof(requests) / sizeof(*requests))], draw(4));
	}
}

int main(int argc, char **argv)
{
	unsigned long long times = argc > 2 ? strtoull(argv[2], NULL, 0) : 0;
	unsigned long long i, opened = 0, refused = 0;
	unsigned int n;

	if (!times) {
		fprintf(stderr, "pmu_abuse SEED TIMES\n");
		return 2;
	}
	state = strtoull(argv[1], NULL, 0);
	find_pmus();
	if (!npmus) {
		fprintf(stderr, "pmu_abuse: no PMU of counters\n");
		return 1;
	}
	for (n = 0; n < FDS_MAX; n++)
		fds[n] = -1;
	for (i = 0; i < times; i++) {
		int *fd = &fds[draw(FDS_MAX)];

		if (*fd >= 0) {
			use_one(fd);
			continue;
		}
		open_one(fd);
		*(*fd >= 0 ? &opened : &refused) += 1;
	}
	printf("{\"opened\":%llu,\"refused\":%llu}\n", opened, refused);
	return 0;
}

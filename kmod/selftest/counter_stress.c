// SPDX-License-Identifier: GPL-2.0-only
/*
 * Disturbs programs that count, in several ways that depend on a seed, and counts
 * during that. It prints one line of JSON for each session, at its begin and its end.
 *
 *   hold PMU:CONFIG...		counts, always on hardware, until a signal comes
 *   come-and-go SEED SECONDS SPARED...
 *				opens, enables, disables, reads, resets and closes
 *				events of all counters' PMUs except those with the
 *				numbers SPARED
 *   knock SEED SECONDS PMU:CONFIG...
 *				opens and closes events by the number that each PMU
 *				had at the beginning, also while the PMU is absent:
 *				a PMU that comes back gets this number again
 *   disturb SEED SECONDS cpu:N|drw:DEVICE|port:ADDRESS...
 *				takes CPUs offline, devices from their driver and
 *				ports from the machine, and brings them back
 *
 * A fault ends with a message and status 1.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <linux/perf_event.h>

#define PMUS		"/sys/bus/event_source/devices"
#define EVENTS_MAX	48
#define PMUS_MAX	128

struct event {
	int fd;
	char pmu[64];
	__u64 config;
	__u64 last;
};

struct reading {
	__u64 value, enabled, running;
};

static __u64 state;

static void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "counter_stress: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	va_end(args);
	exit(1);
}

/* SplitMix64: the same steps for the same seed. */
static __u64 draw(__u64 below)
{
	__u64 z = state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return (z ^ z >> 31) % below;
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static bool read_number(const char *pmu, const char *file, unsigned int *number)
{
	char path[256];
	bool is_read;
	FILE *from;

	snprintf(path, sizeof(path), PMUS "/%s/%s", pmu, file);
	from = fopen(path, "r");
	if (!from)
		return false;
	is_read = fscanf(from, "%u", number) == 1;
	fclose(from);
	return is_read;
}

/* The errno is that of the system call; ENODEV where the PMU is gone before it. */
static int open_event(const char *pmu, __u64 config, bool is_pinned, int leader)
{
	struct perf_event_attr attr = { .size = sizeof(attr), .config = config };
	unsigned int type, cpu;

	if (!read_number(pmu, "type", &type) || !read_number(pmu, "cpumask", &cpu)) {
		errno = ENODEV;
		return -1;
	}
	attr.type = type;
	attr.pinned = is_pinned;
	attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
	return syscall(SYS_perf_event_open, &attr, -1, cpu, leader, PERF_FLAG_FD_CLOEXEC);
}

static void show(const char *what, const struct event *event, const struct reading *reading)
{
	printf("{\"%s\":\"%s\",\"config\":%llu,\"count\":%llu,", what, event->pmu,
	       (unsigned long long)event->config, (unsigned long long)reading->value);
	printf("\"enabled_ns\":%llu,\"running_ns\":%llu}\n",
	       (unsigned long long)reading->enabled, (unsigned long long)reading->running);
	fflush(stdout);
}

static int hold(int count, char **words)
{
	struct event events[EVENTS_MAX] = { 0 };
	struct reading reading = { 0 };
	sigset_t signals;
	int i, signal;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	for (i = 0; i < count && i < EVENTS_MAX; i++) {
		struct event *event = &events[i];
		char *colon = strchr(words[i], ':');

		if (!colon)
			fail("%s is no PMU:CONFIG", words[i]);
		snprintf(event->pmu, sizeof(event->pmu), "%.*s", (int)(colon - words[i]), words[i]);
		event->config = strtoull(colon + 1, NULL, 0);
		event->fd = open_event(event->pmu, event->config, true, -1);
		if (event->fd < 0)
			fail("cannot open %s: %s", words[i], strerror(errno));
		show("open", event, &reading);
	}
	printf("{\"ready\":%d}\n", count);
	fflush(stdout);
	sigwait(&signals, &signal);
	for (i = 0; i < count && i < EVENTS_MAX; i++) {
		/* A pinned event that lost its counter is read as an end of file. */
		if (read(events[i].fd, &reading, sizeof(reading)) != sizeof(reading))
			fail("%s does not count any more", words[i]);
		show("close", &events[i], &reading);
		close(events[i].fd);
	}
	return 0;
}

static bool is_ours(const char *name)
{
	return !strncmp(name, "ali_drw_", 8) || !strncmp(name, "dwc_rootport_", 13);
}

static unsigned int list_pmus(char (*names)[64])
{
	DIR *folder = opendir(PMUS);
	struct dirent *entry;
	unsigned int n = 0;

	if (!folder)
		fail("cannot list " PMUS);
	while ((entry = readdir(folder)) && n < PMUS_MAX) {
		if (is_ours(entry->d_name))
			snprintf(names[n++], 64, "%.63s", entry->d_name);
	}
	closedir(folder);
	return n;
}

static __u64 draw_config(const char *pmu)
{
	static const __u64 reports[] = { 0x00, 0x01, 0x04, 0x07, 0x20, 0x21 };
	static const __u64 counters[] = { 0x200, 0x201, 0x303, 0x501, 0x600, 0x700, 0x701, 0x702 };

	if (!strncmp(pmu, "ali_drw_", 8))
		return draw(20) ? draw(0x3e) : 0x80;
	if (!draw(4))
		return reports[draw(sizeof(reports) / sizeof(*reports))];
	return 1 << 16 | counters[draw(sizeof(counters) / sizeof(*counters))];
}

static bool is_spared(__u64 config, int count, char **words)
{
	int i;

	for (i = 0; i < count; i++) {
		if (strtoull(words[i], NULL, 0) == config)
			return true;
	}
	return false;
}

static void open_one(struct event *event, const struct event *leader, int nspared, char **spared)
{
	char names[PMUS_MAX][64];
	const char *pmu;
	unsigned int n;

	event->fd = -1;
	if (leader) {
		pmu = leader->pmu;
	} else {
		n = list_pmus(names);
		if (!n)
			return;
		pmu = names[draw(n)];
	}
	snprintf(event->pmu, sizeof(event->pmu), "%s", pmu);
	event->config = draw_config(event->pmu);
	event->last = 0;
	if (is_spared(event->config, nspared, spared))
		return;
	event->fd = open_event(event->pmu, event->config, false, leader ? leader->fd : -1);
	/* Not there (any more), no event of this number, or not with this group. */
	if (event->fd < 0 && errno != ENODEV && errno != EINVAL && errno != ENOENT &&
	    errno != EOPNOTSUPP && errno != EBUSY)
		fail("%s, %#llx: %s", event->pmu, (unsigned long long)event->config,
		     strerrorname_np(errno));
}

static void read_one(struct event *event)
{
	struct reading reading;

	if (read(event->fd, &reading, sizeof(reading)) != sizeof(reading))
		return;
	if (reading.running > reading.enabled)
		fail("%s: ran for %llu of %llu ns", event->pmu, (unsigned long long)reading.running,
		     (unsigned long long)reading.enabled);
	/* What one_cycle has is no count. */
	if (reading.value < event->last && event->config)
		fail("%s, %#llx: %llu after %llu", event->pmu, (unsigned long long)event->config,
		     (unsigned long long)reading.value, (unsigned long long)event->last);
	event->last = reading.value;
}

static int come_and_go(double seconds, int nspared, char **spared)
{
	struct event events[EVENTS_MAX];
	double end = now() + seconds;
	unsigned long long opened = 0, steps = 0;
	unsigned int i;

	for (i = 0; i < EVENTS_MAX; i++)
		events[i].fd = -1;
	for (; now() < end; steps++) {
		struct event *event = &events[draw(EVENTS_MAX)];
		const struct event *leader = &events[draw(EVENTS_MAX)];

		if (event->fd < 0) {
			if (draw(3) || leader->fd < 0)
				leader = NULL;
			open_one(event, leader, nspared, spared);
			opened += event->fd >= 0;
			continue;
		}
		switch (draw(6)) {
		case 0:
			ioctl(event->fd, PERF_EVENT_IOC_DISABLE, draw(2) ? PERF_IOC_FLAG_GROUP : 0);
			break;
		case 1:
			ioctl(event->fd, PERF_EVENT_IOC_ENABLE, draw(2) ? PERF_IOC_FLAG_GROUP : 0);
			break;
		case 2:
			ioctl(event->fd, PERF_EVENT_IOC_RESET, 0);
			event->last = 0;
			break;
		case 3:
			close(event->fd);
			event->fd = -1;
			break;
		default:
			read_one(event);
		}
	}
	printf("{\"steps\":%llu,\"opened\":%llu}\n", steps, opened);
	return 0;
}

/* 0 where the event was opened, or the errno. */
static int knock_once(unsigned int type, __u64 config)
{
	struct perf_event_attr attr = { .size = sizeof(attr), .type = type, .config = config };
	int fd = syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0)
		return errno;
	close(fd);
	return 0;
}

static int knock(double seconds, int count, char **words)
{
	unsigned int types[EVENTS_MAX];
	unsigned long long opened = 0, refused = 0;
	double end = now() + seconds;
	int i, error;

	for (i = 0; i < count && i < EVENTS_MAX; i++) {
		char *colon = strchr(words[i], ':');

		if (!colon)
			fail("%s is no PMU:CONFIG", words[i]);
		*colon = '\0';
		/* Others take the PMU away and bring it back already. */
		while (!read_number(words[i], "type", &types[i])) {
			if (now() >= end)
				fail("%s has no number", words[i]);
			usleep(1000);
		}
		words[i] = colon + 1;
	}
	while (now() < end) {
		i = draw(count);
		error = knock_once(types[i], strtoull(words[i], NULL, 0));
		/* Nobody has the number, or it is not there yet or any more. */
		if (error && error != ENOENT && error != ENODEV)
			fail("type %u: %s", types[i], strerrorname_np(error));
		opened += !error;
		refused += !!error;
	}
	printf("{\"opened\":%llu,\"refused\":%llu}\n", opened, refused);
	return 0;
}

static bool write_to(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool is_written;

	if (fd < 0)
		return false;
	is_written = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	close(fd);
	return is_written;
}

/* Writing until the kernel has time: it refuses CPU hotplug while it probes PCI devices. */
static bool write_when_free(const char *path, const char *text)
{
	int tries;

	for (tries = 0; tries < 1000; tries++) {
		if (write_to(path, text))
			return true;
		if (errno != EBUSY)
			return false;
		usleep(10000);
	}
	return false;
}

static void take(const char *what, bool is_back)
{
	static const char driver[] = "/sys/bus/platform/drivers/drw_pmu";
	const char *name = strchr(what, ':') + 1;
	char path[256];
	bool is_done;

	if (!strncmp(what, "cpu:", 4)) {
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%s/online", name);
		is_done = write_when_free(path, is_back ? "1" : "0");
	} else if (!strncmp(what, "drw:", 4)) {
		snprintf(path, sizeof(path), "%s/%s", driver, is_back ? "bind" : "unbind");
		is_done = write_to(path, name);
	} else if (is_back) {
		is_done = write_to("/sys/bus/pci/rescan", "1");
	} else {
		snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/remove", name);
		is_done = write_to(path, "1");
	}
	if (!is_done)
		fail("cannot %s %s: %s", is_back ? "bring back" : "take", what, strerror(errno));
}

static int disturb(double seconds, int count, char **words)
{
	double end = now() + seconds;
	unsigned long long taken = 0;
	int i;

	for (i = 0; i < count; i++) {
		if (!strchr(words[i], ':'))
			fail("%s is nothing that can be taken", words[i]);
	}
	for (; now() < end; taken++) {
		const char *what = words[draw(count)];

		take(what, false);
		usleep(draw(50) * 1000);
		take(what, true);
		usleep(draw(50) * 1000);
	}
	printf("{\"taken\":%llu}\n", taken);
	return 0;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 2 && !strcmp(argv[1], "hold"))
		return hold(argc - 2, argv + 2);
	if (argc < 4)
		fail("hold PMU:CONFIG..., come-and-go, knock or disturb SEED SECONDS ...");
	state = strtoull(argv[2], NULL, 0);
	if (!strcmp(argv[1], "come-and-go"))
		return come_and_go(strtod(argv[3], NULL), argc - 4, argv + 4);
	if (argc > 4 && !strcmp(argv[1], "knock"))
		return knock(strtod(argv[3], NULL), argc - 4, argv + 4);
	if (argc > 4 && !strcmp(argv[1], "disturb"))
		return disturb(strtod(argv[3], NULL), argc - 4, argv + 4);
	fail("what is %s?", argv[1]);
}

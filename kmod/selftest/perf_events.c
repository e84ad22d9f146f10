// SPDX-License-Identifier: GPL-2.0-only
/*
 * Opens and reads system-wide perf events one step at a time, as a test on
 * virtual hardware tells it: one command per line of standard input, one line
 * of answer each.
 *
 *   open PMU CONFIG [LEADER]	a config1, sample period or task as PMU:config1=1,period=1,task
 *				-> "N", the event's number, or the errno's name
 *   read N			-> "VALUE ENABLED RUNNING"
 *   enable N, disable N, reset N, close N
 *				-> "ok", or the errno's name
 *
 * Events are opened enabled. LEADER is the number of an event, whose group the
 * new one joins.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/perf_event.h>

#define EVENTS_MAX	512

static int events[EVENTS_MAX];
static unsigned int nevents;

static bool read_number(const char *folder, const char *pmu, const char *file, unsigned int *number)
{
	char path[256];
	bool is_read;
	FILE *from;

	snprintf(path, sizeof(path), "%s/%s/%s", folder, pmu, file);
	from = fopen(path, "r");
	if (!from)
		return false;
	is_read = fscanf(from, "%u", number) == 1;
	fclose(from);
	return is_read;
}

static void answer(int ret)
{
	if (ret < 0)
		printf("%s\n", strerrorname_np(errno));
	else
		printf("ok\n");
}

/* The words after PMU:, each NAME=NUMBER or a name. */
static bool more(char *words, struct perf_event_attr *attr, pid_t *task)
{
	char *word;

	for (word = strtok(words, ","); word; word = strtok(NULL, ",")) {
		char *value = strchr(word, '=');
		unsigned long long number = value ? strtoull(value + 1, NULL, 0) : 0;

		if (!strncmp(word, "config1=", 8))
			attr->config1 = number;
		else if (!strncmp(word, "config2=", 8))
			attr->config2 = number;
		else if (!strncmp(word, "period=", 7))
			attr->sample_period = number;
		else if (!strcmp(word, "exclude_user"))
			attr->exclude_user = 1;
		else if (!strcmp(word, "task"))
			*task = 0;
		else
			return false;
	}
	return true;
}

static void open_event(char *pmu, const char *config, int leader)
{
	static const char folder[] = "/sys/bus/event_source/devices";
	struct perf_event_attr attr = { .size = sizeof(attr) };
	unsigned int type, cpu = 0;
	char *words = strchr(pmu, ':');
	pid_t task = -1;
	int fd;

	if (words)
		*words++ = 0;
	if (!strcmp(pmu, "software")) {
		type = PERF_TYPE_SOFTWARE;
	} else if (!read_number(folder, pmu, "type", &type)) {
		printf("no PMU %s\n", pmu);
		return;
	}
	/* Empty while the device is gone: then the driver refuses any CPU. */
	read_number(folder, pmu, "cpumask", &cpu);
	attr.type = type;
	attr.config = strtoull(config, NULL, 0);
	attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
	if (words && !more(words, &attr, &task)) {
		printf("what is %s?\n", words);
		return;
	}
	fd = syscall(SYS_perf_event_open, &attr, task, task == -1 ? (int)cpu : -1, leader, 0);
	if (fd < 0) {
		answer(fd);
		return;
	}
	events[nevents] = fd;
	printf("%u\n", nevents++);
}

static void read_event(int fd)
{
	__u64 values[3];

	if (read(fd, values, sizeof(values)) != sizeof(values))
		answer(-1);
	else
		printf("%llu %llu %llu\n", (unsigned long long)values[0],
		       (unsigned long long)values[1], (unsigned long long)values[2]);
}

static void command(char *line)
{
	char verb[16], first[128], second[32];
	int words, third = -1;
	unsigned int n;

	words = sscanf(line, "%15s %127s %31s %d", verb, first, second, &third);
	if (words >= 3 && !strcmp(verb, "open") && nevents < EVENTS_MAX && third < (int)nevents) {
		open_event(first, second, third < 0 ? -1 : events[third]);
		return;
	}
	n = words == 2 ? strtoul(first, NULL, 0) : EVENTS_MAX;
	if (n >= nevents)
		printf("what is %s\n", line);
	else if (!strcmp(verb, "read"))
		read_event(events[n]);
	else if (!strcmp(verb, "enable"))
		answer(ioctl(events[n], PERF_EVENT_IOC_ENABLE, 0));
	else if (!strcmp(verb, "disable"))
		answer(ioctl(events[n], PERF_EVENT_IOC_DISABLE, 0));
	else if (!strcmp(verb, "reset"))
		answer(ioctl(events[n], PERF_EVENT_IOC_RESET, 0));
	else if (!strcmp(verb, "close"))
		answer(close(events[n]));
	else
		printf("what is %s\n", line);
}

int main(void)
{
	char line[256];

	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		command(line);
	}
	return 0;
}

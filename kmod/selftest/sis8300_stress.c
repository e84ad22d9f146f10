// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes random calls in several processes for some time: open, read, arm, ring, map,
 * signal and kill. Every call may fail, but none may hang. During this the caller may
 * unbind, bind or unplug the board. Exit status 0 if all processes could be ended; the
 * last line counts the calls.
 *
 *   sis8300_stress SECONDS SEED /dev/sis8300-6...
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/sis8300.h>

#define WORKERS		6
#define KILL_WAIT_S	30	/* how long a killed process may take to end */

/* Shared by all processes: what was done. */
struct done {
	unsigned long opens, reads, read_bytes, writes, arms, ends, rings, buffers, maps, kills,
		      touched, errors[200];
};

static struct done *done;
static unsigned int random_state;
static char *buffer;
static const size_t buffer_bytes = 8 << 20;

static unsigned int rnd(unsigned int below)
{
	random_state = random_state * 1103515245 + 12345;
	return (random_state >> 8) % below;
}

static void add(unsigned long *counter, unsigned long value)
{
	__atomic_fetch_add(counter, value, __ATOMIC_RELAXED);
}

static bool count_error(long ret)
{
	if (ret >= 0)
		return false;
	if (errno < 200)
		add(&done->errors[errno], 1);
	return true;
}

static void read_some(int fd)
{
	size_t bytes = (rnd(4) ? rnd(65536) : rnd(buffer_bytes)) & ~15u;
	ssize_t got = pread(fd, buffer, bytes, (__u64)rnd(0x7ffffff) << 4);

	if (!count_error(got)) {
		add(&done->reads, 1);
		add(&done->read_bytes, got);
	}
}

static void write_some(int fd)
{
	if (!count_error(pwrite(fd, buffer, 16 * (1 + rnd(32)), 0x70000000 + 16 * rnd(65536))))
		add(&done->writes, 1);
}

static void set_up(int fd)
{
	struct sis8300_setup setup = {
		.size = sizeof(setup),
		.channels = 1 + rnd(0x3ff),
		.samples = 1 + rnd(20000),
		.clock = SIS8300_CLOCK_INTERNAL,
		.divider = 2 + rnd(4),
		.trigger = rnd(2) ? SIS8300_TRIGGER_NOW : SIS8300_TRIGGER_MLVDS,
	};

	setup.trigger_lines = setup.trigger == SIS8300_TRIGGER_MLVDS;
	count_error(ioctl(fd, SIS8300_IOC_SETUP, &setup));
}

static void acquire(int fd)
{
	struct sis8300_arm arm = { .size = sizeof(arm) };
	struct sis8300_end end = {
		.size = sizeof(end), .flags = rnd(2), .timeout_ms = 1 + rnd(300),
	};

	end.poll_us = end.flags ? rnd(2000) : 0;
	if (count_error(ioctl(fd, SIS8300_IOC_ARM, &arm)))
		return;
	add(&done->arms, 1);
	if (!rnd(8))
		return;
	if (!count_error(ioctl(fd, SIS8300_IOC_WAIT_END, &end)))
		add(&done->ends, 1);
	else
		count_error(ioctl(fd, SIS8300_IOC_DISARM));
}

static void use_ring(int fd, unsigned int buffers, unsigned int stride, const unsigned char *map)
{
	struct sis8300_ring_start start = {
		.size = sizeof(start),
		.flags = !rnd(3),
		.bytes = 64 * (1 + rnd(1 << 15)),
		.passes = rnd(4),
		.timeout_ms = 1 + rnd(300),
	};
	unsigned int turns = rnd(40);
	__u64 release = UINT64_MAX;

	if (count_error(ioctl(fd, SIS8300_IOC_RING_START, &start)))
		return;
	add(&done->rings, 1);
	while (turns--) {
		struct sis8300_ring_next next = {
			.size = sizeof(next), .timeout_ms = rnd(200), .release = release,
		};

		release = UINT64_MAX;
		if (count_error(ioctl(fd, SIS8300_IOC_RING_NEXT, &next)))
			continue;
		release = next.number;
		if (map)
			add(&done->touched, map[(size_t)stride * (next.number % buffers)]);
		add(&done->buffers, 1);
	}
	if (rnd(3))
		count_error(ioctl(fd, SIS8300_IOC_RING_STOP));
}

static void ring(int fd, bool *is_closed)
{
	struct sis8300_ring_setup setup = {
		.size = sizeof(setup), .buffers = 2 + rnd(6), .buffer_bytes = 64 * (1 + rnd(4096)),
	};
	unsigned char *map = NULL;
	size_t bytes;

	if (count_error(ioctl(fd, SIS8300_IOC_RING_SETUP, &setup)))
		return;
	bytes = (size_t)setup.stride * setup.buffers;
	if (rnd(4)) {
		map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
		if (map == MAP_FAILED)
			map = NULL;
		else
			add(&done->maps, 1);
	}
	use_ring(fd, setup.buffers, setup.stride, map);
	if (!map)
		return;
	/* Now and then the mapping outlives the descriptor, or the whole process ends with it. */
	if (!rnd(4)) {
		close(fd);
		*is_closed = true;
		add(&done->touched, map[bytes - 1]);
	}
	if (rnd(8))
		munmap(map, bytes);
}

static void on_alarm(int signal)
{
	(void)signal;
}

/* Until it is killed. */
static void work(char **paths, int count)
{
	struct sigaction action = { .sa_handler = on_alarm };
	struct itimerval every = { { 0, 70000 }, { 0, 70000 } };

	buffer = malloc(buffer_bytes);
	sigaction(SIGALRM, &action, NULL);
	if (rnd(2))
		setitimer(ITIMER_REAL, &every, NULL);
	for (;;) {
		int fd = open(paths[rnd(count)], O_RDWR | O_CLOEXEC), calls = rnd(20);
		bool is_closed = false;

		if (count_error(fd)) {
			usleep(20000);
			continue;
		}
		add(&done->opens, 1);
		while (calls-- && !is_closed) {
			struct pollfd poller = { .fd = fd, .events = POLLIN };

			switch (rnd(8)) {
			case 0 ... 2:
				read_some(fd);
				break;
			case 3:
				write_some(fd);
				break;
			case 4:
				set_up(fd);
				break;
			case 5:
				acquire(fd);
				break;
			case 6:
				ring(fd, &is_closed);
				break;
			default:
				poll(&poller, 1, rnd(50));
			}
		}
		if (!is_closed)
			close(fd);
	}
}

static pid_t spawn(char **paths, int count)
{
	unsigned int seed = rnd(1 << 24);
	pid_t pid = fork();

	if (!pid) {
		random_state = seed;
		work(paths, count);
	}
	return pid;
}

/* Kills a process, and looks that it goes. */
static bool kill_one(pid_t pid)
{
	int i;

	kill(pid, SIGKILL);
	add(&done->kills, 1);
	for (i = 0; i < KILL_WAIT_S * 100; i++) {
		if (waitpid(pid, NULL, WNOHANG) == pid)
			return true;
		usleep(10000);
	}
	printf("process %d does not end\n", pid);
	return false;
}

int main(int argc, char **argv)
{
	pid_t workers[WORKERS];
	bool ok = true;
	time_t until;
	int i;

	if (argc < 4) {
		fprintf(stderr, "usage: sis8300_stress SECONDS SEED DEVICE...\n");
		return 2;
	}
	done = mmap(NULL, sizeof(*done), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	until = time(NULL) + strtoul(argv[1], NULL, 0);
	random_state = strtoul(argv[2], NULL, 0);
	for (i = 0; i < WORKERS; i++)
		workers[i] = spawn(argv + 3, argc - 3);
	while (ok && time(NULL) < until) {
		usleep(1000 * rnd(500));
		i = rnd(WORKERS);
		ok = kill_one(workers[i]);
		if (ok)
			workers[i] = spawn(argv + 3, argc - 3);
	}
	for (i = 0; i < WORKERS; i++)
		ok &= kill_one(workers[i]);
	printf("opens %lu, reads %lu (%lu bytes), writes %lu, arms %lu, ends %lu, ", done->opens,
	       done->reads, done->read_bytes, done->writes, done->arms, done->ends);
	printf("rings %lu, buffers %lu, maps %lu, kills %lu; errors", done->rings, done->buffers,
	       done->maps, done->kills);
	for (i = 0; i < 200; i++) {
		if (done->errors[i])
			printf(" %s:%lu", strerrorname_np(i), done->errors[i]);
	}
	printf("\n");
	return ok ? 0 : 1;
}

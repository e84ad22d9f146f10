// SPDX-License-Identifier: GPL-2.0-only
/*
 * Misuses a SIS8300's node, and checks that each misuse gets its error and
 * nothing else happens: first a table, then a seeded random run. KTAP on
 * standard output, exit status 1 if a test fails. The caller checks the kernel's
 * log for warnings.
 *
 *   sis8300_abuse /dev/sis8300-6 [SEED [CALLS]]
 *
 * The board's memory is read and written; its trigger need not come.
 */
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
#include <unistd.h>

#include <linux/sis8300.h>

#define KERNEL	((void *)0xffff888000000000ul)

static bool planning = true;
static unsigned int tests, failed;
static const char *path;
static int fd = -1, other = -1;
static struct sis8300_info info;
static char buffer[1 << 16];
static void *nowhere;

static void report(bool ok, const char *name, const char *why)
{
	tests++;
	if (planning)
		return;
	failed += !ok;
	printf("%sok %u %s%s%s\n", ok ? "" : "not ", tests, name, *why ? " # " : "", why);
	fflush(stdout);
}

/* A call that must fail with one errno; 0: that must not fail. */
static void expect(const char *name, int want, long ret, int got)
{
	bool ok = want ? ret < 0 && got == want : ret >= 0;
	char why[96] = "";

	if (ret >= 0 && want)
		snprintf(why, sizeof(why), "succeeded, expected %s", strerror(want));
	else if (!ok)
		snprintf(why, sizeof(why), "failed with %s (%d), expected errno %d", strerror(got),
			 got, want);
	report(ok, name, why);
}

#define TRY(name, want, call)							\
	do {									\
		long ret_ = planning ? 0 : (long)(call);			\
		expect(name, want, ret_, errno);				\
	} while (0)

#define CALL(name, want, number, argument)					\
	TRY(name, want, ioctl(fd, number, argument))

/* One field of a good request made bad. */
#define BAD(name, want, type, number, good, change)				\
	do {									\
		struct type r = good();						\
		change;								\
		CALL(name, want, number, &r);					\
	} while (0)

static struct sis8300_info good_info(void)
{
	return (struct sis8300_info) { .size = sizeof(struct sis8300_info) };
}

static struct sis8300_setup good_setup(void)
{
	return (struct sis8300_setup) {
		.size = sizeof(struct sis8300_setup),
		.channels = 0x3ff,
		.samples = 320,
		.clock = SIS8300_CLOCK_INTERNAL,
		.divider = 3,
	};
}

static struct sis8300_arm good_arm(void)
{
	return (struct sis8300_arm) { .size = sizeof(struct sis8300_arm) };
}

static struct sis8300_end good_end(void)
{
	return (struct sis8300_end) { .size = sizeof(struct sis8300_end), .timeout_ms = 2000 };
}

static struct sis8300_stats good_stats(void)
{
	return (struct sis8300_stats) { .size = sizeof(struct sis8300_stats) };
}

static struct sis8300_ring_setup good_ring(void)
{
	return (struct sis8300_ring_setup) {
		.size = sizeof(struct sis8300_ring_setup),
		.buffers = 4,
		.buffer_bytes = 4096,
	};
}

static struct sis8300_ring_start good_start(void)
{
	return (struct sis8300_ring_start) {
		.size = sizeof(struct sis8300_ring_start),
		.bytes = 16384,
		.passes = 1,
	};
}

static struct sis8300_ring_next good_next(void)
{
	return (struct sis8300_ring_next) {
		.size = sizeof(struct sis8300_ring_next),
		.timeout_ms = 2000,
		.release = UINT64_MAX,
	};
}

#define BAD_SETUP(name, want, change)						\
	BAD(name, want, sis8300_setup, SIS8300_IOC_SETUP, good_setup, change)
#define BAD_END(name, want, change)						\
	BAD(name, want, sis8300_end, SIS8300_IOC_WAIT_END, good_end, change)
#define BAD_RING(name, want, change)						\
	BAD(name, want, sis8300_ring_setup, SIS8300_IOC_RING_SETUP, good_ring, change)
#define BAD_START(name, want, change)						\
	BAD(name, want, sis8300_ring_start, SIS8300_IOC_RING_START, good_start, change)
#define BAD_NEXT(name, want, change)						\
	BAD(name, want, sis8300_ring_next, SIS8300_IOC_RING_NEXT, good_next, change)

static void bad_transfers(void)
{
	TRY("read: 8 bytes", EINVAL, read(fd, buffer, 8));
	TRY("read: 17 bytes", EINVAL, read(fd, buffer, 17));
	TRY("read: from 8", EINVAL, pread(fd, buffer, 16, 8));
	TRY("read: from a negative offset", EINVAL, pread(fd, buffer, 16, -16));
	TRY("read: nothing", 0, pread(fd, buffer, 0, 0));
	TRY("read: far beyond the end", 0, pread(fd, buffer, 16, 0x7fffffff0000));
	TRY("read: to null", EFAULT, pread(fd, nowhere, 64, 0));
	TRY("read: into the kernel", EFAULT, pread(fd, KERNEL, 64, 0));
	TRY("read: into text", EFAULT, pread(fd, (void *)good_info, 64, 0));
	TRY("write: 8 bytes", EINVAL, pwrite(fd, buffer, 8, 0));
	TRY("write: to 24 bytes and 1", EINVAL, pwrite(fd, buffer, 16, 25));
	TRY("write: nothing", 0, pwrite(fd, buffer, 0, 0));
	TRY("write: beyond the end", ENOSPC, pwrite(fd, buffer, 16, info.memory_bytes));
	TRY("write: from null", EFAULT, pwrite(fd, nowhere, 64, 0x1000000));
	TRY("write: from the kernel", EFAULT, pwrite(fd, KERNEL, 64, 0x1000000));
	TRY("lseek: to 8", EINVAL, lseek(fd, 8, SEEK_SET));
	TRY("lseek: below 0", EINVAL, lseek(fd, -16, SEEK_SET));
	TRY("lseek: beyond the end", EINVAL, lseek(fd, 16, SEEK_END));
	TRY("lseek: whence 9", EINVAL, lseek(fd, 0, 9));
	TRY("lseek: to 0", 0, lseek(fd, 0, SEEK_SET));
}

static void bad_setups(void)
{
	BAD_SETUP("setup: size 0", EINVAL, r.size = 0);
	BAD_SETUP("setup: size too small", EINVAL, r.size = sizeof(r) - 8);
	BAD_SETUP("setup: size beyond a page", E2BIG, r.size = UINT32_MAX);
	BAD_SETUP("setup: no channel", EINVAL, r.channels = 0);
	BAD_SETUP("setup: channel 10", EINVAL, r.channels = 0x400);
	BAD_SETUP("setup: no samples", EINVAL, r.samples = 0);
	BAD_SETUP("setup: more samples than the memory holds", EINVAL, r.samples = 1ull << 27);
	BAD_SETUP("setup: samples that wrap", EINVAL, r.samples = UINT64_MAX);
	BAD_SETUP("setup: pre-trigger 2047", EINVAL, r.pretrigger = 2047);
	BAD_SETUP("setup: clock 7", EINVAL, r.clock = 7);
	BAD_SETUP("setup: divider 0", EINVAL, r.divider = 0);
	BAD_SETUP("setup: divider 33", EINVAL, r.divider = 33);
	BAD_SETUP("setup: internal clock by 1", EINVAL, r.divider = 1);
	BAD_SETUP("setup: trigger 4", EINVAL, r.trigger = 4);
	BAD_SETUP("setup: backplane trigger without a line", EINVAL,
		  r.trigger = SIS8300_TRIGGER_MLVDS);
	BAD_SETUP("setup: backplane line 8", EINVAL,
		  r.trigger = SIS8300_TRIGGER_MLVDS; r.trigger_lines = 0x100);
	BAD_SETUP("setup: front line 4", EINVAL,
		  r.trigger = SIS8300_TRIGGER_FRONT; r.trigger_lines = 0x10);
	BAD_SETUP("setup: lines without a trigger", EINVAL, r.trigger_lines = 1);
	BAD_SETUP("setup: falling line that is off", EINVAL,
		  r.trigger = SIS8300_TRIGGER_MLVDS; r.trigger_lines = 1; r.trigger_falling = 2);
	BAD_SETUP("setup: reserved field set", EINVAL, r.reserved[3] = 1);
	CALL("setup: null", EFAULT, SIS8300_IOC_SETUP, NULL);
	CALL("setup: in the kernel", EFAULT, SIS8300_IOC_SETUP, KERNEL);
	BAD("info: size 8", EINVAL, sis8300_info, SIS8300_IOC_INFO, good_info, r.size = 8);
	BAD("info: reserved field set", EINVAL, sis8300_info, SIS8300_IOC_INFO, good_info,
	    r.reserved[0] = 1);
	BAD("stats: reset 2", EINVAL, sis8300_stats, SIS8300_IOC_STATS, good_stats, r.reset = 2);
	BAD("stats: reserved field set", EINVAL, sis8300_stats, SIS8300_IOC_STATS, good_stats,
	    r.reserved[0] = 1);
	CALL("stats: null", EFAULT, SIS8300_IOC_STATS, NULL);
}

/* Sizes of a later version: zeros are taken, others are not. */
static void larger_structures(void)
{
	struct { struct sis8300_info info; char more[64]; } large = { .info.size = sizeof(large) };

	CALL("info: larger, of zeros", 0, SIS8300_IOC_INFO, &large);
	large.info = good_info();
	large.info.size = sizeof(large);
	large.more[40] = 1;
	CALL("info: larger, not of zeros", E2BIG, SIS8300_IOC_INFO, &large);
}

static void wrong_order(void)
{
	/* After a change of registers by hand, the board must be set up again. */
	CALL("reg-write: 0x12b", 0, SIS8300_REG_WRITE, (&(struct sis8300_reg){ 0x12b, 0 }));
	BAD("get-setup: before setup", ENODATA, sis8300_setup, SIS8300_IOC_GET_SETUP, good_setup,
	    (void)r);
	BAD("arm: before setup", ENODATA, sis8300_arm, SIS8300_IOC_ARM, good_arm, (void)r);
	BAD_END("wait: nothing armed", ENODATA, (void)r);
	CALL("disarm: nothing armed", 0, SIS8300_IOC_DISARM, NULL);
	BAD_START("ring: start without buffers", EINVAL, (void)r);
	BAD_NEXT("ring: next without buffers", EINVAL, (void)r);
	CALL("ring: stop without buffers", EINVAL, SIS8300_IOC_RING_STOP, NULL);
	TRY("ring: mmap without buffers", EINVAL,
	    mmap(NULL, 16384, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
}

static void bad_acquisitions(void)
{
	BAD_SETUP("setup: a good one", 0, (void)r);
	BAD("arm: size 0", EINVAL, sis8300_arm, SIS8300_IOC_ARM, good_arm, r.size = 0);
	BAD("arm: reserved field set", EINVAL, sis8300_arm, SIS8300_IOC_ARM, good_arm,
	    r.reserved = 1);
	BAD_END("wait: no time-out", EINVAL, r.timeout_ms = 0);
	BAD_END("wait: endless time-out", EINVAL, r.timeout_ms = UINT32_MAX);
	BAD_END("wait: unknown flag", EINVAL, r.flags = 2);
	BAD_END("wait: pause without polling", EINVAL, r.poll_us = 1);
	BAD_END("wait: pause of more than a second", EINVAL,
		r.flags = SIS8300_WAIT_POLL; r.poll_us = 1000001);
	BAD_END("wait: reserved field set", EINVAL, r.reserved[1] = 1);
	/* Front line 3: no trigger comes. */
	BAD_SETUP("setup: for a trigger that does not come", 0,
		  r.trigger = SIS8300_TRIGGER_FRONT; r.trigger_lines = 8);
	BAD("arm: a good one", 0, sis8300_arm, SIS8300_IOC_ARM, good_arm, (void)r);
	BAD_SETUP("setup: while armed", EBUSY, (void)r);
	TRY("arm: while another file has armed", EBUSY,
	    ioctl(other, SIS8300_IOC_ARM, &(struct sis8300_arm){ .size = 24 }));
	TRY("disarm: what another file has armed", EBUSY, ioctl(other, SIS8300_IOC_DISARM));
	TRY("write: while armed", EBUSY, pwrite(other, buffer, 64, 0));
	TRY("read: while armed", 0, pread(other, buffer, 64, 0));
	TRY("reg-write: 0x10 while another file has armed", EBUSY,
	    ioctl(other, SIS8300_REG_WRITE, &(struct sis8300_reg){ 0x10, 4 }));
	TRY("reg-write: 0x12a while another file has armed", EBUSY,
	    ioctl(other, SIS8300_REG_WRITE, &(struct sis8300_reg){ 0x12a, 0 }));
	BAD_END("wait: for what does not come", ETIMEDOUT, r.timeout_ms = 50);
	BAD_END("wait: polling for what does not come", ETIMEDOUT,
		r.timeout_ms = 50; r.flags = SIS8300_WAIT_POLL; r.poll_us = 1000);
	CALL("disarm: what this file has armed", 0, SIS8300_IOC_DISARM, NULL);
	BAD_END("wait: disarmed", ECANCELED, (void)r);
	BAD("arm: again", 0, sis8300_arm, SIS8300_IOC_ARM, good_arm, (void)r);
	TRY("close: what has armed", 0, close(fd));
	TRY("open: again", 0, fd = open(path, O_RDWR | O_CLOEXEC));
	BAD("arm: after that", 0, sis8300_arm, SIS8300_IOC_ARM, good_arm, (void)r);
	CALL("disarm: after that", 0, SIS8300_IOC_DISARM, NULL);
}

static void bad_registers(void)
{
	static const __u32 ours[] = {
		0xff, 0x200, 0x201, 0x202, 0x203, 0x204, 0x210, 0x211, 0x212, 0x213, 0x214, 0x215,
		0x216, 0x220, 0x222, 0x02, 0x43, 0x44,
	};
	unsigned int i;
	char name[64];

	CALL("reg-read: null", EFAULT, SIS8300_REG_READ, NULL);
	CALL("reg-read: outside BAR 0", EINVAL, SIS8300_REG_READ,
	     (&(struct sis8300_reg){ 0x4000, 0 }));
	CALL("reg-read: offset that wraps", EINVAL, SIS8300_REG_READ,
	     (&(struct sis8300_reg){ UINT32_MAX, 0 }));
	CALL("reg-write: outside BAR 0", EINVAL, SIS8300_REG_WRITE,
	     (&(struct sis8300_reg){ 0x40000000, 0 }));
	for (i = 0; i < sizeof(ours) / sizeof(*ours); i++) {
		snprintf(name, sizeof(name), "reg-write: 0x%03x is the driver's", ours[i]);
		CALL(name, EPERM, SIS8300_REG_WRITE, (&(struct sis8300_reg){ ours[i], 0 }));
	}
	CALL("wait-irq: type 2", EINVAL, SIS8300_WAIT, (&(struct sis8300_wait){ 10, 2, 0 }));
	CALL("release: type 4294967295", EINVAL, SIS8300_RELEASE,
	     (&(struct sis8300_wait){ 10, UINT32_MAX, 0 }));
	CALL("wait-irq: null", EFAULT, SIS8300_WAIT, NULL);
	CALL("ioctl: unknown number", ENOTTY, _IO('s', 0x7f), NULL);
	CALL("ioctl: other driver's number", ENOTTY, _IO('T', 1), NULL);
	CALL("ioctl: ESS number of another size", ENOTTY, _IOWR('s', 0, char[64]), buffer);
}

static void bad_rings(void)
{
	BAD_RING("ring: 1 buffer", EINVAL, r.buffers = 1);
	BAD_RING("ring: 65 buffers", EINVAL, r.buffers = 65);
	BAD_RING("ring: buffers of nothing", EINVAL, r.buffer_bytes = 0);
	BAD_RING("ring: buffers of 4095 bytes", EINVAL, r.buffer_bytes = 4095);
	BAD_RING("ring: buffers above a chunk", EINVAL, r.buffer_bytes = info.chunk_bytes + 64);
	BAD_RING("ring: reserved field set", EINVAL, r.reserved[0] = 1);
	CALL("ring: setup at null", EFAULT, SIS8300_IOC_RING_SETUP, NULL);
	BAD_RING("ring: 4 buffers", 0, (void)r);
	BAD_NEXT("ring: next before start", EINVAL, (void)r);
	BAD_START("ring: nothing", EINVAL, r.bytes = 0);
	BAD_START("ring: 65 bytes", EINVAL, r.bytes = 65);
	BAD_START("ring: from 32", EINVAL, r.address = 32);
	BAD_START("ring: beyond the end", EINVAL, r.address = info.memory_bytes - 64);
	BAD_START("ring: range that wraps", EINVAL, r.address = UINT64_MAX - 63);
	BAD_START("ring: unknown flag", EINVAL, r.flags = 2);
	BAD_START("ring: reserved field set", EINVAL, r.reserved0 = 1);
	BAD_START("ring: triggered without a time-out", EINVAL, r.flags = SIS8300_RING_TRIGGERED);
	BAD_NEXT("ring: endless time-out", EINVAL, r.timeout_ms = UINT32_MAX);
}

static long map_ring(size_t bytes, int protection, int flags, off_t offset)
{
	void *map = mmap(NULL, bytes, protection, flags, fd, offset);

	if (map == MAP_FAILED)
		return -1;
	munmap(map, bytes);
	return 0;
}

static void bad_mappings(void)
{
	TRY("mmap: too small", EINVAL, map_ring(4096, PROT_READ, MAP_SHARED, 0));
	TRY("mmap: too large", EINVAL, map_ring(5 * 4096, PROT_READ, MAP_SHARED, 0));
	TRY("mmap: at an offset", EINVAL, map_ring(4 * 4096, PROT_READ, MAP_SHARED, 4096));
	TRY("mmap: writable", EPERM,
	    map_ring(4 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, 0));
	TRY("mmap: executable", EPERM, map_ring(4 * 4096, PROT_READ | PROT_EXEC, MAP_SHARED, 0));
	TRY("mmap: private", EINVAL, map_ring(4 * 4096, PROT_READ, MAP_PRIVATE, 0));
	TRY("mmap: a good one", 0, map_ring(4 * 4096, PROT_READ, MAP_SHARED, 0));
}

/* A mapping that is made writable afterwards. */
static long protect_ring(int protection)
{
	void *map = mmap(NULL, 4 * 4096, PROT_READ, MAP_SHARED, fd, 0);
	long ret;

	if (map == MAP_FAILED)
		return 0;
	ret = mprotect(map, 4096, protection);
	munmap(map, 4 * 4096);
	return ret;
}

static void wrong_ring_order(void)
{
	struct sis8300_ring_setup none = { .size = sizeof(none) };

	TRY("mmap: made writable", EACCES, protect_ring(PROT_READ | PROT_WRITE));
	BAD_START("ring: endless passes", 0, r.passes = 0);
	BAD_START("ring: start while it runs", EBUSY, (void)r);
	BAD_RING("ring: setup while it runs", EBUSY, (void)r);
	TRY("read: while another file's ring runs", EBUSY, pread(other, buffer, 64, 0));
	TRY("read: while this file's ring runs", EBUSY, pread(fd, buffer, 64, 0));
	TRY("write: while a ring runs", EBUSY, pwrite(other, buffer, 64, 0));
	BAD_NEXT("ring: release of what was not handed out", EINVAL, r.release = 0);
	BAD_NEXT("ring: a buffer", 0, (void)r);
	BAD_NEXT("ring: release of the next one too", EINVAL, r.release = 1);
	BAD_NEXT("ring: the next one", 0, r.release = 0);
	BAD_NEXT("ring: release twice", 0, r.release = 0);
	CALL("ring: stop", 0, SIS8300_IOC_RING_STOP, NULL);
	CALL("ring: stop twice", 0, SIS8300_IOC_RING_STOP, NULL);
	TRY("read: after the ring", 0, pread(other, buffer, 64, 0));
	BAD_START("ring: one pass", 0, (void)r);
	BAD_NEXT("ring: 1 of 4", 0, (void)r);
	BAD_NEXT("ring: 2 of 4", 0, r.release = 0);
	BAD_NEXT("ring: 3 of 4", 0, r.release = 1);
	BAD_NEXT("ring: 4 of 4", 0, r.release = 2);
	BAD_NEXT("ring: after the last", ENODATA, r.release = 3);
	BAD_NEXT("ring: after the last, without waiting", ENODATA, r.timeout_ms = 0);
	BAD_START("ring: 2 passes of 4 buffers", 0, r.passes = 2);
	BAD_NEXT("ring: a buffer of each", 0, (void)r);
	TRY("ring: freed while it stalls", EBUSY, ioctl(fd, SIS8300_IOC_RING_SETUP, &none));
	CALL("ring: stop what stalls", 0, SIS8300_IOC_RING_STOP, NULL);
	TRY("ring: freed", 0, ioctl(fd, SIS8300_IOC_RING_SETUP, &none));
}

static unsigned int random_state;

static unsigned int rnd(void)
{
	random_state = random_state * 1103515245 + 12345;
	return random_state >> 8;
}

static void on_alarm(int signal)
{
	(void)signal;
}

static __u64 odd_number(void)
{
	static const __u64 odd[] = {
		0, 1, 2, 16, 63, 64, 4096, 65536, 1 << 20, 0x7fffffff, 0x80000000, UINT32_MAX,
		1ull << 40, UINT64_MAX - 63, UINT64_MAX,
	};

	return rnd() % 3 ? odd[rnd() % (sizeof(odd) / sizeof(*odd))] : rnd() % 4096;
}

/*
 * Structures of odd numbers with the right size, at every number, and odd reads.
 * Whatever they return, the next one must return too: alarms end what waits.
 */
static void random_calls(unsigned int calls)
{
	struct itimerval every = { { 0, 50000 }, { 0, 50000 } };
	struct sigaction action = { .sa_handler = on_alarm };
	__u64 argument[128];
	unsigned int i, k;

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
	for (i = 0; i < calls; i++) {
		unsigned int number = rnd() % 16, size = rnd() % 8 ? 0 : rnd() % 300;
		static const unsigned int sizes[] = {
			sizeof(struct sis8300_info), sizeof(struct sis8300_setup),
			sizeof(struct sis8300_setup), sizeof(struct sis8300_arm), 0,
			sizeof(struct sis8300_end), sizeof(struct sis8300_stats),
			sizeof(struct sis8300_ring_setup), sizeof(struct sis8300_ring_start),
			sizeof(struct sis8300_ring_next), 0,
		};
		int to = rnd() % 2 ? fd : other;

		for (k = 0; k < 128; k++)
			argument[k] = rnd() % 2 ? 0 : odd_number();
		if (number < 11) {
			size = size ?: sizes[number];
			memcpy(argument, &size, sizeof(size));
			ioctl(to, _IOC(_IOC_READ | _IOC_WRITE, 's', 0x40 + number, 0), argument);
			ioctl(to, _IO('s', 0x40 + number), argument);
		} else if (number < 14) {
			if (pread(to, buffer, odd_number() % sizeof(buffer), odd_number()) < 0 &&
			    errno == ENODEV)
				break;
		} else {
			ioctl(to, SIS8300_REG_READ, argument);
		}
	}
	setitimer(ITIMER_REAL, &(struct itimerval){}, NULL);
	ioctl(fd, SIS8300_IOC_RING_STOP);
	ioctl(other, SIS8300_IOC_RING_STOP);
	ioctl(fd, SIS8300_IOC_DISARM);
	ioctl(other, SIS8300_IOC_DISARM);
}

static void all(unsigned int calls)
{
	bad_transfers();
	wrong_order();
	bad_setups();
	larger_structures();
	bad_acquisitions();
	bad_registers();
	bad_rings();
	bad_mappings();
	wrong_ring_order();
	if (!planning)
		random_calls(calls);
	TRY("random calls: the board still reads", 0, pread(fd, buffer, 4096, 0) == 4096 ? 0 : -1);
	BAD_SETUP("random calls: the board is still set up", 0, (void)r);
	BAD("random calls: it is still armed", 0, sis8300_arm, SIS8300_IOC_ARM, good_arm, (void)r);
	BAD_END("random calls: it still ends", 0, (void)r);
}

int main(int argc, char **argv)
{
	unsigned int calls = argc > 3 ? strtoul(argv[3], NULL, 0) : 2000;

	if (argc < 2)
		return 2;
	/* The compiler is not to know. */
	nowhere = argc > 1000 ? buffer : NULL;
	path = argv[1];
	random_state = argc > 2 ? strtoul(argv[2], NULL, 0) : 1;
	all(calls);
	fd = open(path, O_RDWR | O_CLOEXEC);
	other = open(path, O_RDWR | O_CLOEXEC);
	info = good_info();
	if (fd < 0 || other < 0 || ioctl(fd, SIS8300_IOC_INFO, &info)) {
		perror(path);
		return 2;
	}
	printf("TAP version 13\n1..%u\n", tests);
	planning = false;
	tests = 0;
	all(calls);
	return failed ? 1 : 0;
}

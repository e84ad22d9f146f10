// SPDX-License-Identifier: GPL-2.0-only
/*
 * Uses a virtual SIS8300 in every way that its driver offers, and compares each
 * sample with the formula of docs/spec/sis8300.md. KTAP on standard output, exit
 * status 1 if a test fails.
 *
 *   sis8300_check /dev/sis8300-6 [SEED [ACQUISITIONS]]
 *
 * ACQUISITIONS is the number of acquisitions that the board began before the driver
 * was bound. The board needs a trigger at backplane line 0.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <linux/sis8300.h>

#define SAMPLES		20000
static const char *path;
static __u64 seed = 1, before;
static int fd;
static struct sis8300_info info;
static struct sis8300_setup setup;
static char why[256];
static unsigned int tests, failed;

/* Prints why a check failed. */
static bool check(bool is, const char *format, ...)
{
	va_list list;

	if (is)
		return true;
	va_start(list, format);
	vsnprintf(why, sizeof(why), format, list);
	va_end(list);
	return false;
}

static __u64 mix(__u64 x)
{
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ull;
	return x ^ x >> 32;
}

static __u16 sample(__u64 acquisition, unsigned int channel, __u64 i)
{
	__u64 key = mix(mix(mix(seed + 0x9e3779b97f4a7c15ull) + (info.serial & 0xffff)) +
			   acquisition * 16 + channel);

	return mix(key + i / 4 * 0x9e3779b97f4a7c15ull) >> 16 * (i % 4);
}

/* Compares what card address @at held after an acquisition of all channels. */
static bool is_acquired(const __u16 *data, __u64 at, size_t bytes, __u64 sequence)
{
	__u64 n = at / 2, end = n + bytes / 2;
	__u16 want;

	for (; n < end; n++, data++) {
		unsigned int channel = n / setup.samples;

		want = sample(sequence + before, channel, n % setup.samples);
		if (!check(*data == want,
			   "acquisition %llu, channel %u, sample %llu is 0x%04x, expected 0x%04x",
			   (unsigned long long)sequence, channel,
			   (unsigned long long)(n % setup.samples), *data, want))
			return false;
	}
	return true;
}

static __u64 now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static bool set_up(unsigned int trigger)
{
	memset(&setup, 0, sizeof(setup));
	setup.size = sizeof(setup);
	setup.channels = 0x3ff;
	setup.samples = SAMPLES;
	setup.clock = SIS8300_CLOCK_INTERNAL;
	setup.divider = 3;
	setup.trigger = trigger;
	setup.trigger_lines = trigger == SIS8300_TRIGGER_MLVDS;
	if (!check(!ioctl(fd, SIS8300_IOC_SETUP, &setup), "SETUP: %m"))
		return false;
	if (!check(setup.samples >= SAMPLES && setup.samples % info.block_samples == 0,
		   "%llu samples", (unsigned long long)setup.samples))
		return false;
	if (!check(setup.start[9] == 9 * setup.samples * 2, "channel 9 at 0x%llx",
		   (unsigned long long)setup.start[9]))
		return false;
	return true;
}

static bool arm(struct sis8300_arm *armed)
{
	*armed = (struct sis8300_arm) { .size = sizeof(*armed) };
	if (!check(!ioctl(fd, SIS8300_IOC_ARM, armed), "ARM: %m"))
		return false;
	return true;
}

static bool wait_end(struct sis8300_end *end, unsigned int flags, unsigned int poll_us)
{
	*end = (struct sis8300_end) {
		.size = sizeof(*end),
		.flags = flags,
		.timeout_ms = 5000,
		.poll_us = poll_us,
	};
	if (!check(!ioctl(fd, SIS8300_IOC_WAIT_END, end), "WAIT_END: %m"))
		return false;
	return true;
}

static bool read_all(__u64 sequence)
{
	size_t bytes = 10 * setup.samples * 2;
	__u16 *data = malloc(bytes);
	ssize_t got = pread(fd, data, bytes, 0);
	bool ok;

	if (!check(got == (ssize_t)bytes, "pread of %zu gave %zd: %m", bytes, got))
		return false;
	ok = is_acquired(data, 0, bytes, sequence);
	free(data);
	return ok;
}

static bool memory_as_powered_on(void)
{
	static const struct { __u64 at; size_t bytes; } reads[] = {
		{ 0, 64 }, { 16, 16 }, { 48, 32 }, { 112, 4096 }, { 0x100000, 1 << 20 },
		{ 0x12340, 5000000 / 16 * 16 }, { 0x7fffff0, 16 << 20 },
	};
	unsigned int i;

	for (i = 0; i < sizeof(reads) / sizeof(*reads); i++) {
		__u16 *data = malloc(reads[i].bytes);
		ssize_t got = pread(fd, data, reads[i].bytes, reads[i].at);
		size_t k;

		if (!check(got == (ssize_t)reads[i].bytes, "pread at 0x%llx gave %zd: %m",
			   (unsigned long long)reads[i].at, got))
			return false;
		for (k = 0; k < reads[i].bytes / 2; k++)
			if (!check(data[k] == sample(0, 0, reads[i].at / 2 + k), "at 0x%llx",
				   (unsigned long long)(reads[i].at + 2 * k)))
				return false;
		free(data);
	}
	return true;
}

static bool the_end_of_memory(void)
{
	__u16 data[64];

	if (!check(lseek(fd, 0, SEEK_END) == (off_t)info.memory_bytes, "SEEK_END: %m"))
		return false;
	if (!check(read(fd, data, 16) == 0, "read at the end"))
		return false;
	if (!check(lseek(fd, -48, SEEK_END) > 0, "SEEK_END -48: %m"))
		return false;
	if (!check(read(fd, data, 128) == 48, "read before the end: %m"))
		return false;
	if (!check(data[3] == sample(0, 0, info.memory_bytes / 2 - 24 + 3), "data at the end"))
		return false;
	if (!check(lseek(fd, 0, SEEK_CUR) == (off_t)info.memory_bytes, "SEEK_CUR"))
		return false;
	return true;
}

static bool acquire_at_once(void)
{
	struct sis8300_arm armed;
	struct sis8300_end end;
	bool ok = set_up(SIS8300_TRIGGER_NOW) && arm(&armed) && wait_end(&end, 0, 0);

	if (!check(!ok || end.sequence == armed.sequence, "sequence"))
		return false;
	if (!check(!ok || !end.lost_interrupt, "the interrupt was lost"))
		return false;
	if (!check(!ok || end.time_ns >= armed.time_ns, "ended before it was armed"))
		return false;
	return ok && read_all(end.sequence);
}

static bool acquire_triggered(void)
{
	struct sis8300_arm armed;
	struct sis8300_end end;
	int i;

	if (!set_up(SIS8300_TRIGGER_MLVDS))
		return false;
	for (i = 0; i < 4; i++) {
		if (!arm(&armed) || !wait_end(&end, i % 2 ? SIS8300_WAIT_POLL : 0, i % 2 ? 100 : 0))
			return false;
		if (!check(i % 2 ? end.polls > 0 : !end.lost_interrupt, "polls %u, lost %u",
			   end.polls, end.lost_interrupt))
			return false;
		if (!read_all(end.sequence))
			return false;
	}
	return true;
}

static bool an_end_before_the_wait(void)
{
	struct pollfd poller = { .fd = fd, .events = POLLIN };
	struct sis8300_arm armed;
	struct sis8300_end end;
	__u64 begin;

	if (!set_up(SIS8300_TRIGGER_NOW) || !arm(&armed))
		return false;
	if (!check(poll(&poller, 1, 5000) == 1 && poller.revents & POLLIN, "poll: 0x%x",
		   poller.revents))
		return false;
	usleep(50000);
	begin = now_ns();
	if (!wait_end(&end, 0, 0))
		return false;
	if (!check(now_ns() - begin < 500000000, "waited for what had ended"))
		return false;
	if (!check(end.sequence == armed.sequence, "sequence"))
		return false;
	return true;
}

/* As a tool of the ESS driver does it. */
static bool the_ess_way(void)
{
	struct sis8300_reg control = { .offset = 0x10, .data = 1 };
	struct sis8300_wait wait = { .timeout_ms = 3000, .type = SIS8300_WAIT_DAQ };
	struct sis8300_reg id = { .offset = 0 };

	if (!check(!ioctl(fd, SIS8300_REG_READ, &id) && id.data == info.module_id, "id 0x%x",
		   id.data))
		return false;
	if (!check(!ioctl(fd, SIS8300_REG_WRITE, &control), "start: %m"))
		return false;
	usleep(200000);
	if (!check(!ioctl(fd, SIS8300_WAIT, &wait), "WAIT: %m"))
		return false;
	if (!check(wait.status == SIS8300_WAIT_OK, "status %u: the end before the wait was lost",
		   wait.status))
		return false;
	wait.timeout_ms = 50;
	if (!check(!ioctl(fd, SIS8300_WAIT, &wait) && wait.status == SIS8300_WAIT_TIMEOUT,
		   "status %u of what does not come", wait.status))
		return false;
	return true;
}

static bool run_ring(unsigned int flags, __u64 passes, unsigned int buffers,
		     unsigned int buffer_bytes, unsigned int slow_us)
{
	struct sis8300_ring_setup ring = {
		.size = sizeof(ring), .buffers = buffers, .buffer_bytes = buffer_bytes,
	};
	struct sis8300_ring_start start = {
		.size = sizeof(start), .flags = flags, .passes = passes, .timeout_ms = 5000,
		.bytes = 10 * setup.samples * 2,
	};
	__u64 count = 0, got = 0, release = UINT64_MAX, last = 0;
	struct sis8300_arm armed;
	struct sis8300_end end;
	__u8 *map;

	if (!arm(&armed) || !wait_end(&end, 0, 0))
		return false;
	if (!check(!ioctl(fd, SIS8300_IOC_RING_SETUP, &ring), "RING_SETUP: %m"))
		return false;
	map = mmap(NULL, (size_t)ring.stride * buffers, PROT_READ, MAP_SHARED, fd, 0);
	if (!check(map != MAP_FAILED, "mmap: %m"))
		return false;
	if (!check(!ioctl(fd, SIS8300_IOC_RING_START, &start), "RING_START: %m"))
		return false;
	for (;;) {
		struct sis8300_ring_next next = {
			.size = sizeof(next), .timeout_ms = 5000, .release = release,
		};
		__u64 sequence;

		if (ioctl(fd, SIS8300_IOC_RING_NEXT, &next)) {
			if (!check(errno == ENODATA, "RING_NEXT: %m"))
				return false;
			break;
		}
		if (!check(next.number == count, "number %llu", (unsigned long long)next.number))
			return false;
		if (!check(next.end_ns > last, "time goes back"))
			return false;
		sequence = end.sequence + (flags ? next.pass + 1 : 0);
		if (!is_acquired((__u16 *)(map + (__u64)ring.stride * (count % buffers)),
				 next.address, next.bytes, sequence))
			return false;
		last = next.end_ns;
		got += next.bytes;
		release = count++;
		usleep(slow_us);
	}
	if (!check(got == passes * start.bytes, "%llu bytes", (unsigned long long)got))
		return false;
	if (!check(ioctl(fd, SIS8300_IOC_RING_SETUP, &ring) && errno == EBUSY,
		   "set up while mapped"))
		return false;
	if (!check(!munmap(map, (size_t)ring.stride * buffers), "munmap"))
		return false;
	ring.buffers = 0;
	if (!check(!ioctl(fd, SIS8300_IOC_RING_SETUP, &ring), "free: %m"))
		return false;
	return true;
}

static bool ring_of_passes(void)
{
	return set_up(SIS8300_TRIGGER_NOW) && run_ring(0, 5, 4, 65536, 0) &&
	       run_ring(0, 3, 2, 128000, 2000);
}

static bool ring_of_triggers(void)
{
	return set_up(SIS8300_TRIGGER_MLVDS) && run_ring(SIS8300_RING_TRIGGERED, 5, 3, 128000, 0);
}

static bool write_and_read_back(void)
{
	static const struct { __u64 at; size_t bytes; } writes[] = {
		{ 0x40000000, 64 }, { 0x40000110, 16 }, { 0x40000230, 160 }, { 0x40001000, 8192 },
	};
	unsigned int i, k;

	for (i = 0; i < sizeof(writes) / sizeof(*writes); i++) {
		__u8 from[8192], to[8192 + 32];
		__u64 behind;
		ssize_t got;

		for (k = 0; k < writes[i].bytes; k++)
			from[k] = k % 127;
		got = pwrite(fd, from, writes[i].bytes, writes[i].at);
		if (!check(got == (ssize_t)writes[i].bytes, "pwrite %u gave %zd: %m", i, got))
			return false;
		got = pread(fd, to, writes[i].bytes + 32, writes[i].at - 16);
		if (!check(got == (ssize_t)writes[i].bytes + 32, "pread gave %zd: %m", got))
			return false;
		if (!check(!memcmp(from, to + 16, writes[i].bytes), "what was written in %u", i))
			return false;
		if (!check(((__u16 *)to)[0] == sample(0, 0, writes[i].at / 2 - 8), "before %u",
			   i))
			return false;
		behind = (writes[i].at + writes[i].bytes) / 2;
		if (!check(*(__u16 *)(to + 16 + writes[i].bytes) == sample(0, 0, behind),
			   "behind %u", i))
			return false;
	}
	return true;
}

static void *read_beside(void *result)
{
	size_t bytes = 8 << 20, k;
	__u16 *data = malloc(bytes);
	int own = open(path, O_RDWR), round;

	for (round = 0; round < 3; round++) {
		if (pread(own, data, bytes, 0x30000000) != (ssize_t)bytes)
			*(int *)result = errno ?: 1;
		for (k = 0; k < bytes / 2; k += 997) {
			if (data[k] != sample(0, 0, 0x30000000 / 2 + k))
				*(int *)result = EILSEQ;
		}
	}
	close(own);
	free(data);
	return NULL;
}

static bool two_readers(void)
{
	pthread_t threads[3];
	int results[3] = {}, i;

	for (i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, read_beside, &results[i]);
	for (i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < 3; i++)
		if (!check(!results[i], "reader %d: %s", i, strerror(results[i])))
			return false;
	return true;
}

static bool statistics(void)
{
	struct sis8300_stats stats = { .size = sizeof(stats), .reset = 1 };
	__u8 *data = malloc(6000000);

	if (!check(!ioctl(fd, SIS8300_IOC_STATS, &stats), "STATS: %m"))
		return false;
	if (!check(pread(fd, data, 6000000, 0) == 6000000, "pread: %m"))
		return false;
	stats.reset = 0;
	memset((char *)&stats + 8, 0, sizeof(stats) - 8);
	if (!check(!ioctl(fd, SIS8300_IOC_STATS, &stats), "STATS: %m"))
		return false;
	printf("# 6 MB: %llu DMAs of %llu bytes in %llu ns, ", stats.dmas, stats.dma_bytes,
	       stats.dma_ns);
	printf("setup %llu, wakeup %llu, copy %llu, map %llu\n", stats.setup_ns, stats.wakeup_ns,
	       stats.copy_ns, stats.map_ns);
	if (!check(stats.user_bytes == 6000000 && stats.dma_bytes == 6000000, "bytes"))
		return false;
	if (!check(stats.dmas > 0 && stats.interrupts >= stats.dmas && stats.dma_ns &&
		   stats.copy_ns, "counts"))
		return false;
	if (!check(!stats.lost_interrupts && !stats.timeouts && !stats.short_dmas, "errors"))
		return false;
	free(data);
	return true;
}

static void run(bool (*test)(void), const char *name)
{
	bool ok;

	why[0] = 0;
	ok = test();
	failed += !ok;
	printf("%sok %u %s%s%s\n", ok ? "" : "not ", ++tests, name, *why ? " # " : "", why);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	path = argv[1];
	seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
	before = argc > 3 ? strtoull(argv[3], NULL, 0) : 0;
	fd = open(path, O_RDWR | O_CLOEXEC);
	info.size = sizeof(info);
	if (fd < 0 || ioctl(fd, SIS8300_IOC_INFO, &info)) {
		perror(path);
		return 2;
	}
	printf("TAP version 13\n1..12\n# module 0x%08x, serial %u, %u byte chunks, flags 0x%x\n",
	       info.module_id, info.serial, info.chunk_bytes, info.flags);
	run(memory_as_powered_on, "memory reads as powered on, at any multiple of 16");
	run(the_end_of_memory, "reading ends where the memory ends");
	run(acquire_at_once, "an acquisition started at once");
	run(acquire_triggered, "triggered acquisitions, by interrupt and by polling");
	run(an_end_before_the_wait, "an end before the wait is not lost");
	run(ring_of_passes, "the ring reads passes");
	run(ring_of_triggers, "the ring reads triggered acquisitions");
	run(the_ess_way, "the ESS driver's ioctls");
	run(write_and_read_back, "write() leaves its neighbours alone");
	run(two_readers, "three readers at once");
	run(statistics, "statistics");
	run(acquire_at_once, "an acquisition after all that");
	return failed ? 1 : 0;
}

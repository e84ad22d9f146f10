// SPDX-License-Identifier: GPL-2.0-only
/*
 * Executes commands on a virtual SIS8300, one per line of standard input, and
 * answers each with one line of JSON. It compares every sample that it reads with
 * the formula of docs/spec/sis8300.md; "bad" counts the samples that differ. Exit
 * status 0 if every line was understood.
 *
 *   sis8300_drive /dev/sis8300-6 [SEED]
 *
 * The formula depends on the number of the acquisition. The caller knows it from the
 * board's ledger: `acq N` says which acquisition is armed next.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <linux/sis8300.h>

#define FILES		8
#define LAYERS		512
#define DRAIN_TIMES	4096	/* of the last buffers */
#define PATTERN		UINT64_MAX	/* what pwrite() here puts: byte i is i modulo 127 */
#define U(value)	((unsigned long long)(value))

/* What an acquisition, or a write, has put into the card's memory. */
struct layer {
	__u64 acquisition;
	__u64 start;
	__u64 bytes;
	unsigned int channel;
};

static const char *path;
static __u64 seed = 1;
static int fds[FILES], fd;
static struct sis8300_info info;
static struct sis8300_setup setup;
static struct layer layers[LAYERS];
static unsigned int layer_count;
static __u64 next_acquisition = 1, armed_acquisition;
static struct sis8300_ring_setup ring;
static struct sis8300_ring_start start;
static __u64 ring_first, ring_count, ring_release = UINT64_MAX, ring_pass = UINT64_MAX;
static __u64 alarm_ms;
static __u8 *map;
static bool looks = true;
static size_t map_bytes;

static __u64 now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static __u64 mix(__u64 x)
{
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ull;
	return x ^ x >> 32;
}

static __u64 key_of(__u64 acquisition, unsigned int channel)
{
	return mix(mix(mix(seed + 0x9e3779b97f4a7c15ull) + (info.serial & 0xffff)) +
		   acquisition * 16 + channel);
}

static void add_layer(__u64 acquisition, unsigned int channel, __u64 from, __u64 bytes)
{
	unsigned int i;

	for (i = 0; i < layer_count; i++) {
		if (layers[i].start == from && layers[i].bytes == bytes) {
			layer_count--;
			memmove(&layers[i], &layers[i + 1], (layer_count - i) * sizeof(*layers));
			break;
		}
	}
	if (layer_count == LAYERS) {
		layer_count--;
		memmove(layers, layers + 1, layer_count * sizeof(*layers));
	}
	layers[layer_count++] = (struct layer) { acquisition, from, bytes, channel };
}

static void acquired(__u64 acquisition)
{
	unsigned int channel;

	for (channel = 0; channel < SIS8300_CHANNELS; channel++) {
		if (setup.channels & 1u << channel)
			add_layer(acquisition, channel, setup.start[channel], setup.samples * 2);
	}
}

/* The latest that put something at @at, and where it, or what hides it, ends. */
static struct layer layer_at(__u64 at, __u64 *end)
{
	struct layer found = { 0, 0, UINT64_MAX, 0 };
	unsigned int i;

	for (i = layer_count; i--;) {
		const struct layer *layer = &layers[i];

		if (at >= layer->start && at - layer->start < layer->bytes) {
			if (layer->start + layer->bytes < *end)
				*end = layer->start + layer->bytes;
			found = *layer;
			break;
		}
		if (layer->start > at && layer->start < *end)
			*end = layer->start;
	}
	return found;
}

/* How many samples are not what card address @at holds; @first gets where. */
static __u64 count_bad(const void *data, __u64 at, __u64 bytes, __u64 *first)
{
	const __u16 *samples = data;
	__u64 to = at + bytes, bad = 0;

	while (at < to) {
		__u64 end = to, key, i, word = 0;
		struct layer layer = layer_at(at, &end);
		bool fresh = true;

		key = key_of(layer.acquisition, layer.channel);
		for (; at < end; at += 2, samples++) {
			__u16 want;

			i = (at - layer.start) / 2;
			if (layer.acquisition == PATTERN) {
				want = 2 * i % 127 | (2 * i + 1) % 127 << 8;
			} else {
				if (fresh || i % 4 == 0)
					word = mix(key + i / 4 * 0x9e3779b97f4a7c15ull);
				fresh = false;
				want = word >> 16 * (i % 4);
			}
			if (*samples != want && !bad++)
				*first = at;
		}
	}
	return bad;
}

/* One line: what was done, what it returned, how long it took, and more. */
static void answer(const char *line, long ret, int error, __u64 ns, const char *format, ...)
{
	va_list arguments;

	printf("{\"line\":\"%s\",\"ret\":%ld,\"errno\":\"%s\",\"ns\":%llu", line, ret,
	       ret < 0 ? strerrorname_np(error) : "", U(ns));
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("}\n");
	fflush(stdout);
}

static void on_alarm(int signal)
{
	(void)signal;
}

/* Before a call that `alarm` asked to end by a signal. */
static void set_alarm(void)
{
	struct itimerval once = { .it_value = { alarm_ms / 1000, alarm_ms % 1000 * 1000 } };
	struct sigaction action = { .sa_handler = on_alarm };

	if (!alarm_ms)
		return;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &once, NULL);
	alarm_ms = 0;
}

static void do_read(const char *line, __u64 bytes, bool has_at, __u64 at)
{
	__u8 *data = malloc(bytes ?: 1);
	__u64 bad = 0, first = 0, begin;
	ssize_t got;
	int error;

	memset(data, 0xa5, bytes ?: 1);
	if (!has_at)
		at = lseek(fd, 0, SEEK_CUR);
	set_alarm();
	begin = now_ns();
	got = has_at ? pread(fd, data, bytes, at) : read(fd, data, bytes);
	error = errno;
	begin = now_ns() - begin;
	if (got > 0)
		bad = count_bad(data, at, got, &first);
	answer(line, got, error, begin, ",\"bad\":%llu,\"first\":%llu", U(bad), U(first));
	free(data);
}

/* Reads again and again, @count times or (0) until an error. */
static void do_read_on(const char *line, __u64 at, __u64 bytes, __u64 count)
{
	__u64 reads = 0, total = 0, bad = 0, first = 0, begin = now_ns();
	__u8 *data = malloc(bytes);
	ssize_t got = 0;
	int error = 0;

	while (!count || reads < count) {
		got = pread(fd, data, bytes, at);
		error = errno;
		if (got > 0) {
			bad += count_bad(data, at, got, &first);
			total += got;
		}
		if (got < 0)
			break;
		reads++;
	}
	answer(line, got < 0 ? got : (long)reads, error, now_ns() - begin,
	       ",\"reads\":%llu,\"bytes\":%llu,\"bad\":%llu", U(reads), U(total), U(bad));
	free(data);
}

static void do_write(const char *line, __u64 at, __u64 bytes)
{
	__u8 *data = malloc(bytes ?: 1);
	__u64 i, begin;
	ssize_t got;
	int error;

	for (i = 0; i < bytes; i++)
		data[i] = i % 127;
	begin = now_ns();
	got = pwrite(fd, data, bytes, at);
	error = errno;
	if (got > 0)
		add_layer(PATTERN, 0, at, got);
	answer(line, got, error, now_ns() - begin, "");
	free(data);
}

static __u64 number(const char *line, const char *name, __u64 otherwise)
{
	char key[32];
	const char *at;

	snprintf(key, sizeof(key), " %s=", name);
	at = strstr(line, key);
	return at ? strtoull(at + strlen(key), NULL, 0) : otherwise;
}

static void do_setup(const char *line)
{
	struct sis8300_setup wanted = {
		.size = sizeof(wanted),
		.channels = number(line, "channels", 0x3ff),
		.samples = number(line, "samples", 20000),
		.pretrigger = number(line, "pretrigger", 0),
		.clock = number(line, "clock", SIS8300_CLOCK_INTERNAL),
		.divider = number(line, "divider", 3),
		.trigger = number(line, "trigger", SIS8300_TRIGGER_NOW),
		.trigger_lines = number(line, "lines", 0),
		.trigger_falling = number(line, "falling", 0),
	};
	int ret = ioctl(fd, SIS8300_IOC_SETUP, &wanted), error = errno;

	if (!ret)
		setup = wanted;
	answer(line, ret, error, 0, ",\"samples\":%llu,\"last\":%llu", U(wanted.samples),
	       U(wanted.start[9]));
}

static void do_arm(const char *line)
{
	struct sis8300_arm arm = { .size = sizeof(arm) };
	__u64 begin = now_ns();
	int ret = ioctl(fd, SIS8300_IOC_ARM, &arm), error = errno;

	if (!ret)
		armed_acquisition = next_acquisition++;
	answer(line, ret, error, now_ns() - begin, ",\"sequence\":%llu,\"time\":%llu",
	       U(arm.sequence), U(arm.time_ns));
}

static void do_wait(const char *line, __u64 timeout_ms)
{
	struct sis8300_end end = {
		.size = sizeof(end),
		.timeout_ms = timeout_ms,
		.flags = number(line, "poll", 0) ? SIS8300_WAIT_POLL : 0,
		.poll_us = number(line, "us", 0),
	};
	__u64 begin = now_ns();
	int ret, error;

	set_alarm();
	ret = ioctl(fd, SIS8300_IOC_WAIT_END, &end);
	error = errno;
	begin = now_ns() - begin;
	if (!ret)
		acquired(armed_acquisition);
	answer(line, ret, error, begin,
	       ",\"sequence\":%llu,\"time\":%llu,\"wakeup\":%llu,\"polls\":%u,\"lost\":%u",
	       U(end.sequence), U(end.time_ns), U(end.wakeup_ns), end.polls, end.lost_interrupt);
}

static void do_stats(const char *line)
{
	struct sis8300_stats s = { .size = sizeof(s), .reset = number(line, "reset", 0) };
	int ret = ioctl(fd, SIS8300_IOC_STATS, &s), error = errno;

	answer(line, ret, error, now_ns(),
	       ",\"acquisitions\":%llu,\"dmas\":%llu,\"dma_bytes\":%llu,\"user_bytes\":%llu"
	       ",\"dma_ns\":%llu,\"dma_ns_max\":%llu,\"wakeup_ns\":%llu,\"copy_ns\":%llu"
	       ",\"setup_ns\":%llu,\"map_ns\":%llu,\"interrupts\":%llu,\"lost\":%llu"
	       ",\"timeouts\":%llu,\"short\":%llu,\"stalls\":%llu,\"stall_ns\":%llu",
	       U(s.acquisitions), U(s.dmas), U(s.dma_bytes), U(s.user_bytes), U(s.dma_ns),
	       U(s.dma_ns_max), U(s.wakeup_ns), U(s.copy_ns), U(s.setup_ns), U(s.map_ns),
	       U(s.interrupts), U(s.lost_interrupts), U(s.timeouts), U(s.short_dmas), U(s.stalls),
	       U(s.stall_ns));
}

static void do_ring_setup(const char *line, __u64 buffers, __u64 bytes)
{
	struct sis8300_ring_setup wanted = {
		.size = sizeof(wanted), .buffers = buffers, .buffer_bytes = bytes,
	};
	int ret = ioctl(fd, SIS8300_IOC_RING_SETUP, &wanted), error = errno;

	if (!ret)
		ring = wanted;
	answer(line, ret, error, 0, ",\"stride\":%u", wanted.stride);
}

static void do_map(const char *line)
{
	void *got;

	map_bytes = (size_t)ring.buffers * ring.stride;
	got = mmap(NULL, map_bytes, PROT_READ, MAP_SHARED, fd, 0);
	map = got == MAP_FAILED ? NULL : got;
	answer(line, map ? 0 : -1, errno, 0, "");
}

/* Every page of the mapping can be read, whatever has become of the board. */
static void do_touch(const char *line)
{
	unsigned long sum = 0;
	size_t i;

	for (i = 0; map && i < map_bytes; i += 4096)
		sum += map[i];
	answer(line, map ? 0 : -1, EINVAL, 0, ",\"sum\":%lu", sum);
}

static void do_ring_start(const char *line)
{
	int ret, error;

	start = (struct sis8300_ring_start) {
		.size = sizeof(start),
		.flags = number(line, "triggered", 0),
		.address = number(line, "at", 0),
		.bytes = number(line, "bytes", 0),
		.passes = number(line, "passes", 0),
		.timeout_ms = number(line, "timeout", 0),
	};
	ret = ioctl(fd, SIS8300_IOC_RING_START, &start);
	error = errno;
	ring_first = next_acquisition;
	ring_count = 0;
	ring_release = UINT64_MAX;
	ring_pass = UINT64_MAX;
	answer(line, ret, error, 0, "");
}

/* The next buffer, released with the call after this one. */
static int take(struct sis8300_ring_next *next, __u64 timeout_ms, __u64 *bad)
{
	__u64 first = 0;
	int ret;

	*next = (struct sis8300_ring_next) {
		.size = sizeof(*next), .timeout_ms = timeout_ms, .release = ring_release,
	};
	ret = ioctl(fd, SIS8300_IOC_RING_NEXT, next);
	if (ret)
		return ret;
	ring_release = next->number;
	if (start.flags & SIS8300_RING_TRIGGERED && next->pass != ring_pass) {
		ring_pass = next->pass;
		next_acquisition = ring_first + ring_pass + 1;
		acquired(ring_first + ring_pass);
	}
	if (map && looks)
		*bad += count_bad(map + (__u64)ring.stride * (next->number % ring.buffers),
				  next->address, next->bytes, &first);
	return 0;
}

static void do_next(const char *line, __u64 timeout_ms)
{
	struct sis8300_ring_next next;
	__u64 bad = 0, begin = now_ns();
	int ret = take(&next, timeout_ms, &bad), error = errno;

	begin = now_ns() - begin;
	ring_count += !ret;
	answer(line, ret, error, begin,
	       ",\"number\":%llu,\"address\":%llu,\"bytes\":%u,\"pass\":%llu,\"dma_ns\":%llu"
	       ",\"bad\":%llu",
	       U(next.number), U(next.address), next.bytes, U(next.pass), U(next.dma_ns), U(bad));
}

static int compare(const void *a, const void *b)
{
	__u64 x = *(const __u64 *)a, y = *(const __u64 *)b;

	return x < y ? -1 : x > y;
}

/* Buffers until the end, an error, or so many, or so long; after each a pause of `us`. */
static void do_drain(const char *line)
{
	__u64 most = number(line, "most", UINT64_MAX), us = number(line, "us", 0), bad = 0;
	__u64 ms = number(line, "ms", UINT64_MAX / 1000000), begin = now_ns();
	__u64 buffers = 0, bytes = 0, gaps = 0, odd = 0, passes = 0, dma_ns = 0, last = 0;
	__u64 times, end;
	static __u64 each[DRAIN_TIMES];
	struct sis8300_ring_next next = {};
	int ret = 0, error = 0;

	looks = number(line, "look", 1);
	while (buffers < most && (now_ns() - begin) / 1000000 < ms) {
		ret = take(&next, number(line, "timeout", 5000), &bad);
		error = errno;
		if (ret)
			break;
		gaps += next.number != ring_count;
		ring_count = next.number + 1;
		/* Where it must come from, and in which order of time. */
		odd += next.end_ns < last || next.address < start.address ||
		       next.address + next.bytes > start.address + start.bytes ||
		       next.bytes > ring.buffer_bytes;
		last = next.end_ns;
		passes = next.pass + 1;
		dma_ns += next.dma_ns;
		each[buffers % DRAIN_TIMES] = next.dma_ns;
		bytes += next.bytes;
		buffers++;
		if (us)
			usleep(us);
	}
	end = now_ns();
	times = buffers < DRAIN_TIMES ? buffers : DRAIN_TIMES;
	qsort(each, times, sizeof(*each), compare);
	answer(line, ret, error, end - begin,
	       ",\"buffers\":%llu,\"bytes\":%llu,\"gaps\":%llu,\"odd\":%llu,\"bad\":%llu"
	       ",\"passes\":%llu,\"dma_ns\":%llu,\"dma_min\":%llu,\"dma_p25\":%llu"
	       ",\"dma_p50\":%llu",
	       U(buffers), U(bytes), U(gaps), U(odd), U(bad), U(passes), U(dma_ns),
	       U(times ? each[0] : 0), U(times ? each[times / 4] : 0),
	       U(times ? each[times / 2] : 0));
}

static void do_ess_wait(const char *line, unsigned long request, __u64 timeout_ms, __u64 type)
{
	struct sis8300_wait wait = { timeout_ms, type, 99 };
	__u64 begin = now_ns();
	int ret = ioctl(fd, request, &wait), error = errno;

	if (!ret && !wait.status && request == SIS8300_WAIT && type == SIS8300_WAIT_DAQ)
		acquired(armed_acquisition);
	answer(line, ret, error, now_ns() - begin, ",\"status\":%u", wait.status);
}

static void do_register(const char *line, unsigned long request, __u64 word, __u64 value)
{
	struct sis8300_reg reg = { word, value };
	int ret = ioctl(fd, request, &reg), error = errno;

	/* Started, or armed. */
	if (!ret && request == SIS8300_REG_WRITE && word == 0x10 && value & 3)
		armed_acquisition = next_acquisition++;
	answer(line, ret, error, 0, ",\"data\":%u", reg.data);
}

static void do_poll(const char *line, __u64 timeout_ms)
{
	struct pollfd poller = { .fd = fd, .events = POLLIN };
	__u64 begin = now_ns();
	int ret = poll(&poller, 1, timeout_ms), error = errno;

	answer(line, ret, error, now_ns() - begin, ",\"in\":%d,\"err\":%d,\"hup\":%d",
	       !!(poller.revents & POLLIN), !!(poller.revents & POLLERR),
	       !!(poller.revents & POLLHUP));
}

static void do_open(const char *line, unsigned int n)
{
	int got = open(path, O_RDWR | O_CLOEXEC);

	if (got >= 0) {
		fds[n] = got;
		fd = got;
	}
	answer(line, got < 0 ? -1 : 0, errno, 0, "");
}

static void do_simple(const char *line, long ret)
{
	answer(line, ret, errno, 0, "");
}

static bool is(const char *line, const char *word)
{
	size_t length = strlen(word);

	return !strncmp(line, word, length) && (!line[length] || line[length] == ' ');
}

static bool do_ring(const char *line, __u64 a, __u64 b)
{
	if (is(line, "ring-setup"))
		do_ring_setup(line, a, b);
	else if (is(line, "ring-start"))
		do_ring_start(line);
	else if (is(line, "ring-stop"))
		do_simple(line, ioctl(fd, SIS8300_IOC_RING_STOP));
	else if (is(line, "map"))
		do_map(line);
	else if (is(line, "unmap"))
		do_simple(line, munmap(map, map_bytes)), map = NULL;
	else if (is(line, "touch"))
		do_touch(line);
	else if (is(line, "next"))
		do_next(line, a);
	else if (is(line, "drain"))
		do_drain(line);
	else
		return false;
	return true;
}

static bool do_ess(const char *line, __u64 a, __u64 b)
{
	if (is(line, "reg-read"))
		do_register(line, SIS8300_REG_READ, a, 0);
	else if (is(line, "reg-write"))
		do_register(line, SIS8300_REG_WRITE, a, b);
	else if (is(line, "ess-wait"))
		do_ess_wait(line, SIS8300_WAIT, a, b);
	else if (is(line, "ess-release"))
		do_ess_wait(line, SIS8300_RELEASE, a, b);
	else
		return false;
	return true;
}

static bool do_file(const char *line, __u64 a, __u64 b, __u64 c)
{
	if (is(line, "open") && a < FILES)
		do_open(line, a);
	else if (is(line, "use") && a < FILES)
		fd = fds[a];
	else if (is(line, "close") && a < FILES)
		do_simple(line, close(fds[a]));
	else if (is(line, "seek"))
		do_simple(line, lseek(fd, a, b));
	else if (is(line, "read"))
		do_read(line, a, false, 0);
	else if (is(line, "pread"))
		do_read(line, b, true, a);
	else if (is(line, "read-on"))
		do_read_on(line, a, b, c);
	else if (is(line, "pwrite"))
		do_write(line, a, b);
	else if (is(line, "poll"))
		do_poll(line, a);
	else if (is(line, "alarm"))
		alarm_ms = a;
	else if (is(line, "sleep"))
		usleep(a * 1000);
	else
		return false;
	return true;
}

static bool do_line(const char *line)
{
	char *at = (char *)line + strcspn(line, " ");
	__u64 a = strtoull(at, &at, 0), b = strtoull(at, &at, 0), c = strtoull(at, &at, 0);

	if (is(line, "acq"))
		next_acquisition = a;
	else if (is(line, "acquired"))
		acquired(armed_acquisition);
	else if (is(line, "setup"))
		do_setup(line);
	else if (is(line, "arm"))
		do_arm(line);
	else if (is(line, "wait"))
		do_wait(line, a);
	else if (is(line, "disarm"))
		do_simple(line, ioctl(fd, SIS8300_IOC_DISARM));
	else if (is(line, "stats"))
		do_stats(line);
	else
		return do_ring(line, a, b) || do_ess(line, a, b) || do_file(line, a, b, c);
	return true;
}

int main(int argc, char **argv)
{
	char line[256];

	if (argc < 2)
		return 2;
	path = argv[1];
	seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
	fd = open(path, O_RDWR | O_CLOEXEC);
	fds[0] = fd;
	info.size = sizeof(info);
	if (fd < 0 || ioctl(fd, SIS8300_IOC_INFO, &info)) {
		answer("open", -1, errno, 0, "");
		return 0;
	}
	answer("open", 0, 0, 0,
	       ",\"module_id\":%u,\"serial\":%u,\"flags\":%u,\"chunk\":%u,\"memory\":%llu,\"block\":%u",
	       info.module_id, info.serial & 0xffff, info.flags, info.chunk_bytes,
	       U(info.memory_bytes), info.block_samples);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (*line && !do_line(line)) {
			fprintf(stderr, "sis8300_drive: %s?\n", line);
			return 2;
		}
	}
	return 0;
}

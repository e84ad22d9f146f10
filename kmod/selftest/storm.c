// SPDX-License-Identifier: GPL-2.0-only
/*
 * A storm of calls on the modules' interfaces, steered by what code they reach.
 *
 *   storm SECONDS SEED CORPUS [pcilat=BDF] [sis8300=NODE,BDF] [pmu=NAME]... [cpu=N]
 *
 * A sequence of calls is a string of bytes, from which each call takes its number
 * and its arguments; bytes that are missing are 0. A line of CORPUS is a sequence
 * in hexadecimal. Three processes carry out those of CORPUS, then changed ones;
 * the first also takes drivers, devices and CPU N away and brings them back. Where
 * the kernel has KCOV, a sequence that reaches a new edge between two places of the
 * modules joins CORPUS. SECONDS 0: one process carries out CORPUS once, and lines
 * that reach nothing new go.
 *
 * One line of JSON at the end. An errno that the interface's description has not,
 * or a byte written where none may be, ends it with a message and status 1.
 * Whoever calls it looks at the kernel's log.
 */
#define _GNU_SOURCE
#include <dirent.h>
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
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/kcov.h>
#include <linux/pcilat.h>
#include <linux/perf_event.h>
#include <linux/sis8300.h>

#define PROCESSES	3
#define BYTES_MAX	192
#define POOL_MAX	8192
#define OPS_MAX		64
#define ERRNOS		134
#define KCOV_WORDS	65536
#define PCS_BITS	20
#define EDGES_BITS	22
#define ALARM_US	100000	/* how long a call may wait */
#define REST_S		0.3	/* between two that take something away */
#define BUFFER		65536
#define SKIPPED		(-2)

enum target { PCILAT, SIS8300, PMU, ADMIN, TARGETS };

struct bytes {
	unsigned int length;
	unsigned char data[BYTES_MAX];
};

/* What the processes share. */
static struct {
	unsigned int pool, replayed, kept;
	unsigned long long sequences;
	unsigned long long calls[OPS_MAX][ERRNOS];
	__u64 pcs[1 << (PCS_BITS - 6)], edges[1 << (EDGES_BITS - 6)];
	struct bytes sequences_of[POOL_MAX];
} *shared;

static const char *corpus, *pcilat, *sis8300, *sis8300_node, *pmus[16], *cpu;
static unsigned int npmus;
static char drw_device[64], port[32];
static __u64 state;
static unsigned long *kcov;
static bool is_admin, is_away, is_replay;
static double last_away;

static struct bytes sequence;
static unsigned int at;
static int files[TARGETS][4];	/* each opened when first used */
static struct {
	unsigned char *from;
	size_t length;
} maps[4];
static __u32 cpus[] = { 0, 1, 2, 3, 1, 0 }, vectors[] = { 0, 1, 2, 3, 4, 15 };
static __u64 buckets[PCILAT_HIST_BUCKETS];
static unsigned char buffer[BUFFER + 4096];

static void fail(const char *format, ...)
{
	va_list args;
	unsigned int i;

	va_start(args, format);
	fprintf(stderr, "storm: ");
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\nsequence, up to byte %u: ", at);
	for (i = 0; i < sequence.length; i++)
		fprintf(stderr, "%02x", sequence.data[i]);
	fprintf(stderr, "\n");
	exit(1);
}

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

static unsigned int next(void)
{
	return at < sequence.length ? sequence.data[at++] : 0;
}

static unsigned int next16(void)
{
	unsigned int high = next();

	return high << 8 | next();
}

/* No address that this program has: those are below or 64 bits wide. */
static __u32 odd_number(void)
{
	static const __u32 edges[] = {
		0, 1, 2, 3, 4, 7, 8, 16, 63, 64, 0x7f, 0x80, 0xff, 0x100, 0xfff, 0x1000,
		0x7fffffff, 0x80000000, 0xffffffff, 0xfffffffe, 3600001, 1000001,
	};
	unsigned int kind = next();

	if (kind < 0xa0)
		return edges[kind % (sizeof(edges) / sizeof(*edges))];
	return kind < 0xe0 ? next() : next16() | 1u << 31;
}

static bool write_text(const char *text, const char *format, ...)
{
	char path[256];
	bool is_written;
	va_list args;
	int fd;

	va_start(args, format);
	vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	is_written = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	close(fd);
	return is_written;
}

static bool is_there(const char *format, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), format, name);
	return !access(path, F_OK);
}

/* Good requests, of which single words are changed afterwards. */
union request {
	struct pcilat_info info;
	struct pcilat_run run;
	struct pcilat_slot slot;
	struct pcilat_hist hist;
	struct pcilat_reg reg;
	struct sis8300_reg ess_reg;
	struct sis8300_wait wait;
	struct sis8300_setup setup;
	struct sis8300_end end;
	struct sis8300_stats stats;
	struct sis8300_ring_setup ring;
	struct sis8300_ring_start start;
	struct sis8300_ring_next next;
	__u32 words[1024];
};

static void good_place(__u32 *bar, __u32 *width, __u64 *offset)
{
	*bar = next() % 3 * 2;
	*width = 1 << next() % 4;
	*offset = (next() % 4 ? next() : next16()) & -*width & (*bar == 4 ? 0xfff : 0xffff);
}

static void good_run(union request *r)
{
	struct pcilat_run *run = &r->run;
	unsigned int first = next() % 4;

	run->kind = 1 + next() % 5;
	run->order = 1 + next() % 3;
	run->cpus = (uintptr_t)(cpus + first);
	run->ncpus = 1 + next() % (first < 2 ? 4 - first : 2);
	run->rounds = run->order == PCILAT_ORDER_INTERLEAVED ? 1 + next() % 3 : 0;
	run->count = 1 + next() % 50;
	run->flags = next() % 4;
	run->gap_ns = next() % 3 * 500;
	if (run->kind == PCILAT_KIND_IRQ) {
		run->flags &= PCILAT_RUN_RAW;
		run->order = 1 + run->order % 2;
		run->rounds = run->order == PCILAT_ORDER_INTERLEAVED;
		run->vectors = (uintptr_t)(vectors + next() % 4);
		run->nvectors = 1 + next() % 2;
		run->source = 1 + next() % 3;
		run->trigger_cpu = next() % 3 - 1;
		run->warmup = next() % 4;
		run->timeout_ns = 10000000;
		run->interval_ns = next() % 3 * 100000;
		run->gap_ns = run->interval_ns ? 0 : run->gap_ns;
		return;
	}
	run->batch = 1 + next() % 4;
	run->duration_ns = next() % 2 * 20000000;
	run->width = 4;
	if (run->kind == PCILAT_KIND_CONFIG)
		return;
	good_place(&run->bar, &run->width, &run->offset);
	if (run->kind != PCILAT_KIND_READ)
		run->value = next();
}

static void good_slot(union request *r)
{
	r->slot.slot = next() % 8;
}

static void good_hist(union request *r)
{
	r->hist.slot = next() % 8;
	r->hist.what = next() % 3;
	r->hist.first = next16() % PCILAT_HIST_BUCKETS;
	r->hist.count = 1 + next16() % (PCILAT_HIST_BUCKETS - r->hist.first);
	r->hist.buckets = (uintptr_t)buckets;
}

static void good_reg(union request *r)
{
	r->reg.write = next() % 2;
	good_place(&r->reg.bar, &r->reg.width, &r->reg.offset);
	if (r->reg.write)
		r->reg.value = next();
}

static void good_ess_reg(union request *r)
{
	r->ess_reg.offset = next16() % 0x500;
	r->ess_reg.data = odd_number();
}

static void good_wait(union request *r)
{
	r->wait.timeout_ms = 1 + next() % 20;
	r->wait.type = next() % 2;
}

static void good_setup(union request *r)
{
	unsigned int how = next();

	r->setup.channels = how & 1 ? 1 : (next16() & 0x3ff) | 1;
	r->setup.samples = 16 + 16 * (how & 2 ? next16() : next());
	r->setup.clock = how & 4 ? 0 : next() % 7;
	r->setup.divider = 2 + next() % 31;
	r->setup.trigger = how & 8 ? 0 : next() % 4;
	r->setup.pretrigger = r->setup.trigger ? next() * 8 : 0;
	if (r->setup.trigger >= SIS8300_TRIGGER_MLVDS) {
		r->setup.trigger_lines = 1 << next() % 4;
		r->setup.trigger_falling = next() % 2 ? r->setup.trigger_lines : 0;
	}
}

static void good_end(union request *r)
{
	r->end.flags = next() % 2;
	r->end.timeout_ms = 1 + next() % 90;
	r->end.poll_us = r->end.flags ? next() * 4 : 0;
}

static void good_stats(union request *r)
{
	r->stats.reset = next() % 2;
}

static void good_ring(union request *r)
{
	unsigned int buffers = next() % 8;

	r->ring.buffers = buffers ? 1 + buffers : 0;
	r->ring.buffer_bytes = 64 * (1 + next());
}

static void good_start(union request *r)
{
	r->start.flags = next() % 2;
	r->start.address = 64 * next16();
	r->start.bytes = 64 * (1 + next16() % 4096);
	r->start.passes = next() % 4;
	r->start.timeout_ms = r->start.flags ? 1 + next() % 90 : 0;
}

static void good_next(union request *r)
{
	r->next.timeout_ms = next() % 50;
	r->next.release = next() % 2 ? next() % 8 : UINT64_MAX;
}

/* The calls. Each gives what the system call gave, or SKIPPED. */
struct op {
	const char *name;
	enum target target;
	long (*call)(const struct op *op);
	const unsigned char *errnos;	/* that it may give; null: any */
	unsigned long number;
	void (*good)(union request *r);
};

static int open_target(enum target target)
{
	char path[128];

	if (target == PCILAT)
		snprintf(path, sizeof(path), "/dev/pcilat/%s", pcilat);
	else
		snprintf(path, sizeof(path), "%s", sis8300_node);
	return open(path, O_RDWR | O_CLOEXEC);
}

/* The file that the bytes choose, opened where it is not; -1: there is none. */
static int file_of(enum target target)
{
	int *fd = &files[target][next() % 4 / (target == PMU ? 1 : 2)];

	if (*fd < 0 && target != PMU) {
		*fd = open_target(target);
		if (*fd < 0 && errno != ENOENT && errno != ENXIO && errno != ENODEV)
			fail("open: %s", strerrorname_np(errno));
	}
	return *fd;
}

static long call_ioctl(const struct op *op)
{
	static union request r;
	static const __u32 zeros[64];
	unsigned int size = _IOC_SIZE(op->number), changes, bad;
	int fd = file_of(op->target), ret, error;
	void *argument = &r;

	if (fd < 0)
		return SKIPPED;
	memset(&r, 0, sizeof(r));
	if (_IOC_NR(op->number) >= 0x40 || op->target == PCILAT)
		r.words[0] = size;
	if (op->good)
		op->good(&r);
	bad = next();
	for (changes = bad < 0xb0 ? 0 : bad & 3; size && changes; changes--)
		r.words[next() % (size / 4)] = odd_number();
	if (bad == 0xfe)
		argument = NULL;
	else if (bad == 0xff)
		argument = (void *)0xffff888000000000ul;
	ret = ioctl(fd, op->number, argument);
	error = errno;
	if (memcmp(r.words + size / 4, zeros, sizeof(zeros)))
		fail("%s wrote beyond its structure", op->name);
	errno = error;
	return ret;
}

static long call_unknown(const struct op *op)
{
	int fd = file_of(op->target);

	return fd < 0 ? SKIPPED : ioctl(fd, op->number | next(), NULL);
}

/* read(), pread(), write() and pwrite(), by the op's number. */
static long call_transfer(const struct op *op)
{
	int fd = file_of(op->target), error;
	size_t size = 16 * (next16() % (BUFFER / 16 + 1)), i;
	unsigned int odd = next();
	long ret, offset = op->number & 2 ? 16L * next16() : 0;

	if (fd < 0)
		return SKIPPED;
	if (odd > 0xe0)
		size = odd % 32;
	if (odd == 0xe0)
		offset = (long)odd_number() << 32 | odd_number();
	memset(buffer + size, 0xa5, 256);
	if (op->number & 1)
		ret = op->number & 2 ? pwrite(fd, buffer, size, offset) : write(fd, buffer, size);
	else
		ret = op->number & 2 ? pread(fd, buffer, size, offset) : read(fd, buffer, size);
	error = errno;
	for (i = size; i < size + 256; i++) {
		if (buffer[i] != 0xa5)
			fail("%s of %zu bytes wrote beyond them", op->name, size);
	}
	if (ret > (long)size)
		fail("%s gave %ld of %zu bytes", op->name, ret, size);
	errno = error;
	return ret;
}

static long call_seek(const struct op *op)
{
	int fd = file_of(op->target), whence = next() % 4;

	return fd < 0 ? SKIPPED : lseek(fd, (long)(int)odd_number() * 16, whence) < 0 ? -1 : 0;
}

static long call_poll(const struct op *op)
{
	struct pollfd one = { .fd = file_of(op->target), .events = POLLIN | POLLOUT };

	return one.fd < 0 ? SKIPPED : poll(&one, 1, next() % 10);
}

static long call_close(const struct op *op)
{
	int *fd = &files[op->target][next() % 4 / (op->target == PMU ? 1 : 2)], was = *fd;

	*fd = -1;
	return was < 0 ? SKIPPED : close(was);
}

static long call_mmap(const struct op *op)
{
	unsigned int n = next() % 4, how = next();
	size_t length = 4096 * (1 + next() % 20);
	int fd = file_of(op->target), prot = how & 7 ? PROT_READ : PROT_READ | PROT_WRITE;
	void *from;

	if (fd < 0 || maps[n].from)
		return SKIPPED;
	from = mmap(NULL, length, prot, how & 8 && how & 16 ? MAP_PRIVATE : MAP_SHARED, fd,
		    how > 0xf0 ? 4096 : 0);
	if (from == MAP_FAILED)
		return -1;
	maps[n].from = from;
	maps[n].length = length;
	/* Looks at each page; no signal where one is gone. */
	madvise(from, length, MADV_POPULATE_READ);
	return 0;
}

static long call_munmap(const struct op *op)
{
	unsigned int n = next() % 4;
	void *from = maps[n].from;

	(void)op;
	maps[n].from = NULL;
	return from ? munmap(from, maps[n].length) : SKIPPED;
}

static const char * const nodes[] = { "iomem", "interrupt", "devreg" };

static long call_command(const struct op *op)
{
	static const char * const words[3][8] = {
		{ "run", "clear", "-1", "0", "2", "10", "100", "4294967296" },
		{ "1", "0", "trigger", "swtrigger", "swmatrix 2", "swloop 2", "iterations 3",
		  "clear" },
		{ "0x0", "0x8 1", "2:0x10/8", "0:0x80 1", "4:0x0 1", "clear", "0x4/2", "0x10000" },
	};
	static const char * const more[] = { "", "", "", " 0", " 1", " 0x3", " x", " -1" };
	unsigned int which = next() % 3, i, n = next() % 3;
	char path[128], text[128];
	long ret;
	int fd;

	(void)op;
	snprintf(path, sizeof(path), "/sys/class/pcilat/%s/pcilat_%s", pcilat, nodes[which]);
	snprintf(text, sizeof(text), "%s", words[which][next() % 8]);
	for (i = 0; i < n; i++)
		strcat(text, more[next() % 8]);
	if (!strcmp(text, "run") || (!strncmp(text, "sw", 2) && !n))
		strcat(text, which ? " 1" : " 0 20 100");
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return SKIPPED;
	ret = write(fd, text, strlen(text));
	i = errno;
	close(fd);
	errno = i;
	return ret;
}

static long call_show(const struct op *op)
{
	unsigned int which = next() % 3, how = next(), error, n;
	char path[128];
	long ret = 0;
	int fd;

	(void)op;
	if (how & 1)
		snprintf(path, sizeof(path), "/dev/pcilatdriver/%s/%s", pcilat, nodes[which]);
	else
		snprintf(path, sizeof(path), "/sys/class/pcilat/%s/pcilat_%s", pcilat, nodes[which]);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return SKIPPED;
	for (n = 0; n < 4 && ret >= 0; n++)
		ret = how & 2 ? pread(fd, buffer, 1 + next16() % 8192, next16()) :
				read(fd, buffer, 1 + next16() % 8192);
	error = errno;
	close(fd);
	errno = error;
	return ret;
}

static bool read_number(const char *pmu, const char *file, unsigned int *number)
{
	char path[256];
	bool is_read;
	FILE *from;

	snprintf(path, sizeof(path), "/sys/bus/event_source/devices/%s/%s", pmu, file);
	from = fopen(path, "re");
	is_read = from && fscanf(from, "%u", number) == 1;
	if (from)
		fclose(from);
	return is_read;
}

static long call_event(const struct op *op)
{
	static const __u16 reports[] = { 0x00, 0x01, 0x04, 0x07, 0x20, 0x21, 0x22, 0x23 };
	struct perf_event_attr attr = { .size = sizeof(attr) };
	int *fd = &files[PMU][next() % 4], leader = -1, pid = -1;
	unsigned int type, on = 0, which = next(), how = next(), changes = next();
	const char *pmu = npmus ? pmus[which % npmus] : NULL;

	(void)op;
	if (*fd >= 0 || !pmu || !read_number(pmu, "type", &type))
		return SKIPPED;
	read_number(pmu, "cpumask", &on);
	attr.type = type;
	if (strncmp(pmu, "dwc_", 4))
		attr.config = next() % 0x42;
	else
		attr.config = how & 1 ? reports[next() % 8] : 0x10000 | (next16() & 0x70f);
	attr.read_format = next() % 32;
	attr.disabled = how >> 1 & 1;
	attr.pinned = (how & 0x0c) == 0x0c;
	if (how & 0x10)
		leader = files[PMU][next() % 4];
	if (how & 0x20)
		attr.pinned = 0, attr.exclusive = leader < 0 && next() % 2;
	for (changes = changes < 0xc0 ? 0 : changes & 3; changes; changes--) {
		if (next() & 1)
			((__u32 *)&attr)[next() % (sizeof(attr) / 4)] = odd_number();
		else if (next() & 1)
			on = next() % 8 - 1;
		else
			pid = next() % 2 - 1;
	}
	*fd = syscall(SYS_perf_event_open, &attr, pid, on, leader, PERF_FLAG_FD_CLOEXEC);
	return *fd < 0 ? -1 : 0;
}

static long call_event_ioctl(const struct op *op)
{
	static const unsigned long requests[] = {
		PERF_EVENT_IOC_ENABLE, PERF_EVENT_IOC_DISABLE, PERF_EVENT_IOC_REFRESH,
		PERF_EVENT_IOC_RESET, PERF_EVENT_IOC_PERIOD, PERF_EVENT_IOC_ENABLE,
		PERF_EVENT_IOC_SET_OUTPUT, PERF_EVENT_IOC_PAUSE_OUTPUT,
	};
	int fd = file_of(op->target);
	__u64 period = 1 + next();
	unsigned int which = next() % 8;

	if (fd < 0)
		return SKIPPED;
	return ioctl(fd, requests[which], which == 4 ? (unsigned long)&period : next() & 1);
}

/* Brings back all that was taken away. False: not possible now. */
static bool bring_back(void)
{
	static const char device[] = "/sys/bus/pci/devices/%s";
	static const char driven[] = "/sys/bus/pci/devices/%s/driver";
	static const char counts[] = "/sys/bus/platform/drivers/drw_pmu/%s";

	if (cpu && !write_text("1", "/sys/devices/system/cpu/cpu%s/online", cpu))
		return false;
	if ((pcilat && !is_there(device, pcilat)) || (sis8300 && !is_there(device, sis8300)) ||
	    (*port && !is_there(device, port)))
		write_text("1", "/sys/bus/pci/rescan");
	if (pcilat && !is_there(driven, pcilat)) {
		write_text("pcilat", "/sys/bus/pci/devices/%s/driver_override", pcilat);
		write_text(pcilat, "/sys/bus/pci/drivers_probe");
	}
	if (sis8300 && !is_there(driven, sis8300))
		write_text(sis8300, "/sys/bus/pci/drivers/sis8300/bind");
	if (*drw_device && !is_there(counts, drw_device))
		write_text(drw_device, "/sys/bus/platform/drivers/drw_pmu/bind");
	is_away = false;
	return (!pcilat || is_there(driven, pcilat)) && (!sis8300 || is_there(driven, sis8300)) &&
	       (!*port || is_there(device, port)) && (!*drw_device || is_there(counts, drw_device));
}

static void must_bring_back(void)
{
	int tries;

	for (tries = 0; !bring_back(); tries++) {
		if (tries == 500)
			fail("not all that was taken away came back");
		usleep(10000);
	}
}

static long call_admin(const struct op *op)
{
	unsigned int what = next() % 9;
	const char *device = what & 1 ? sis8300 : pcilat;
	bool is_done = false;

	(void)op;
	if (!is_admin || (!is_replay && now() < last_away + REST_S))
		return SKIPPED;
	last_away = now();
	if (what < 6 && !device)
		return SKIPPED;
	is_away = true;
	errno = 0;
	if (what < 2)
		is_done = write_text(device, "/sys/bus/pci/drivers/%s/unbind",
				     what ? "sis8300" : "pcilat");
	else if (what < 4)
		is_done = write_text("1", "/sys/bus/pci/devices/%s/remove", device);
	else if (what < 6)
		is_done = write_text("1", "/sys/bus/pci/devices/%s/reset", device);
	else if (what == 6 && *drw_device)
		is_done = write_text(drw_device, "/sys/bus/platform/drivers/drw_pmu/unbind");
	else if (what == 7 && *port)
		is_done = write_text("1", "/sys/bus/pci/devices/%s/remove", port);
	else if (what == 8 && cpu)
		is_done = write_text("0", "/sys/devices/system/cpu/cpu%s/online", cpu);
	return is_done ? 0 : -1;
}

static long call_back(const struct op *op)
{
	(void)op;
	if (!is_admin || !is_away)
		return SKIPPED;
	must_bring_back();
	return 0;
}

/* What each call may give, by the interface's description. */
static const unsigned char of_query[] = {
	EINVAL, E2BIG, EFAULT, ENODEV, ENOMEM, ECANCELED, ENODATA, EBUSY, ENOTTY, EINTR, EPERM,
	ESPIPE, 0
};

static const unsigned char of_pcilat[] = {
	EINVAL, E2BIG, EFAULT, ENODEV, ENOMEM, ERANGE, EACCES, EIO, ENXIO, EOPNOTSUPP, ETIMEDOUT,
	EPERM, EBUSY, EINTR, ECANCELED, 0
};

static const unsigned char of_sis8300[] = {
	EINVAL, E2BIG, EFAULT, ENODEV, ENOMEM, EBUSY, ETIMEDOUT, EIO, EINTR, EOPNOTSUPP, ENODATA,
	ECANCELED, EPERM, ENOSPC, EAGAIN, ENOTTY, 0
};

static const unsigned char of_event[] = {
	EINVAL, ENODEV, ENOENT, EOPNOTSUPP, EBADF, ESRCH, E2BIG, EBUSY, EACCES, ENOSPC, EINTR, 0
};

static const unsigned char of_position[] = { EINVAL, ESPIPE, 0 };
static const unsigned char of_end[] = { EINTR, 0 };

#define PL(name, errnos, number, good)						\
	{ "pcilat " name, PCILAT, call_ioctl, errnos, number, good }
#define SIS(name, number, good)							\
	{ "sis8300 " name, SIS8300, call_ioctl, of_sis8300, number, good }
#define CALL(name, target, call, errnos, number)				\
	{ name, target, call, errnos, number, NULL }

static const struct op ops[] = {
	PL("info", of_query, PCILAT_IOC_INFO, NULL),
	PL("status", of_query, PCILAT_IOC_STATUS, NULL),
	PL("slot", of_query, PCILAT_IOC_SLOT, good_slot),
	PL("hist", of_query, PCILAT_IOC_HIST, good_hist),
	PL("run", of_pcilat, PCILAT_IOC_RUN, good_run),
	PL("run", of_pcilat, PCILAT_IOC_RUN, good_run),
	PL("reg", of_pcilat, PCILAT_IOC_REG, good_reg),
	CALL("pcilat unknown", PCILAT, call_unknown, of_query, 0xb700),
	CALL("pcilat read", PCILAT, call_transfer, of_query, 0),
	CALL("pcilat pwrite", PCILAT, call_transfer, of_position, 3),
	CALL("pcilat lseek", PCILAT, call_seek, of_position, 0),
	CALL("pcilat poll", PCILAT, call_poll, of_end, 0),
	CALL("pcilat mmap", PCILAT, call_mmap, of_query, 0),
	CALL("pcilat close", PCILAT, call_close, of_end, 0),
	CALL("pcilat command", PCILAT, call_command, of_pcilat, 0),
	CALL("pcilat show", PCILAT, call_show, of_query, 0),
	SIS("register read", SIS8300_REG_READ, good_ess_reg),
	SIS("register write", SIS8300_REG_WRITE, good_ess_reg),
	SIS("wait", SIS8300_WAIT, good_wait),
	SIS("release", SIS8300_RELEASE, good_wait),
	SIS("info", SIS8300_IOC_INFO, NULL),
	SIS("setup", SIS8300_IOC_SETUP, good_setup),
	SIS("get setup", SIS8300_IOC_GET_SETUP, NULL),
	SIS("arm", SIS8300_IOC_ARM, NULL),
	SIS("disarm", SIS8300_IOC_DISARM, NULL),
	SIS("wait end", SIS8300_IOC_WAIT_END, good_end),
	SIS("stats", SIS8300_IOC_STATS, good_stats),
	SIS("ring setup", SIS8300_IOC_RING_SETUP, good_ring),
	SIS("ring start", SIS8300_IOC_RING_START, good_start),
	SIS("ring next", SIS8300_IOC_RING_NEXT, good_next),
	SIS("ring stop", SIS8300_IOC_RING_STOP, NULL),
	CALL("sis8300 unknown", SIS8300, call_unknown, of_sis8300, 0x7300),
	CALL("sis8300 read", SIS8300, call_transfer, of_sis8300, 0),
	CALL("sis8300 write", SIS8300, call_transfer, of_sis8300, 1),
	CALL("sis8300 pread", SIS8300, call_transfer, of_sis8300, 2),
	CALL("sis8300 pwrite", SIS8300, call_transfer, of_sis8300, 3),
	CALL("sis8300 lseek", SIS8300, call_seek, of_sis8300, 0),
	CALL("sis8300 poll", SIS8300, call_poll, of_end, 0),
	CALL("sis8300 mmap", SIS8300, call_mmap, of_sis8300, 0),
	CALL("sis8300 close", SIS8300, call_close, of_end, 0),
	CALL("event open", PMU, call_event, of_event, 0),
	CALL("event open", PMU, call_event, of_event, 0),
	CALL("event read", PMU, call_transfer, of_event, 0),
	CALL("event ioctl", PMU, call_event_ioctl, NULL, 0),
	CALL("event mmap", PMU, call_mmap, NULL, 0),
	CALL("event close", PMU, call_close, of_end, 0),
	CALL("munmap", ADMIN, call_munmap, NULL, 0),
	CALL("take away", ADMIN, call_admin, NULL, 0),
	CALL("bring back", ADMIN, call_back, NULL, 0),
};

#define OPS	(sizeof(ops) / sizeof(*ops))

static void add(unsigned long long *n)
{
	__atomic_fetch_add(n, 1, __ATOMIC_RELAXED);
}

static bool set_bit(__u64 *bits, unsigned int n)
{
	__u64 bit = 1ull << n % 64;

	return !(__atomic_fetch_or(&bits[n / 64], bit, __ATOMIC_RELAXED) & bit);
}

/* True: the call reached an edge that none before it did. */
static bool harvest(void)
{
	unsigned long n = kcov ? __atomic_load_n(&kcov[0], __ATOMIC_RELAXED) : 0, i;
	__u64 last = 0, pc;
	bool is_new = false;

	for (i = 0; i < n; i++, last = pc) {
		pc = kcov[i + 1] * 0x9e3779b97f4a7c15;
		set_bit(shared->pcs, pc >> (64 - PCS_BITS));
		is_new |= set_bit(shared->edges, ((last >> 1) ^ pc) >> (64 - EDGES_BITS));
	}
	return is_new;
}

static bool is_allowed(const unsigned char *errnos, int error)
{
	return !errnos || strchr((const char *)errnos, error);
}

/* True: it reached something new. */
static bool carry_out(void)
{
	bool is_new = false;
	unsigned int i, k;

	for (at = 0; at < sequence.length;) {
		unsigned int n = next() % OPS;
		const struct op *op = &ops[n];
		long ret;

		if ((op->target == PCILAT && !pcilat) || (op->target == SIS8300 && !sis8300))
			continue;
		if (kcov)
			__atomic_store_n(&kcov[0], 0, __ATOMIC_RELAXED);
		ret = op->call(op);
		if (ret == SKIPPED)
			continue;
		if (ret < 0 && !is_allowed(op->errnos, errno))
			fail("%s: %s", op->name, strerrorname_np(errno));
		add(&shared->calls[n][ret < 0 ? errno % ERRNOS : 0]);
		is_new |= harvest();
	}
	if (kcov)
		__atomic_store_n(&kcov[0], 0, __ATOMIC_RELAXED);
	for (i = 0; i < 4; i++) {
		if (maps[i].from)
			munmap(maps[i].from, maps[i].length);
		maps[i].from = NULL;
		for (k = 0; k < TARGETS; k++) {
			if (files[k][i] >= 0)
				close(files[k][i]);
			files[k][i] = -1;
		}
	}
	if (is_away)
		must_bring_back();
	add(&shared->sequences);
	return harvest() || is_new;
}

static void put_line(int fd, const struct bytes *one)
{
	char line[2 * BYTES_MAX + 2];
	unsigned int i;

	for (i = 0; i < one->length; i++)
		snprintf(line + 2 * i, 3, "%02x", one->data[i]);
	line[2 * i] = '\n';
	if (write(fd, line, 2 * i + 1) != (ssize_t)(2 * i + 1))
		fail("cannot write to %s", corpus);
}

static void keep(int fd)
{
	unsigned int n = __atomic_fetch_add(&shared->pool, 1, __ATOMIC_RELAXED);

	if (n >= POOL_MAX)
		return;
	memcpy(shared->sequences_of[n].data, sequence.data, sequence.length);
	__atomic_store_n(&shared->sequences_of[n].length, sequence.length, __ATOMIC_RELEASE);
	__atomic_fetch_add(&shared->kept, 1, __ATOMIC_RELAXED);
	put_line(fd, &sequence);
}

static const struct bytes *draw_kept(void)
{
	unsigned int n = __atomic_load_n(&shared->pool, __ATOMIC_RELAXED);
	const struct bytes *one;

	n = n < POOL_MAX ? n : POOL_MAX;
	/* The last ones more often. */
	one = n ? &shared->sequences_of[draw(3) && n > 64 ? n - 1 - draw(64) : draw(n)] : NULL;
	return one && __atomic_load_n(&one->length, __ATOMIC_ACQUIRE) ? one : NULL;
}

/* Puts bytes in place of @gone bytes at @from. */
static void replace(unsigned int from, unsigned int gone, const unsigned char *data, unsigned int n)
{
	unsigned int rest = sequence.length - from - gone;

	n = from + n > BYTES_MAX ? BYTES_MAX - from : n;
	rest = from + n + rest > BYTES_MAX ? BYTES_MAX - from - n : rest;
	memmove(sequence.data + from + n, sequence.data + from + gone, rest);
	memcpy(sequence.data + from, data, n);
	sequence.length = from + n + rest;
}

static void change(void)
{
	unsigned int from = draw(sequence.length), n = 1 + draw(16), i;
	const struct bytes *other = draw_kept();
	unsigned char data[BYTES_MAX];

	n = from + n > sequence.length ? sequence.length - from : n;
	for (i = 0; i < sizeof(data); i++)
		data[i] = draw(256);
	switch (draw(7)) {
	case 0:
		sequence.data[from] += draw(2) ? 1 : -1;
		break;
	case 1:
		replace(from, 0, data, 1 + draw(8));
		break;
	case 2:
		if (n < sequence.length)
			replace(from, n, data, 0);
		break;
	case 3:
		memcpy(data, sequence.data + from, n);
		replace(draw(sequence.length), 0, data, n);
		break;
	case 4:
		if (other)
			replace(from, sequence.length - from, other->data, other->length);
		break;
	case 5:
		/* A call of another kind before what is there. */
		data[0] = draw(OPS);
		replace(from, 0, data, 1);
		break;
	default:
		sequence.data[from] = draw(256);
	}
}

static void draw_sequence(void)
{
	const struct bytes *one = draw(10) ? draw_kept() : NULL;
	unsigned int i;

	if (!one) {
		sequence.length = 8 + draw(56);
		for (i = 0; i < sequence.length; i++)
			sequence.data[i] = draw(256);
		return;
	}
	sequence.length = one->length;
	memcpy(sequence.data, one->data, sequence.length);
	for (i = 1 + draw(4); i; i--)
		change();
}

static void on_alarm(int signal)
{
	(void)signal;
}

static void begin(unsigned int number)
{
	struct sigaction action = { .sa_handler = on_alarm };
	struct itimerval every = { { 0, ALARM_US }, { 0, ALARM_US } };
	int fd = open("/sys/kernel/debug/kcov", O_RDWR | O_CLOEXEC);

	memset(files, -1, sizeof(files));
	is_admin = !number;
	state += number << 20;
	sigaction(SIGALRM, &action, NULL);
	if (fd >= 0) {
		if (ioctl(fd, KCOV_INIT_TRACE, KCOV_WORDS))
			fail("KCOV_INIT_TRACE: %s", strerror(errno));
		kcov = mmap(NULL, KCOV_WORDS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (kcov == MAP_FAILED || ioctl(fd, KCOV_ENABLE, KCOV_TRACE_PC))
			fail("KCOV_ENABLE: %s", strerror(errno));
	}
	setitimer(ITIMER_REAL, &every, NULL);
}

static void storm(unsigned int number, double until)
{
	unsigned int given = shared->pool, n;
	int fd = open(corpus, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);

	if (fd < 0)
		fail("%s: %s", corpus, strerror(errno));
	begin(number);
	while (now() < until) {
		n = __atomic_fetch_add(&shared->replayed, 1, __ATOMIC_RELAXED);
		if (n >= given)
			break;
		sequence = shared->sequences_of[n];
		carry_out();
	}
	while (now() < until) {
		draw_sequence();
		if (carry_out())
			keep(fd);
	}
	exit(0);
}

/* The shortest first: of two that reach the same, the shorter one stays. */
static int by_length(const void *a, const void *b)
{
	return (int)((const struct bytes *)a)->length - (int)((const struct bytes *)b)->length;
}

static void reduce(void)
{
	unsigned int given = shared->pool, n;
	int fd = open(corpus, O_WRONLY | O_TRUNC | O_CLOEXEC);

	if (fd < 0)
		fail("%s: %s", corpus, strerror(errno));
	qsort(shared->sequences_of, given, sizeof(struct bytes), by_length);
	begin(0);
	is_replay = true;
	for (n = 0; n < given; n++) {
		sequence = shared->sequences_of[n];
		if (!carry_out())
			continue;
		put_line(fd, &sequence);
		shared->kept++;
	}
	exit(0);
}

static void read_corpus(void)
{
	char line[2 * BYTES_MAX + 2], digits[3] = "";
	FILE *from = fopen(corpus, "re");

	while (from && shared->pool < POOL_MAX && fgets(line, sizeof(line), from)) {
		struct bytes *one = &shared->sequences_of[shared->pool];
		unsigned int i;

		for (i = 0; i < BYTES_MAX && line[2 * i] > ' ' && line[2 * i + 1] > ' '; i++) {
			memcpy(digits, line + 2 * i, 2);
			one->data[i] = strtoul(digits, NULL, 16);
		}
		one->length = i;
		shared->pool += !!i;
	}
	if (from)
		fclose(from);
}

static void take_argument(const char *word)
{
	unsigned int bdf;

	if (!strncmp(word, "pcilat=", 7)) {
		pcilat = word + 7;
	} else if (!strncmp(word, "sis8300=", 8)) {
		sis8300_node = strndup(word + 8, strcspn(word + 8, ","));
		sis8300 = word + 8 + strcspn(word + 8, ",");
		sis8300 += *sis8300 == ',';
	} else if (!strncmp(word, "cpu=", 4)) {
		cpu = word + 4;
	} else if (!strncmp(word, "pmu=", 4) && npmus < sizeof(pmus) / sizeof(*pmus)) {
		pmus[npmus++] = word + 4;
		/* The last root port that is named is the one that is taken away. */
		if (sscanf(word, "pmu=dwc_rootport_%x", &bdf) == 1)
			snprintf(port, sizeof(port), "%04x:%02x:%02x.%x", bdf >> 16, bdf >> 8 & 0xff,
				 bdf >> 3 & 0x1f, bdf & 7);
	} else {
		fail("what is %s?", word);
	}
}

/* One of those that drw_pmu has: it is taken away. */
static void find_drw_device(void)
{
	DIR *folder = opendir("/sys/bus/platform/drivers/drw_pmu");
	struct dirent *entry;

	while (folder && (entry = readdir(folder))) {
		if (!strncmp(entry->d_name, "ali_drw_pmu.", 12))
			snprintf(drw_device, sizeof(drw_device), "%.63s", entry->d_name);
	}
	if (folder)
		closedir(folder);
}

static unsigned int count(const __u64 *bits, unsigned int log)
{
	unsigned int sum = 0, i;

	for (i = 0; i < 1u << (log - 6); i++)
		sum += __builtin_popcountll(bits[i]);
	return sum;
}

static void show(double seconds)
{
	unsigned long long calls = 0, sum;
	unsigned int n, error, is_next = 0;

	for (n = 0; n < OPS; n++) {
		for (error = 0; error < ERRNOS; error++)
			calls += shared->calls[n][error];
	}
	printf("{\"seconds\":%.1f,\"sequences\":%llu,\"calls\":%llu,\"kept\":%u,", seconds,
	       shared->sequences, calls, shared->kept);
	printf("\"places\":%u,\"edges\":%u,\"by_call\":{", count(shared->pcs, PCS_BITS),
	       count(shared->edges, EDGES_BITS));
	for (n = 0; n < OPS; n++) {
		/* A call that stands there twice counts once. */
		if (n + 1 < OPS && !strcmp(ops[n].name, ops[n + 1].name)) {
			for (error = 0; error < ERRNOS; error++)
				shared->calls[n + 1][error] += shared->calls[n][error];
			continue;
		}
		for (error = 0, sum = 0; error < ERRNOS; error++) {
			if (!shared->calls[n][error])
				continue;
			if (!sum++)
				printf("%s\"%s\":{", is_next++ ? "," : "", ops[n].name);
			printf("%s\"%s\":%llu", sum > 1 ? "," : "",
			       error ? strerrorname_np(error) : "ok", shared->calls[n][error]);
		}
		if (sum)
			printf("}");
	}
	printf("}}\n");
}

int main(int argc, char **argv)
{
	double seconds = argc > 3 ? strtod(argv[1], NULL) : -1, begin = now();
	unsigned int n, processes = seconds > 0 ? PROCESSES : 1;
	bool is_well = true;
	int i, status;

	if (seconds < 0) {
		fprintf(stderr, "storm SECONDS SEED CORPUS [pcilat=BDF] [sis8300=NODE,BDF] ");
		fprintf(stderr, "[pmu=NAME]... [cpu=N]\n");
		return 2;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	if (shared == MAP_FAILED)
		fail("no memory");
	state = strtoull(argv[2], NULL, 0);
	corpus = argv[3];
	for (i = 4; i < argc; i++)
		take_argument(argv[i]);
	find_drw_device();
	read_corpus();
	for (n = 0; n < processes; n++) {
		if (fork())
			continue;
		if (seconds > 0)
			storm(n, begin + seconds);
		reduce();
	}
	while (wait(&status) > 0)
		is_well &= !status;
	must_bring_back();
	show(now() - begin);
	return !is_well;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The calls of storm.c: each takes its arguments from the bytes of the sequence,
 * and begins with a good request, of which it may change single words.
 */

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
	run->count = 1 + next() % 20;
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
		run->timeout_ns = 2000000;
		run->interval_ns = next() % 3 * 100000;
		run->gap_ns = run->interval_ns ? 0 : run->gap_ns;
		return;
	}
	run->batch = 1 + next() % 4;
	run->duration_ns = next() % 2 * 5000000;
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
	r->end.timeout_ms = 1 + next() % 20;
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
	r->start.bytes = 64 * (1 + next16() % 256);
	r->start.passes = next() % 4;
	r->start.timeout_ms = r->start.flags ? 1 + next() % 20 : 0;
}

static void good_next(union request *r)
{
	r->next.timeout_ms = next() % 20;
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

/* The file that the bytes choose: a device's first one mostly, and an event that is open. */
static int *place_of(enum target target)
{
	unsigned int n = next(), i;

	if (target != PMU)
		return &files[target][n > 0xc0];
	for (i = 0; i < 3 && files[PMU][n % 4] < 0; i++)
		n++;
	return &files[PMU][n % 4];
}

/* Opened where it is not; -1: it cannot be. */
static int file_of(enum target target)
{
	int *fd = place_of(target);

	if (*fd < 0 && target != PMU) {
		*fd = open_target(target);
		add(&shared->opens[target][*fd < 0 ? errno % ERRNOS : 0]);
		if (*fd < 0 && errno != ENOENT && errno != ENXIO && errno != ENODEV)
			fail("open: %s", strerrorname_np(errno));
	}
	return *fd;
}

static size_t ring_length;	/* of the last ring that was set up */

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
	if (!ret && op->number == SIS8300_IOC_RING_SETUP)
		ring_length = r.ring.buffers * r.ring.stride;
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
	size_t size = next16(), i;
	unsigned int odd = next();
	long ret, offset = op->number & 2 ? 16L * next16() : 0;

	if (fd < 0)
		return SKIPPED;
	/* Short ones mostly, and some of another alignment. */
	size = size < 0xf000 ? size % 64 * 16 : size & -16;
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

	return one.fd < 0 ? SKIPPED : poll(&one, 1, next() % 4);
}

static long call_close(const struct op *op)
{
	int *fd = place_of(op->target), was = *fd;

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
	if (op->target == SIS8300 && how & 0x60 && ring_length)
		length = ring_length;
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
	const char *node = nodes[which];
	char path[128];
	long ret = 0;
	int fd;

	(void)op;
	if (how & 1)
		snprintf(path, sizeof(path), "/dev/pcilatdriver/%s/%s", pcilat, node);
	else
		snprintf(path, sizeof(path), "/sys/class/pcilat/%s/pcilat_%s", pcilat, node);
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
	/* After a reset the board is out of use until it is bound anew. */
	if (is_reset)
		write_text(sis8300, "/sys/bus/pci/drivers/sis8300/unbind");
	if (sis8300 && !is_there(driven, sis8300))
		write_text(sis8300, "/sys/bus/pci/drivers/sis8300/bind");
	is_reset = false;
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
	/* Resets, 4 and 5, take a second each. */
	static const unsigned char whats[] = {
		0, 1, 2, 3, 6, 7, 8, 0, 1, 2, 3, 6, 7, 8, 4, 5
	};
	unsigned int what = whats[next() % 16];
	const char *device = what & 1 ? sis8300 : pcilat;
	bool is_done = false;

	(void)op;
	if (!is_admin || (!is_replay && now() < last_away + REST_S))
		return SKIPPED;
	last_away = now();
	if (what < 6 && !device)
		return SKIPPED;
	is_away = true;
	is_reset |= what == 5;
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
	CALL("event read", PMU, call_transfer, of_event, 0),
	CALL("event ioctl", PMU, call_event_ioctl, NULL, 0),
	CALL("event mmap", PMU, call_mmap, NULL, 0),
	CALL("event close", PMU, call_close, of_end, 0),
	CALL("munmap", ADMIN, call_munmap, NULL, 0),
	CALL("take away", ADMIN, call_admin, NULL, 0),
	CALL("bring back", ADMIN, call_back, NULL, 0),
};

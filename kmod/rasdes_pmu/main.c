// SPDX-License-Identifier: GPL-2.0-only
/*
 * rasdes_pmu: the counters of PCIe root ports with DesignWare RAS D.E.S., as
 * perf PMUs (docs/pmu.md).
 *
 * Beside the in-tree dwc_pcie_pmu: it has all events, and sessions share counters. No
 * count is lost when perf moves or rearranges events, and counting goes on after the
 * port was removed and came back, or has slept. It leaves ports of the other alone.
 *
 * The module binds to no function, because root ports belong to the kernel's port
 * driver. This file finds the functions when the module is loaded, and when they come
 * and go. Each gets a child device for one purpose: the system suspends a child before
 * its parent, and resumes it after its parent. The child is on no bus, because a bus
 * would call its notifiers under our lock, and we take this lock in the notifiers of
 * another bus.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "internal.h"

static char *naming = "upstream";
module_param(naming, charp, 0444);
MODULE_PARM_DESC(naming, "names and units: upstream (default), or seed");

static char *variant = "seed";
module_param(variant, charp, 0444);
MODULE_PARM_DESC(variant, "what reports 0x08 and 0x09 are: seed (default; 0x08 is L1 on aux_clk), or old (0x09 is)");

static char *narrow = "saturate";
module_param(narrow, charp, 0444);
MODULE_PARM_DESC(narrow, "counters of 4 and 8 bits at their end: saturate (default), or wrap");

static bool endpoints;
module_param(endpoints, bool, 0444);
MODULE_PARM_DESC(endpoints, "also PMUs of endpoints (default 0)");

static unsigned int poll_ms = 100;
module_param(poll_ms, uint, 0444);
MODULE_PARM_DESC(poll_ms, "how often counters in use are read, 1 to 1000 ms (default 100)");

unsigned int rasdes_tba_bits = 64;
module_param_named(tba_bits, rasdes_tba_bits, uint, 0444);
MODULE_PARM_DESC(tba_bits, "width of the time-based data, 32 to 64 (default 64: a narrower one is noticed when it wraps)");

bool rasdes_is_seed;
bool rasdes_is_old_variant;
bool rasdes_narrow_wraps;

/*
 * perf's side: events that are counted system-wide on one CPU.
 *
 * All events share the hardware's counters. Each counter has a total of 64 bits. The
 * total grows while the counter is enabled: while an event of it exists, or while its
 * report runs. An event's count is the growth of the total since hw.prev_count.
 *
 * perf removes all events and adds them again to let a new event in, or to move them
 * to another CPU. For the user these events never stop, so they must not lose what
 * happens meanwhile. An access takes 1 to 100 us, so that would be thousands of TLPs
 * each time. Therefore counters keep running while perf has disabled the PMU, and during
 * a migration. An event that is stopped and started again before the PMU is enabled keeps
 * its prev_count. hw.last_tag is the disable_seq with which it was stopped. Its counter is
 * not read then: with 18 ports and all their counters, perf would read thousands of
 * registers with interrupts off for each event that it lets in, and at each turn of the
 * reports. Its reading is deferred: it lacks PERF_HES_UPTODATE. rasdes_commit() reads for
 * the events that have not started again.
 *
 * If the viewport cannot be reached when an event starts, the event begins with the
 * total of the last reading.
 */

/*
 * How long one of several reports runs before perf switches the engine to the next.
 * The switch takes a dozen accesses to configuration space, while perf's clock runs.
 * With perf's usual 4 ms that loss would matter. perf_event_mux_interval_ms in sysfs
 * changes the time.
 */
#define RASDES_TURN_MS		50
#define RASDES_TURN_MAX_MS	1000
#define RASDES_SWITCH_ACCESSES	12
/* As many ports as a large machine has: perf switches all of them on one CPU. */
#define RASDES_PORTS		32

/* The tag of an event that was stopped during a migration: no disable_seq has this value. */
static u64 rasdes_migration(const struct rasdes_pmu *rp)
{
	return U64_MAX - rp->u.migrations;
}

static bool rasdes_is_report(const struct rasdes_counter *c)
{
	return !c->bits;
}

/* Two reports cannot run together. */
static bool rasdes_fits(struct perf_event *event, void *state)
{
	struct rasdes_counter *c = event->pmu_private, **report = state;

	if (!rasdes_is_report(c))
		return true;
	if (*report && *report != c)
		return false;
	*report = c;
	return true;
}

/* The counter or report that a configuration names, or NULL. */
static struct rasdes_counter *rasdes_find_counter(struct rasdes_pmu *rp, u64 config)
{
	unsigned int id = FIELD_GET(RASDES_CONFIG_EVENT, config);
	unsigned int type = FIELD_GET(RASDES_CONFIG_TYPE, config);
	unsigned int lane = FIELD_GET(RASDES_CONFIG_LANE, config);
	struct rasdes_counter *c;
	u32 select;

	if (config & ~RASDES_CONFIG)
		return NULL;
	if (type == rasdes_is_seed) {
		/* A code that is no report has no unit. */
		if (lane || id >= RASDES_REPORTS || !rp->reports[id].unit)
			return NULL;
		return &rp->reports[id];
	}
	if (type != rasdes_is_seed + 1 || id > FIELD_MAX(RASDES_EVENT_CTL_EVENT) ||
	    lane >= RASDES_MAX_LANES)
		return NULL;
	select = FIELD_PREP(RASDES_EVENT_CTL_EVENT, id) | FIELD_PREP(RASDES_EVENT_CTL_LANE, lane);
	for (c = rp->counters; c < rp->counters + rp->ncounters; c++) {
		if (c->select == select)
			return c;
	}
	return NULL;
}

static void rasdes_event_destroy(struct perf_event *event)
{
	struct rasdes_pmu *rp = to_rasdes(event->pmu);
	struct rasdes_counter *c = event->pmu_private;
	unsigned long flags;

	raw_spin_lock_irqsave(&rp->u.lock, flags);
	if (!rasdes_is_report(c))
		rasdes_counter_put(rp, c);
	raw_spin_unlock_irqrestore(&rp->u.lock, flags);
	uncore_event_leave(event);
}

static int rasdes_event_init(struct perf_event *event)
{
	struct rasdes_pmu *rp = to_rasdes(event->pmu);
	struct rasdes_counter *c, *report = NULL;
	unsigned long flags;
	int ret;

	ret = uncore_event_check(event);
	if (ret)
		return ret;
	c = rasdes_find_counter(rp, event->attr.config);
	if (!c)
		return -EINVAL;
	event->pmu_private = c;
	if (!uncore_group_check(event, rasdes_fits, &report))
		return -EINVAL;
	ret = uncore_event_enter(event);
	if (ret)
		return ret;
	raw_spin_lock_irqsave(&rp->u.lock, flags);
	if (!rasdes_is_report(c))
		ret = rasdes_counter_get(rp, c);
	else if (rasdes_read(rp, RASDES_TBA_CTL) == U32_MAX)
		ret = -ENODEV;
	raw_spin_unlock_irqrestore(&rp->u.lock, flags);
	if (ret)
		uncore_event_leave(event);
	else
		event->destroy = rasdes_event_destroy;
	return ret;
}

static void rasdes_update_total(struct rasdes_pmu *rp, struct rasdes_counter *c)
{
	if (rasdes_is_report(c))
		rasdes_tba_update(rp);
	else
		rasdes_counter_update(rp, c);
}

/* Adds to an event what its counter's total has grown. */
static void rasdes_event_fold(struct perf_event *event, const struct rasdes_counter *c)
{
	u64 prev = local64_xchg(&event->hw.prev_count, c->total);

	local64_add((c->total - prev) * c->unit, &event->count);
}

static void rasdes_event_update(struct rasdes_pmu *rp, struct perf_event *event)
{
	struct rasdes_counter *c = event->pmu_private;

	rasdes_update_total(rp, c);
	if (c == &rp->reports[RASDES_REPORT_ONE_CYCLE])
		local64_set(&event->count, c->total);
	else
		rasdes_event_fold(event, c);
}

static void rasdes_event_read(struct perf_event *event)
{
	struct rasdes_pmu *rp = to_rasdes(event->pmu);

	if (event->hw.state & PERF_HES_STOPPED)
		return;
	guard(raw_spinlock)(&rp->u.lock);
	rasdes_event_update(rp, event);
}

static void rasdes_event_start(struct perf_event *event, int flags)
{
	struct rasdes_pmu *rp = to_rasdes(event->pmu);
	struct rasdes_counter *c = event->pmu_private;
	bool has_begun = false, is_deferred, is_resumed;

	if (!(event->hw.state & PERF_HES_STOPPED))
		return;
	guard(raw_spinlock)(&rp->u.lock);
	is_deferred = !(event->hw.state & PERF_HES_UPTODATE);
	if (is_deferred)
		rp->deferred--;
	event->hw.state = 0;
	is_resumed = is_deferred || event->hw.last_tag == rp->u.disable_seq ||
		  (rp->u.is_migrating && event->hw.last_tag == rasdes_migration(rp));
	if (rasdes_is_report(c))
		has_begun = rasdes_tba_start(rp);
	if (has_begun || !is_resumed)
		rasdes_update_total(rp, c);
	if (!is_resumed)
		local64_set(&event->hw.prev_count, c->total);
}

static void rasdes_event_stop(struct perf_event *event, int flags)
{
	struct rasdes_pmu *rp = to_rasdes(event->pmu);

	if (event->hw.state & PERF_HES_STOPPED)
		return;
	guard(raw_spinlock)(&rp->u.lock);
	event->hw.state = PERF_HES_STOPPED;
	event->hw.last_tag = rp->u.is_migrating ? rasdes_migration(rp) : rp->u.disable_seq;
	if (rp->u.disable_depth && !rp->u.is_migrating && !rasdes_is_report(event->pmu_private)) {
		rp->deferred++;
		/* Who reads the event before the commit sees at least the last poll. */
		rasdes_event_fold(event, event->pmu_private);
	} else {
		rasdes_event_update(rp, event);
		event->hw.state |= PERF_HES_UPTODATE;
	}
	if (rasdes_is_report(event->pmu_private))
		rp->tba.running--;
}

/* Reads for the events that were stopped while the PMU was disabled. */
static void rasdes_update_stopped(struct rasdes_pmu *rp)
{
	struct perf_event *event;

	if (!rp->deferred)
		return;
	list_for_each_entry(event, &rp->u.events, active_entry) {
		if (event->hw.state != PERF_HES_STOPPED)
			continue;
		rasdes_event_update(rp, event);
		event->hw.state |= PERF_HES_UPTODATE;
		perf_event_update_userpage(event);
	}
	rp->deferred = 0;
}

static int rasdes_event_add(struct perf_event *event, int flags)
{
	struct rasdes_pmu *rp = to_rasdes(event->pmu);
	struct rasdes_counter *c = event->pmu_private;
	int ret = 0;

	raw_spin_lock(&rp->u.lock);
	if (rasdes_is_report(c))
		ret = rasdes_tba_get(rp, c);
	raw_spin_unlock(&rp->u.lock);
	if (ret)
		return ret;
	/* A deferred reading stays so. */
	if (event->hw.state != PERF_HES_STOPPED)
		event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (flags & PERF_EF_START)
		rasdes_event_start(event, PERF_EF_RELOAD);
	perf_event_update_userpage(event);
	return 0;
}

static void rasdes_event_del(struct perf_event *event, int flags)
{
	struct rasdes_pmu *rp = to_rasdes(event->pmu);

	rasdes_event_stop(event, PERF_EF_UPDATE);
	raw_spin_lock(&rp->u.lock);
	if (rasdes_is_report(event->pmu_private))
		rp->tba.holders--;
	raw_spin_unlock(&rp->u.lock);
	perf_event_update_userpage(event);
}

static void rasdes_commit(struct uncore_pmu *u)
{
	struct rasdes_pmu *rp = to_rasdes(&u->pmu);

	rasdes_update_stopped(rp);
	rasdes_tba_stop_unused(rp);
}

/*
 * All ports' switches may take a tenth of a CPU's time. Where each access traps to a
 * hypervisor or to firmware, turns of 50 ms could leave that CPU no time for anything
 * else: its timer's interrupt would take longer than a turn.
 */
static unsigned int rasdes_turn_ms(struct rasdes_pmu *rp)
{
	u64 best = NSEC_PER_MSEC, begin;
	unsigned int i;
	u32 header;

	for (i = 0; i < 8; i++) {
		begin = ktime_get_ns();
		pci_read_config_dword(rp->pdev, rp->vsec + PCI_VNDR_HEADER, &header);
		best = min(best, ktime_get_ns() - begin);
	}
	best *= RASDES_SWITCH_ACCESSES * RASDES_PORTS * 10;
	return clamp_t(u64, div_u64(best, NSEC_PER_MSEC), RASDES_TURN_MS, RASDES_TURN_MAX_MS);
}

/* Fills in perf's description of the PMU, which has its function. */
static void rasdes_pmu_init(struct rasdes_pmu *rp)
{
	rp->u.pmu = (struct pmu) {
		.module = THIS_MODULE,
		.attr_groups = rasdes_groups,
		.capabilities = PERF_PMU_CAP_NO_EXCLUDE | PERF_PMU_CAP_NO_INTERRUPT,
		.task_ctx_nr = perf_invalid_context,
		.hrtimer_interval_ms = rasdes_turn_ms(rp),
		.pmu_disable = uncore_pmu_disable,
		.pmu_enable = uncore_pmu_enable,
		.event_init = rasdes_event_init,
		.add = rasdes_event_add,
		.del = rasdes_event_del,
		.start = rasdes_event_start,
		.stop = rasdes_event_stop,
		.read = rasdes_event_read,
	};
}

/* More vendor-specific capabilities than this do not fit. */
#define RASDES_MAX_VSECS	((PCI_CFG_SPACE_EXP_SIZE - PCI_CFG_SPACE_SIZE) / 8)

/* Vendors that use this VSEC ID for this block. Each vendor assigns its own IDs. */
static const u16 rasdes_vendors[] = {
	0x0720,	/* LeCarc */
	0x144d,	/* Samsung */
	0x17cb,	/* Qualcomm */
	0x1d87,	/* Rockchip */
	0x1ded,	/* Alibaba */
	0x1def,	/* Ampere */
	0x20fa,	/* Picoheart */
};

/* The offset of the capability, or 0. A circular list ends after as many entries as fit. */
static u16 rasdes_find_vsec(struct pci_dev *pdev)
{
	unsigned int left = RASDES_MAX_VSECS, i;
	u16 pos = 0;
	u32 header;

	for (i = 0; i < ARRAY_SIZE(rasdes_vendors) && pdev->vendor != rasdes_vendors[i]; i++)
		;
	if (i == ARRAY_SIZE(rasdes_vendors))
		return 0;
	while (left--) {
		pos = pci_find_next_ext_capability(pdev, pos, PCI_EXT_CAP_ID_VNDR);
		if (!pos || pci_read_config_dword(pdev, pos + PCI_VNDR_HEADER, &header))
			return 0;
		if (PCI_VNDR_HEADER_ID(header) == RASDES_VSEC_ID &&
		    PCI_VNDR_HEADER_REV(header) == RASDES_VSEC_REV &&
		    PCI_VNDR_HEADER_LEN(header) >= RASDES_VSEC_LENGTH)
			return pos;
	}
	return 0;
}

static bool rasdes_is_ours(struct pci_dev *pdev)
{
	if (!pci_is_pcie(pdev))
		return false;
	switch (pci_pcie_type(pdev)) {
	case PCI_EXP_TYPE_ROOT_PORT:
		return true;
	case PCI_EXP_TYPE_ENDPOINT:
	case PCI_EXP_TYPE_LEG_END:
		return endpoints;
	default:
		return false;
	}
}

/* The in-tree driver makes a platform device for each port it serves. */
static bool rasdes_is_served(struct pci_dev *pdev)
{
	struct device *dev;
	char name[32];

	snprintf(name, sizeof(name), "dwc_pcie_pmu.%d", pci_domain_nr(pdev->bus) << 16 |
		 pdev->bus->number << 8 | pdev->devfn);
	dev = bus_find_device_by_name(&platform_bus_type, NULL, name);
	put_device(dev);
	return dev;
}

static void rasdes_name(struct pci_dev *pdev, char *name, size_t bytes)
{
	bool is_root_port = pci_pcie_type(pdev) == PCI_EXP_TYPE_ROOT_PORT;
	u64 domain = pci_domain_nr(pdev->bus);

	if (rasdes_is_seed)
		snprintf(name, bytes, "pcie_bdf_%llx", domain << 24 | pdev->bus->number << 16 |
			 PCI_SLOT(pdev->devfn) << 8 | PCI_FUNC(pdev->devfn));
	else
		snprintf(name, bytes, "dwc_%s_%llx", is_root_port ? "rootport" : "endpoint",
			 domain << 16 | pdev->bus->number << 8 | pdev->devfn);
}

static void rasdes_update_reports(struct rasdes_pmu *rp)
{
	if (rp->tba.running)
		rasdes_tba_update(rp);
}

/*
 * Reads all counters in use before they saturate or wrap, until one does not answer: an
 * access to a function that is gone may take long, and other PMUs wait for their poll.
 */
static u64 rasdes_poll(struct uncore_pmu *u)
{
	struct rasdes_pmu *rp = to_rasdes(&u->pmu);
	u64 begin, busy_ns = 0;
	unsigned long flags;
	unsigned int i;
	int ret = 0;

	/* The lock is for one counter at a time, because it keeps interrupts off. */
	for (i = 0; i < rp->ncounters && ret != -ENODEV; i++) {
		if (!READ_ONCE(rp->counters[i].holders))
			continue;
		raw_spin_lock_irqsave(&u->lock, flags);
		begin = ktime_get_ns();
		if (rp->counters[i].holders)
			ret = rasdes_counter_update(rp, &rp->counters[i]);
		busy_ns += ktime_get_ns() - begin;
		raw_spin_unlock_irqrestore(&u->lock, flags);
	}
	if (ret == -ENODEV)
		return busy_ns;
	raw_spin_lock_irqsave(&u->lock, flags);
	begin = ktime_get_ns();
	rasdes_update_reports(rp);
	busy_ns += ktime_get_ns() - begin;
	raw_spin_unlock_irqrestore(&u->lock, flags);
	return busy_ns;
}

static void rasdes_suspend(struct uncore_pmu *u)
{
	struct rasdes_pmu *rp = to_rasdes(&u->pmu);
	unsigned int i;
	int ret = 0;

	for (i = 0; i < rp->ncounters && ret != -ENODEV; i++) {
		if (rp->counters[i].holders)
			ret = rasdes_counter_update(rp, &rp->counters[i]);
	}
	if (ret != -ENODEV)
		rasdes_update_reports(rp);
}

static void rasdes_resume(struct uncore_pmu *u)
{
	struct rasdes_pmu *rp = to_rasdes(&u->pmu);

	if (rasdes_counters_resume(rp) != -ENODEV)
		rasdes_tba_resume(rp);
}

static struct uncore_driver rasdes = {
	.name = KBUILD_MODNAME,
	.poll = rasdes_poll,
	.resume = rasdes_resume,
	.suspend = rasdes_suspend,
	.commit = rasdes_commit,
};

static const struct device_type rasdes_pm_child_type = {
	.name = KBUILD_MODNAME,
	.pm = pm_sleep_ptr(&uncore_pm_ops),
};

static void rasdes_release_pm_child(struct device *dev)
{
	kfree(dev);
}

static int rasdes_add_pm_child(struct rasdes_pmu *rp)
{
	struct device *pm_child;
	int ret;

	pm_child = kzalloc(sizeof(*pm_child), GFP_KERNEL);
	if (!pm_child)
		return -ENOMEM;
	device_initialize(pm_child);
	pm_child->parent = &rp->pdev->dev;
	pm_child->type = &rasdes_pm_child_type;
	pm_child->release = rasdes_release_pm_child;
	dev_set_drvdata(pm_child, &rp->u);
	ret = dev_set_name(pm_child, KBUILD_MODNAME) ?: device_add(pm_child);
	if (ret) {
		put_device(pm_child);
		return ret;
	}
	rp->pm_child = pm_child;
	return 0;
}

static void rasdes_forget_pm_child(struct rasdes_pmu *rp)
{
	if (rp->pm_child)
		device_unregister(rp->pm_child);
	rp->pm_child = NULL;
}

static void rasdes_forget(struct rasdes_pmu *rp)
{
	rasdes_forget_pm_child(rp);
	uncore_remove(&rp->u);
}

static int rasdes_create(struct pci_dev *pdev, u16 vsec)
{
	struct rasdes_pmu *rp;
	unsigned int lanes, n;
	char name[32];
	u32 cap = 0;
	int ret;

	rasdes_name(pdev, name, sizeof(name));
	pcie_capability_read_dword(pdev, PCI_EXP_LNKCAP, &cap);
	lanes = clamp_t(unsigned int, FIELD_GET(PCI_EXP_LNKCAP_MLW, cap), 1, RASDES_MAX_LANES);
	n = rasdes_count_counters(lanes);
	rp = uncore_get(&rasdes, name, struct_size(rp, counters, n), dev_to_node(&pdev->dev));
	/* While the module is loaded, a port may be found twice. */
	if (IS_ERR(rp))
		return PTR_ERR(rp) == -EEXIST ? 0 : PTR_ERR(rp);
	rp->pdev = pdev;
	rp->vsec = vsec;
	if (uncore_is_new(&rp->u)) {
		strscpy(rp->bdf, pci_name(pdev), sizeof(rp->bdf));
		rp->lanes = lanes;
		rp->ncounters = n;
		rasdes_counters_init(rp);
		rasdes_pmu_init(rp);
	}
	ret = uncore_open(&rp->u);
	if (ret)
		return ret;
	ret = rasdes_add_pm_child(rp);
	if (ret)
		rasdes_forget(rp);
	return ret;
}

static void rasdes_add(struct pci_dev *pdev)
{
	u16 vsec = rasdes_is_ours(pdev) ? rasdes_find_vsec(pdev) : 0;
	int ret = 0;

	if (!vsec)
		return;
	mutex_lock(&rasdes.lock);
	if (rasdes_is_served(pdev))
		dev_warn_once(&pdev->dev, "dwc_pcie_pmu serves this port; unload it first\n");
	else
		ret = rasdes_create(pdev, vsec);
	mutex_unlock(&rasdes.lock);
	if (ret)
		pci_err(pdev, "cannot register its PMU: %d\n", ret);
}

static void rasdes_remove(struct pci_dev *pdev)
{
	struct uncore_pmu *u;

	/* The lock may be held for a second, see uncore_reap(). */
	if (!rasdes_is_ours(pdev))
		return;
	guard(mutex)(&rasdes.lock);
	list_for_each_entry(u, &rasdes.pmus, node) {
		if (!u->is_gone && to_rasdes(&u->pmu)->pdev == pdev)
			rasdes_forget(to_rasdes(&u->pmu));
	}
}

static int rasdes_notify(struct notifier_block *nb, unsigned long action, void *data)
{
	struct pci_dev *pdev = to_pci_dev(data);

	if (action == BUS_NOTIFY_ADD_DEVICE)
		rasdes_add(pdev);
	else if (action == BUS_NOTIFY_DEL_DEVICE)
		rasdes_remove(pdev);
	return NOTIFY_DONE;
}

static struct notifier_block rasdes_notifier = {
	.notifier_call = rasdes_notify,
};

static int __init rasdes_init(void)
{
	struct pci_dev *pdev = NULL;
	int ret;

	ret = uncore_parse_word("naming", naming, "upstream", "seed", &rasdes_is_seed) ?:
	      uncore_parse_word("variant", variant, "seed", "old", &rasdes_is_old_variant) ?:
	      uncore_parse_word("narrow", narrow, "saturate", "wrap", &rasdes_narrow_wraps) ?:
	      uncore_check_range("poll_ms", poll_ms, 1, 1000) ?:
	      uncore_check_range("tba_bits", rasdes_tba_bits, 32, 64);
	if (ret)
		return ret;
	rasdes_events_init();
	rasdes.poll_ms = poll_ms;
	ret = uncore_init(&rasdes);
	if (ret)
		return ret;
	ret = bus_register_notifier(&pci_bus_type, &rasdes_notifier);
	if (ret) {
		uncore_exit(&rasdes);
		return ret;
	}
	for_each_pci_dev(pdev)
		rasdes_add(pdev);
	return 0;
}

static void __exit rasdes_exit(void)
{
	struct uncore_pmu *u;

	bus_unregister_notifier(&pci_bus_type, &rasdes_notifier);
	mutex_lock(&rasdes.lock);
	list_for_each_entry(u, &rasdes.pmus, node)
		rasdes_forget_pm_child(to_rasdes(&u->pmu));
	mutex_unlock(&rasdes.lock);
	uncore_exit(&rasdes);
}

module_init(rasdes_init);
module_exit(rasdes_exit);

MODULE_DESCRIPTION("Counters of PCIe root ports with DesignWare RAS D.E.S.");
MODULE_AUTHOR("The pciescope authors");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");

// SPDX-License-Identifier: GPL-2.0-only
/*
 * drw_pmu: the counters of the Yitian 710's DRAM sub-channels, as perf PMUs
 * (docs/pmu.md). This file has the events, perf's side, the devices and their interrupts.
 *
 * Beside the in-tree alibaba_uncore_drw_pmu: opening an event resets nobody's counters,
 * events take turns, and a lost interrupt or a reset by firmware is noticed. Counting
 * goes on after the device was unbound and came back, or has slept.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "internal.h"

/* The events, and a PMU's files in sysfs: docs/pmu.md and the table of docs/spec/drw.md. */

/* By number. */
static const char *const drw_event_names[] = {
	[0x00] = "hif_rd_or_wr", "hif_wr", "hif_rd", "hif_rmw", "hif_hi_pri_rd",
	[0x07] = "dfi_wr_data_cycles", "dfi_rd_data_cycles", "hpr_xact_when_critical",
	"lpr_xact_when_critical", "wr_xact_when_critical", "op_is_activate", "op_is_rd_or_wr",
	"op_is_rd_activate", "op_is_rd", "op_is_wr", "op_is_mwr", "op_is_precharge",
	"precharge_for_rdwr", "precharge_for_other", "rdwr_transitions", "write_combine",
	"war_hazard", "raw_hazard", "waw_hazard", "op_is_enter_selfref_rk0",
	"op_is_enter_selfref_rk1", "op_is_enter_selfref_rk2", "op_is_enter_selfref_rk3",
	"op_is_enter_powerdown_rk0", "op_is_enter_powerdown_rk1", "op_is_enter_powerdown_rk2",
	"op_is_enter_powerdown_rk3",
	[0x26] = "selfref_mode_rk0", "selfref_mode_rk1", "selfref_mode_rk2", "selfref_mode_rk3",
	"op_is_refresh", "op_is_crit_ref",
	[0x2d] = "op_is_load_mode", "op_is_zqcl",
	[0x30] = "visible_window_limit_reached_rd", "visible_window_limit_reached_wr",
	[0x34] = "op_is_dqsosc_mpc", "op_is_dqsosc_mrr", "op_is_tcr_mrr", "op_is_zqstart",
	"op_is_zqlatch", "chi_txreq", "chi_txdat", "chi_rxdat", "chi_rxrsp", "tsz_vio",
	[DRW_EVENT_CYCLE] = "cycle",
};

/* Selectors have only the low bits of a number, so no other number may reach them. */
static bool drw_has_event(u64 id)
{
	return id < ARRAY_SIZE(drw_event_names) && drw_event_names[id];
}

static struct uncore_events drw_events;

/* Makes the files of events/; @is_seed: also with the names of the seed. */
static void drw_events_init(bool is_seed)
{
	unsigned int id;

	for (id = 0; id < ARRAY_SIZE(drw_event_names); id++) {
		const char *name = drw_event_names[id];

		if (!name)
			continue;
		uncore_add_event(&drw_events, name, "", "event=0x%02x", id);
		if (is_seed)
			uncore_add_event(&drw_events, "perf_", name, "event=0x%02x", id);
	}
}

PMU_FORMAT_ATTR(event, "config:0-7");

static struct attribute *drw_format_attrs[] = {
	&format_attr_event.attr,
	NULL
};

static ssize_t identifier_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "ali_drw_pmu\n");
}
static DEVICE_ATTR_RO(identifier);

static ssize_t die_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", to_drw(dev_get_drvdata(dev))->u.nid);
}
static DEVICE_ATTR_RO(die);

static ssize_t saturated_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct drw_pmu *drw = to_drw(dev_get_drvdata(dev));
	unsigned int id;
	int at = 0;

	for (id = 0; id < ARRAY_SIZE(drw->saturated); id++) {
		u32 times = READ_ONCE(drw->saturated[id]);

		if (times)
			at += sysfs_emit_at(buf, at, "0x%02x %u\n", id, times);
	}
	return at;
}
static DEVICE_ATTR_RO(saturated);

static struct attribute *drw_attrs[] = {
	&dev_attr_cpumask.attr,
	&dev_attr_identifier.attr,
	&dev_attr_die.attr,
	&dev_attr_saturated.attr,
	NULL
};

UNCORE_GROUPS(drw);
static const struct attribute_group *drw_groups[] = UNCORE_GROUP_LIST(drw);

/*
 * perf's side: events that are counted system-wide on one CPU. The changes that perf
 * requests take effect when it enables the PMU: see counter.c.
 */

/* A group needs a common counter for each event; all events share the cycle counter. */
static bool drw_fits(struct perf_event *event, void *state)
{
	unsigned int *common = state;

	*common += event->attr.config != DRW_EVENT_CYCLE;
	return *common <= DRW_COUNTERS;
}

static void drw_event_destroy(struct perf_event *event)
{
	struct drw_pmu *drw = to_drw(event->pmu);
	unsigned long flags;

	raw_spin_lock_irqsave(&drw->u.lock, flags);
	/* It may be closed during a migration to another CPU. */
	if (event->hw.flags != DRW_IDLE) {
		drw_event_disable(drw, event);
		drw_counter_put(drw, event);
	}
	raw_spin_unlock_irqrestore(&drw->u.lock, flags);
	uncore_event_leave(event);
}

static int drw_event_init(struct perf_event *event)
{
	unsigned int common = 0;
	int ret;

	ret = uncore_event_check(event);
	if (ret)
		return ret;
	if (!drw_has_event(event->attr.config) || !uncore_group_check(event, drw_fits, &common))
		return -EINVAL;
	event->hw.flags = DRW_IDLE;
	ret = uncore_event_enter(event);
	if (!ret)
		event->destroy = drw_event_destroy;
	return ret;
}

static void drw_event_read(struct perf_event *event)
{
	struct drw_pmu *drw = to_drw(event->pmu);

	guard(raw_spinlock)(&drw->u.lock);
	if (event->hw.flags == DRW_COUNTING || event->hw.flags == DRW_REMOVED)
		drw_event_update(drw, event);
}

static int drw_event_add(struct perf_event *event, int flags)
{
	struct drw_pmu *drw = to_drw(event->pmu);
	int ret = 0;

	raw_spin_lock(&drw->u.lock);
	if (event->hw.flags == DRW_REMOVED && !(flags & PERF_EF_START))
		drw_event_disable(drw, event);
	if (event->hw.flags == DRW_IDLE)
		ret = drw_counter_get(drw, event);
	if (!ret && flags & PERF_EF_START)
		event->hw.flags = event->hw.flags == DRW_REMOVED ? DRW_COUNTING : DRW_STARTING;
	raw_spin_unlock(&drw->u.lock);
	if (!ret)
		perf_event_update_userpage(event);
	return ret;
}

static void drw_event_del(struct perf_event *event, int flags)
{
	struct drw_pmu *drw = to_drw(event->pmu);

	raw_spin_lock(&drw->u.lock);
	if (event->hw.flags == DRW_COUNTING)
		event->hw.flags = DRW_REMOVED;
	else
		drw_counter_put(drw, event);
	raw_spin_unlock(&drw->u.lock);
	perf_event_update_userpage(event);
}

static void drw_event_start(struct perf_event *event, int flags)
{
	struct drw_pmu *drw = to_drw(event->pmu);

	guard(raw_spinlock)(&drw->u.lock);
	if (event->hw.flags == DRW_STOPPED) {
		event->hw.flags = DRW_STARTING;
		drw_commit(&drw->u);
	}
}

static void drw_event_stop(struct perf_event *event, int flags)
{
	struct drw_pmu *drw = to_drw(event->pmu);

	guard(raw_spinlock)(&drw->u.lock);
	if (event->hw.flags == DRW_COUNTING) {
		drw_event_disable(drw, event);
		drw_commit(&drw->u);
	}
}

/* Fills in perf's description of the PMU. */
static void drw_pmu_init(struct drw_pmu *drw)
{
	drw->u.pmu = (struct pmu) {
		.module = THIS_MODULE,
		.attr_groups = drw_groups,
		.capabilities = PERF_PMU_CAP_NO_EXCLUDE | PERF_PMU_CAP_NO_INTERRUPT,
		.task_ctx_nr = perf_invalid_context,
		.pmu_enable = uncore_pmu_enable,
		.pmu_disable = uncore_pmu_disable,
		.event_init = drw_event_init,
		.add = drw_event_add,
		.del = drw_event_del,
		.start = drw_event_start,
		.stop = drw_event_stop,
		.read = drw_event_read,
	};
}

/* The devices and their interrupts. */

static char *naming = "upstream";
module_param(naming, charp, 0444);
MODULE_PARM_DESC(naming, "event names: upstream (default), or seed (also those with perf_ before)");

static char *limit = "wrap";
module_param(limit, charp, 0444);
MODULE_PARM_DESC(limit, "counters at their end: wrap (default; that they hold is noticed), or hold");

/* At 275 million counts a second, the most possible, a counter wraps every 15.6 s. */
#define DRW_POLL_MAX_MS	5000

static unsigned int poll_ms = 1000;
module_param(poll_ms, uint, 0444);
MODULE_PARM_DESC(poll_ms, "how often counters in use are read, 1 to 5000 ms (default 1000)");

static irqreturn_t drw_interrupt(int irq, void *data)
{
	struct drw_pmu *drw = data;

	guard(raw_spinlock_irqsave)(&drw->u.lock);
	return drw_handle_overflows(drw) ? IRQ_HANDLED : IRQ_NONE;
}

static u64 drw_poll(struct uncore_pmu *u)
{
	unsigned long flags;
	u64 begin, busy_ns;
	bool was_reset;

	raw_spin_lock_irqsave(&u->lock, flags);
	begin = ktime_get_ns();
	was_reset = drw_read_counters(to_drw(&u->pmu));
	busy_ns = ktime_get_ns() - begin;
	raw_spin_unlock_irqrestore(&u->lock, flags);
	if (was_reset)
		pr_warn_ratelimited("%s was reset: its last counts are lost\n", u->name);
	return busy_ns;
}

/* The interrupt may come to any CPU; best is the one that reads the counts. */
static void drw_moved(struct uncore_pmu *u)
{
	struct drw_pmu *drw = to_drw(&u->pmu);

	if (drw->irq)
		compat_irq_set_affinity(drw->irq, cpumask_of(u->cpu));
}

static struct uncore_driver drw_pmus = {
	.name = KBUILD_MODNAME,
	.poll = drw_poll,
	.resume = drw_resume,
	.suspend = drw_suspend,
	.moved = drw_moved,
	.commit = drw_commit,
};

static void drw_remove(void *data)
{
	struct drw_pmu *drw = data;

	guard(mutex)(&drw_pmus.lock);
	uncore_remove(&drw->u);
	cpus_read_lock();
	if (drw->irq)
		free_irq(drw->irq, drw);
	drw->irq = 0;
	cpus_read_unlock();
}

/* Each PMU has its own handler: PMUs share a line, and each of them may be removed. */
static int drw_request_irq(struct drw_pmu *drw, int irq)
{
	int ret;

	ret = request_irq(irq, drw_interrupt, IRQF_SHARED, drw->u.name, drw);
	if (ret)
		return ret;
	cpus_read_lock();
	drw->irq = irq;
	drw_moved(&drw->u);
	cpus_read_unlock();
	guard(raw_spinlock_irqsave)(&drw->u.lock);
	writel(DRW_OVERFLOW_COMMON, drw->regs + DRW_OVERFLOW_ENABLE);
	return 0;
}

/* The sub-channel's PMU, registered. */
static struct drw_pmu *drw_create(struct device *dev, const char *name, void __iomem *regs)
{
	struct drw_pmu *drw = uncore_get(&drw_pmus, name, sizeof(*drw), dev_to_node(dev));
	int ret;

	if (IS_ERR(drw))
		return drw;
	if (uncore_is_new(&drw->u))
		drw_pmu_init(drw);
	drw->regs = regs;
	ret = uncore_open(&drw->u);
	return ret ? ERR_PTR(ret) : drw;
}

static int drw_probe(struct platform_device *pdev)
{
	struct device *dev = &pdev->dev;
	struct resource *window;
	struct drw_pmu *drw;
	void __iomem *regs;
	char name[32];
	u64 address;
	int irq, ret;

	regs = devm_platform_get_and_ioremap_resource(pdev, 0, &window);
	if (IS_ERR(regs))
		return PTR_ERR(regs);
	if (resource_size(window) < DRW_WINDOW_BYTES)
		return dev_err_probe(dev, -EINVAL, "window %pR is smaller than %#x bytes\n",
				     window, DRW_WINDOW_BYTES);
	if (readl(regs + DRW_OVERFLOW_STATUS) == U32_MAX)
		return dev_err_probe(dev, -ENODEV, "window %pR answers all-ones\n", window);
	irq = platform_get_irq(pdev, 0);
	if (irq < 0)
		return irq;
	address = window->start;
	/* The lab's windows have other addresses than those of the hardware. */
	device_property_read_u64(dev, "pciescope,address", &address);
	snprintf(name, sizeof(name), "ali_drw_%llx", address >> 12);
	mutex_lock(&drw_pmus.lock);
	drw = drw_create(dev, name, regs);
	mutex_unlock(&drw_pmus.lock);
	if (IS_ERR(drw))
		return dev_err_probe(dev, PTR_ERR(drw), "cannot register %s\n", name);
	ret = drw_request_irq(drw, irq);
	if (ret) {
		dev_err_probe(dev, ret, "%s: cannot use interrupt %d\n", name, irq);
		drw_remove(drw);
		return ret;
	}
	dev_set_drvdata(dev, &drw->u);
	return devm_add_action_or_reset(dev, drw_remove, drw);
}

/*
 * No MODULE_DEVICE_TABLE: the in-tree driver has the same devices, and both would be
 * loaded. Users load this one by hand.
 */
static const struct acpi_device_id drw_acpi_ids[] = {
	{ "BABA5000" },
	{ "ARMHD700" },
	{ }
};

static const struct platform_device_id drw_platform_ids[] = {
	{ "ali_drw_pmu" },
	{ }
};

static struct platform_driver drw_driver = {
	.driver = {
		.name = KBUILD_MODNAME,
		.acpi_match_table = drw_acpi_ids,
		.pm = pm_sleep_ptr(&uncore_pm_ops),
	},
	.id_table = drw_platform_ids,
	.probe = drw_probe,
};

/* Counts the sub-channels that another driver has. */
static int drw_count_taken(struct device *dev, void *data)
{
	unsigned int *taken = data;

	if (dev->driver && dev->driver != &drw_driver.driver &&
	    (acpi_match_device(drw_acpi_ids, dev) ||
	     !strcmp(to_platform_device(dev)->name, drw_platform_ids[0].name)))
		++*taken;
	return 0;
}

/* The kernel asks this driver for none of them, so nothing else would tell. */
static void drw_say_taken(void)
{
	unsigned int taken = 0;

	bus_for_each_dev(&platform_bus_type, NULL, &taken, drw_count_taken);
	if (taken)
		pr_info("%u sub-channels stay with another driver: rmmod it first, or use its PMUs\n",
			taken);
}

static int __init drw_init(void)
{
	bool is_seed;
	int ret;

	ret = uncore_parse_word("naming", naming, "upstream", "seed", &is_seed) ?:
	      uncore_parse_word("limit", limit, "wrap", "hold", &drw_holds) ?:
	      uncore_check_range("poll_ms", poll_ms, 1, DRW_POLL_MAX_MS);
	if (ret)
		return ret;
	drw_events_init(is_seed);
	drw_pmus.poll_ms = poll_ms;
	ret = uncore_init(&drw_pmus);
	if (ret)
		return ret;
	ret = platform_driver_register(&drw_driver);
	if (ret)
		uncore_exit(&drw_pmus);
	else
		drw_say_taken();
	return ret;
}

static void __exit drw_exit(void)
{
	platform_driver_unregister(&drw_driver);
	uncore_exit(&drw_pmus);
}

module_init(drw_init);
module_exit(drw_exit);

MODULE_DESCRIPTION("Counters of the Yitian 710's DRAM sub-channels");
MODULE_AUTHOR("The pciescope authors");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");

// SPDX-License-Identifier: GPL-2.0-only
/*
 * drw_pmu: the counters of the Yitian 710's DRAM sub-channels, as perf PMUs
 * (docs/pmu.md). This file has the devices and their interrupts.
 *
 * Beside the in-tree alibaba_uncore_drw_pmu: opening an event resets nobody's counters,
 * events take turns, and a lost interrupt or a reset by firmware is noticed. Counting
 * goes on after the device was unbound and came back, or has slept.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "internal.h"

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

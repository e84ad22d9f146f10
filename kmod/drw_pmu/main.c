// SPDX-License-Identifier: GPL-2.0-only
/*
 * drw_pmu: the counters of the Yitian 710's DRAM sub-channels, as perf PMUs
 * (docs/pmu.md).
 *
 * This file has the devices: how they come, their interrupt and their CPU, and
 * how they go. perf cannot part with a PMU that has events on most kernels. So
 * when a device is taken away while somebody counts, its PMU stays as an
 * orphan that nobody sees, without touching the hardware: events keep what
 * they counted, and a device that comes back has a new PMU of the same name.
 */
#include <linux/acpi.h>
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/property.h>
#include <linux/slab.h>
#include <linux/topology.h>

#include "internal.h"

static char *naming = "upstream";
module_param(naming, charp, 0444);
MODULE_PARM_DESC(naming, "event names: upstream (default), or seed (also those with perf_ before)");

static char *limit = "wrap";
module_param(limit, charp, 0444);
MODULE_PARM_DESC(limit, "counters at their end: wrap (default; that they hold is noticed), or hold");

/* At most 275 million counts a second: from one end to the next it takes 15.6 s. */
#define DRW_POLL_MAX_MS	5000

static unsigned int poll_ms = 1000;
module_param(poll_ms, uint, 0444);
MODULE_PARM_DESC(poll_ms, "how often counters in use are looked at, 1 to 5000 ms (default 1000)");

bool drw_is_seed;

static enum cpuhp_state drw_cpuhp;

static DEFINE_SPINLOCK(drw_events_lock);	/* how many events exist, here and for each PMU */
static unsigned int drw_events;

static DEFINE_MUTEX(drw_orphans_lock);		/* the following */
static LIST_HEAD(drw_orphans);
static unsigned int drw_norphans;

/**
 * drw_event_enter() - an event begins to exist
 * @drw: the PMU
 *
 * perf finds a PMU by its number, and programs see it, before perf_pmu_register()
 * has given it its contexts: whoever comes in between would write through a null
 * pointer (seen with 6.1).
 *
 * Return: 0, or -ENODEV if the PMU is not yet registered or the device was taken away.
 */
int drw_event_enter(struct drw_pmu *drw)
{
	int ret = -ENODEV;

	spin_lock(&drw_events_lock);
	if (drw->is_open) {
		drw->events++;
		drw_events++;
		schedule_delayed_work(&drw->poll, msecs_to_jiffies(poll_ms));
		ret = 0;
	}
	spin_unlock(&drw_events_lock);
	return ret;
}

/**
 * drw_event_leave() - an event exists no more
 * @drw: the PMU; it may be gone when this returns
 */
void drw_event_leave(struct drw_pmu *drw)
{
	spin_lock(&drw_events_lock);
	drw->events--;
	drw_events--;
	spin_unlock(&drw_events_lock);
}

static void drw_poll(struct work_struct *work)
{
	struct drw_pmu *drw = container_of(to_delayed_work(work), struct drw_pmu, poll);
	unsigned long flags;

	raw_spin_lock_irqsave(&drw->lock, flags);
	drw_look(drw);
	raw_spin_unlock_irqrestore(&drw->lock, flags);
	spin_lock(&drw_events_lock);
	if (drw->events && drw->is_open)
		schedule_delayed_work(&drw->poll, msecs_to_jiffies(poll_ms));
	spin_unlock(&drw_events_lock);
}

static irqreturn_t drw_interrupt(int irq, void *data)
{
	struct drw_pmu *drw = data;
	unsigned long flags;
	bool is_ours;

	raw_spin_lock_irqsave(&drw->lock, flags);
	is_ours = drw_answer(drw);
	raw_spin_unlock_irqrestore(&drw->lock, flags);
	return is_ours ? IRQ_HANDLED : IRQ_NONE;
}

/* The interrupt may come anywhere; near to who reads the counts is best. */
static void drw_use_cpu(struct drw_pmu *drw, unsigned int cpu)
{
	int from = drw->cpu;

	WRITE_ONCE(drw->cpu, cpu);
	irq_set_affinity(drw->irq, cpumask_of(cpu));
	if (drw->is_registered)
		drw_migrate(drw, from, cpu);
}

static int drw_cpu_online(unsigned int cpu, struct hlist_node *node)
{
	struct drw_pmu *drw = hlist_entry_safe(node, struct drw_pmu, cpuhp_node);

	mutex_lock(&drw->hotplug);
	if (!cpu_online(drw->cpu) || (drw->die != NUMA_NO_NODE && cpu_to_node(cpu) == drw->die &&
				      cpu_to_node(drw->cpu) != drw->die))
		drw_use_cpu(drw, cpu);
	mutex_unlock(&drw->hotplug);
	return 0;
}

/* Some CPU other than the one that goes, of the sub-channel's die if there is one. */
static unsigned int drw_other_cpu(struct drw_pmu *drw, unsigned int cpu)
{
	unsigned int other;

	if (drw->die != NUMA_NO_NODE) {
		for_each_cpu_and(other, cpumask_of_node(drw->die), cpu_online_mask) {
			if (other != cpu)
				return other;
		}
	}
	return cpumask_any_but(cpu_online_mask, cpu);
}

static int drw_cpu_offline(unsigned int cpu, struct hlist_node *node)
{
	struct drw_pmu *drw = hlist_entry_safe(node, struct drw_pmu, cpuhp_node);
	unsigned int other = drw_other_cpu(drw, cpu);

	mutex_lock(&drw->hotplug);
	if (drw->cpu == cpu && other < nr_cpu_ids)
		drw_use_cpu(drw, other);
	else if (drw->cpu != cpu && drw->is_registered)
		/* Opened while the PMU moved: it may have been left behind. */
		drw_migrate(drw, cpu, drw->cpu);
	mutex_unlock(&drw->hotplug);
	return 0;
}

/*
 * perf goes on using a PMU for a moment after it has destroyed an event, and
 * then lets go of the module. So nobody does when the module is referenced
 * just as often as events exist: no new event of this PMU can come.
 */
static bool drw_is_deserted(struct drw_pmu *drw)
{
	bool is_deserted;

	spin_lock(&drw_events_lock);
	is_deserted = !drw->events && module_refcount(THIS_MODULE) <= (int)drw_events;
	spin_unlock(&drw_events_lock);
	return is_deserted;
}

static void drw_free(struct drw_pmu *drw)
{
	if (drw->is_registered)
		perf_pmu_unregister(&drw->pmu);
	kfree(drw);
}

/* Takes away the PMUs whose last event was closed since they were orphaned. */
static void drw_free_orphans(void)
{
	struct drw_pmu *drw, *next;

	lockdep_assert_held(&drw_orphans_lock);
	list_for_each_entry_safe(drw, next, &drw_orphans, node) {
		if (!drw_is_deserted(drw))
			continue;
		list_del(&drw->node);
		drw_free(drw);
	}
}

static void drw_stand_in_release(struct device *dev)
{
	kfree(dev);
}

/*
 * Takes the device that perf made for a PMU out of sysfs, where a new PMU of
 * the same name will need the place. perf_pmu_unregister() gets another one to
 * take away, which is on no bus.
 */
static int drw_hide(struct drw_pmu *drw)
{
	struct device *dev = drw->pmu.dev, *stand_in;
	int ret;

	stand_in = kzalloc(sizeof(*stand_in), GFP_KERNEL);
	if (!stand_in)
		return -ENOMEM;
	device_initialize(stand_in);
	stand_in->release = drw_stand_in_release;
	ret = dev_set_name(stand_in, "%s.gone%u", drw->name, drw_norphans++);
	if (!ret)
		ret = device_add(stand_in);
	if (ret) {
		put_device(stand_in);
		return ret;
	}
	drw->pmu.dev = stand_in;
	device_del(dev);
	put_device(dev);
	return 0;
}

static void drw_leave(struct drw_pmu *drw)
{
	mutex_lock(&drw_orphans_lock);
	if (drw_is_deserted(drw)) {
		drw_free(drw);
	} else {
		/* Without memory its name stays until its last event is closed. */
		if (drw_hide(drw))
			pr_warn(DRW_NAME ": %s is in use and stays\n", drw->name);
		list_add_tail(&drw->node, &drw_orphans);
	}
	drw_free_orphans();
	mutex_unlock(&drw_orphans_lock);
}

static void drw_open(struct drw_pmu *drw, bool is_open)
{
	spin_lock(&drw_events_lock);
	drw->is_open = is_open;
	spin_unlock(&drw_events_lock);
}

/* The device is taken away: everything that drw_probe() did, back to front. */
static void drw_remove(void *data)
{
	struct drw_pmu *drw = data;
	unsigned long flags;

	drw_open(drw, false);
	cpuhp_state_remove_instance_nocalls(drw_cpuhp, &drw->cpuhp_node);
	raw_spin_lock_irqsave(&drw->lock, flags);
	drw_end(drw);
	raw_spin_unlock_irqrestore(&drw->lock, flags);
	if (drw->irq)
		free_irq(drw->irq, drw);
	cancel_delayed_work_sync(&drw->poll);
	if (drw->is_registered)
		drw_leave(drw);
	else
		drw_free(drw);
}

static struct drw_pmu *drw_alloc(struct device *dev, struct resource *window)
{
	u64 address = window->start;
	struct drw_pmu *drw;

	drw = kzalloc(sizeof(*drw), GFP_KERNEL);
	if (!drw)
		return NULL;
	/* The lab's windows lie elsewhere than what they stand for. */
	device_property_read_u64(dev, "pciescope,address", &address);
	snprintf(drw->name, sizeof(drw->name), "ali_drw_%llx", address >> 12);
	drw->dev = dev;
	drw->die = dev_to_node(dev);
	drw->cpu = cpumask_local_spread(0, drw->die);
	mutex_init(&drw->hotplug);
	raw_spin_lock_init(&drw->lock);
	INIT_LIST_HEAD(&drw->node);
	INIT_LIST_HEAD(&drw->users);
	INIT_LIST_HEAD(&drw->all);
	INIT_DELAYED_WORK(&drw->poll, drw_poll);
	drw_pmu_init(drw);
	return drw;
}

/* A handler of its own for each PMU: the line is others' too, and they may be taken away first. */
static int drw_request_irq(struct drw_pmu *drw, int irq)
{
	unsigned long flags;
	int ret;

	ret = request_irq(irq, drw_interrupt, IRQF_SHARED, drw->name, drw);
	if (ret)
		return ret;
	drw->irq = irq;
	irq_set_affinity(irq, cpumask_of(drw->cpu));
	raw_spin_lock_irqsave(&drw->lock, flags);
	writel(DRW_OVERFLOW_COMMON, drw->regs + DRW_OVERFLOW_ENABLE);
	raw_spin_unlock_irqrestore(&drw->lock, flags);
	return 0;
}

static int drw_register(struct drw_pmu *drw)
{
	int ret;

	mutex_lock(&drw->hotplug);
	ret = perf_pmu_register(&drw->pmu, drw->name, -1);
	drw->is_registered = !ret;
	drw_open(drw, !ret);
	mutex_unlock(&drw->hotplug);
	return ret;
}

static int drw_probe(struct platform_device *pdev)
{
	struct device *dev = &pdev->dev;
	struct resource *window;
	struct drw_pmu *drw;
	void __iomem *regs;
	unsigned long flags;
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
	drw = drw_alloc(dev, window);
	if (!drw)
		return -ENOMEM;
	drw->regs = regs;
	raw_spin_lock_irqsave(&drw->lock, flags);
	drw_quiesce(drw);
	raw_spin_unlock_irqrestore(&drw->lock, flags);
	ret = drw_request_irq(drw, irq);
	if (ret) {
		dev_err_probe(dev, ret, "%s: cannot use interrupt %d\n", drw->name, irq);
		drw_free(drw);
		return ret;
	}
	ret = cpuhp_state_add_instance(drw_cpuhp, &drw->cpuhp_node);
	if (ret) {
		dev_err_probe(dev, ret, "%s: cannot follow CPU hotplug\n", drw->name);
		free_irq(irq, drw);
		drw_free(drw);
		return ret;
	}
	ret = drw_register(drw);
	if (ret) {
		dev_err_probe(dev, ret, "cannot register %s\n", drw->name);
		drw_remove(drw);
		return ret;
	}
	return devm_add_action_or_reset(dev, drw_remove, drw);
}

/*
 * No aliases: both drivers would be loaded for the same devices. Who wants
 * this one loads it.
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
		.name = DRW_NAME,
		.acpi_match_table = drw_acpi_ids,
	},
	.id_table = drw_platform_ids,
	.probe = drw_probe,
};

/* Which of two words a parameter is. */
static int drw_parse(const char *name, const char *value, const char *first, const char *second,
		     bool *is_second)
{
	*is_second = sysfs_streq(value, second);
	if (*is_second || sysfs_streq(value, first))
		return 0;
	pr_err(DRW_NAME ": %s=%s is neither %s nor %s\n", name, value, first, second);
	return -EINVAL;
}

static int __init drw_init(void)
{
	int ret;

	ret = drw_parse("naming", naming, "upstream", "seed", &drw_is_seed) ?:
	      drw_parse("limit", limit, "wrap", "hold", &drw_holds);
	if (ret)
		return ret;
	if (poll_ms < 1 || poll_ms > DRW_POLL_MAX_MS) {
		pr_err(DRW_NAME ": poll_ms=%u is not within 1..%u\n", poll_ms, DRW_POLL_MAX_MS);
		return -EINVAL;
	}
	ret = drw_events_init();
	if (ret)
		return ret;
	ret = cpuhp_setup_state_multi(CPUHP_AP_ONLINE_DYN, DRW_NAME ":online", drw_cpu_online,
				      drw_cpu_offline);
	if (ret < 0)
		goto err_events;
	drw_cpuhp = ret;
	ret = platform_driver_register(&drw_driver);
	if (ret)
		goto err_cpuhp;
	return 0;

err_cpuhp:
	cpuhp_remove_multi_state(drw_cpuhp);
err_events:
	drw_events_exit();
	return ret;
}

/* No event exists: each holds the module. */
static void __exit drw_exit(void)
{
	platform_driver_unregister(&drw_driver);
	mutex_lock(&drw_orphans_lock);
	drw_free_orphans();
	mutex_unlock(&drw_orphans_lock);
	cpuhp_remove_multi_state(drw_cpuhp);
	drw_events_exit();
}

module_init(drw_init);
module_exit(drw_exit);

MODULE_DESCRIPTION("Counters of the Yitian 710's DRAM sub-channels");
MODULE_AUTHOR("The pciescope authors");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");

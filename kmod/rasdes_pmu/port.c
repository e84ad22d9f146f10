// SPDX-License-Identifier: GPL-2.0-only
/*
 * A function with the capability, from its discovery to its end.
 *
 * perf cannot part with a PMU that has events on most kernels. So when the
 * function is removed, its PMU stays, without touching the function, until
 * the last event is closed: events keep what they counted, new ones get
 * ENODEV. If a function came back at the address meanwhile, it gets its own
 * PMU then.
 */
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/slab.h>
#include <linux/topology.h>

#include "internal.h"

/* How often it is tried to take away the PMU of a removed function. */
#define RASDES_UNWIND_MS	50

/* More vendor-specific capabilities than this do not fit. */
#define RASDES_MAX_VSECS	((PCI_CFG_SPACE_EXP_SIZE - PCI_CFG_SPACE_SIZE) / 8)

DEFINE_SPINLOCK(rasdes_events_lock);	/* the following, and each port's events and is_open */
static unsigned int rasdes_events;

/* Whose functions with this VSEC ID have this block: the ID is each vendor's own. */
static const u16 rasdes_vendors[] = {
	0x0720,	/* LeCarc */
	0x144d,	/* Samsung */
	0x17cb,	/* Qualcomm */
	0x1d87,	/* Rockchip */
	0x1ded,	/* Alibaba */
	0x1def,	/* Ampere */
	0x20fa,	/* Picoheart */
};

static bool rasdes_is_vendor(const struct pci_dev *pdev)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(rasdes_vendors); i++) {
		if (pdev->vendor == rasdes_vendors[i])
			return true;
	}
	return false;
}

/**
 * rasdes_find_vsec() - looks for RAS D.E.S. among a function's capabilities
 * @pdev: the function
 *
 * A list that loops ends the search after as many as could exist.
 *
 * Return: offset of the capability, or 0.
 */
u16 rasdes_find_vsec(struct pci_dev *pdev)
{
	unsigned int left = RASDES_MAX_VSECS;
	u16 pos = 0;
	u32 header;

	if (!rasdes_is_vendor(pdev))
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

/**
 * rasdes_event_enter() - an event begins to exist
 * @rp: the port
 *
 * perf finds a PMU by its number, and programs see it, before perf_pmu_register()
 * has given it its contexts: whoever comes in between would write through a null
 * pointer (seen with 6.1).
 *
 * Return: 0, or -ENODEV if the PMU is not yet registered or the function was removed.
 */
int rasdes_event_enter(struct rasdes_pmu *rp)
{
	int ret = 0;

	spin_lock(&rasdes_events_lock);
	if (!rp->is_open) {
		ret = -ENODEV;
	} else {
		rp->events++;
		rasdes_events++;
	}
	spin_unlock(&rasdes_events_lock);
	if (!ret)
		queue_delayed_work(rasdes_wq, &rp->poll, msecs_to_jiffies(rasdes_poll_ms));
	return ret;
}

/**
 * rasdes_event_leave() - an event exists no more
 * @rp: the port; it may be gone when this returns
 */
void rasdes_event_leave(struct rasdes_pmu *rp)
{
	spin_lock(&rasdes_events_lock);
	rp->events--;
	rasdes_events--;
	if (!rp->is_open && !rp->events)
		queue_delayed_work(rasdes_wq, &rp->unwind, 0);
	spin_unlock(&rasdes_events_lock);
}

/* Takes into 64 bits what is in use, before narrow counters reach their end and others wrap. */
static void rasdes_poll(struct work_struct *work)
{
	struct rasdes_pmu *rp = container_of(to_delayed_work(work), struct rasdes_pmu, poll);
	unsigned long flags;
	bool is_in_use;
	unsigned int i;

	/* One look at a time: interrupts are off meanwhile. */
	for (i = 0; i < rp->ncounters; i++) {
		if (!READ_ONCE(rp->counters[i].holders))
			continue;
		raw_spin_lock_irqsave(&rp->lock, flags);
		if (rp->counters[i].holders)
			rasdes_counter_fold(rp, &rp->counters[i]);
		raw_spin_unlock_irqrestore(&rp->lock, flags);
	}
	raw_spin_lock_irqsave(&rp->lock, flags);
	if (rp->tba.running)
		rasdes_tba_fold(rp);
	raw_spin_unlock_irqrestore(&rp->lock, flags);

	spin_lock(&rasdes_events_lock);
	is_in_use = rp->events && rp->is_open;
	spin_unlock(&rasdes_events_lock);
	if (is_in_use)
		queue_delayed_work(rasdes_wq, &rp->poll, msecs_to_jiffies(rasdes_poll_ms));
}

/**
 * rasdes_cpu_online() - gives a PMU its CPU, or one nearer to its function
 * @cpu: the CPU that came
 * @node: the PMU's
 *
 * Return: 0.
 */
int rasdes_cpu_online(unsigned int cpu, struct hlist_node *node)
{
	struct rasdes_pmu *rp = hlist_entry_safe(node, struct rasdes_pmu, cpuhp_node);
	int near = dev_to_node(&rp->pdev->dev);

	if (rp->cpu < 0) {
		rp->cpu = cpumask_local_spread(0, near);
		return 0;
	}
	mutex_lock(&rp->hotplug);
	if (near != NUMA_NO_NODE && cpu_to_node(cpu) == near && cpu_to_node(rp->cpu) != near) {
		if (rp->is_registered)
			rasdes_migrate(rp, cpu);
		else
			rp->cpu = cpu;
	}
	mutex_unlock(&rp->hotplug);
	return 0;
}

/* Some CPU other than the one that goes, of the function's node if there is one. */
static unsigned int rasdes_other_cpu(struct rasdes_pmu *rp, unsigned int cpu)
{
	int near = dev_to_node(&rp->pdev->dev);
	unsigned int other;

	if (near != NUMA_NO_NODE) {
		for_each_cpu_and(other, cpumask_of_node(near), cpu_online_mask) {
			if (other != cpu)
				return other;
		}
	}
	return cpumask_any_but(cpu_online_mask, cpu);
}

/**
 * rasdes_cpu_offline() - moves a PMU away from a CPU that goes
 * @cpu: the CPU
 * @node: the PMU's
 *
 * Return: 0.
 */
int rasdes_cpu_offline(unsigned int cpu, struct hlist_node *node)
{
	struct rasdes_pmu *rp = hlist_entry_safe(node, struct rasdes_pmu, cpuhp_node);
	unsigned int other;

	mutex_lock(&rp->hotplug);
	other = rasdes_other_cpu(rp, cpu);
	if (rp->cpu == cpu && other < nr_cpu_ids) {
		if (rp->is_registered)
			rasdes_migrate(rp, other);
		else
			rp->cpu = other;
	}
	mutex_unlock(&rp->hotplug);
	return 0;
}

static void rasdes_name(struct rasdes_pmu *rp)
{
	bool is_root_port = pci_pcie_type(rp->pdev) == PCI_EXP_TYPE_ROOT_PORT;
	u64 domain = rp->domain;

	if (rasdes_is_seed)
		snprintf(rp->name, sizeof(rp->name), "pcie_bdf_%llx", domain << 24 | rp->bus << 16 |
			 PCI_SLOT(rp->devfn) << 8 | PCI_FUNC(rp->devfn));
	else
		snprintf(rp->name, sizeof(rp->name), "dwc_%s_%llx",
			 is_root_port ? "rootport" : "endpoint",
			 domain << 16 | rp->bus << 8 | rp->devfn);
}

/* The in-tree driver makes a platform device for each port it serves; its PMU has our name. */
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

static unsigned int rasdes_link_lanes(struct pci_dev *pdev)
{
	u32 cap = 0;

	pcie_capability_read_dword(pdev, PCI_EXP_LNKCAP, &cap);
	return clamp_t(unsigned int, FIELD_GET(PCI_EXP_LNKCAP_MLW, cap), 1, RASDES_MAX_LANES);
}

static unsigned int rasdes_count_counters(unsigned int lanes)
{
	unsigned int id, n = 0;
	int index = -1;

	while ((index = rasdes_next_counter(index, &id)) >= 0)
		n += rasdes_is_per_lane(id >> 8) ? lanes : 1;
	return n;
}

/*
 * perf goes on using the PMU for a moment after it has destroyed an event, and
 * then lets go of the module. So nobody does when the module is referenced
 * exactly as often as events exist: no new event of this port can come.
 */
static bool rasdes_is_deserted(struct rasdes_pmu *rp)
{
	bool is_deserted;

	spin_lock(&rasdes_events_lock);
	is_deserted = !rp->events && module_refcount(THIS_MODULE) == rasdes_events;
	spin_unlock(&rasdes_events_lock);
	return is_deserted;
}

/* Takes away the PMU of a removed function. */
static void rasdes_unwind(struct work_struct *work)
{
	struct rasdes_pmu *rp = container_of(to_delayed_work(work), struct rasdes_pmu, unwind);

	if (rasdes_is_deserted(rp))
		rasdes_forget(rp);
	else
		queue_delayed_work(rasdes_wq, &rp->unwind, msecs_to_jiffies(RASDES_UNWIND_MS));
}

static struct rasdes_pmu *rasdes_port_alloc(struct pci_dev *pdev, u16 vsec)
{
	unsigned int lanes = rasdes_link_lanes(pdev), n = rasdes_count_counters(lanes);
	struct rasdes_pmu *rp;

	rp = kzalloc(struct_size(rp, counters, n), GFP_KERNEL);
	if (!rp)
		return NULL;
	rp->pdev = pci_dev_get(pdev);
	rp->domain = pci_domain_nr(pdev->bus);
	rp->bus = pdev->bus->number;
	rp->devfn = pdev->devfn;
	rp->vsec = vsec;
	rp->lanes = lanes;
	rp->ncounters = n;
	rp->cpu = -1;
	rp->selected = U32_MAX;
	mutex_init(&rp->hotplug);
	raw_spin_lock_init(&rp->lock);
	INIT_LIST_HEAD(&rp->node);
	INIT_LIST_HEAD(&rp->users);
	INIT_LIST_HEAD(&rp->carried);
	INIT_LIST_HEAD(&rp->tba.shadow.fresh);
	INIT_DELAYED_WORK(&rp->unwind, rasdes_unwind);
	INIT_DELAYED_WORK(&rp->poll, rasdes_poll);
	rasdes_counter_init(rp);
	rasdes_name(rp);
	rasdes_pmu_init(rp);
	return rp;
}

static int rasdes_port_register(struct rasdes_pmu *rp)
{
	int ret;

	mutex_lock(&rp->hotplug);
	ret = perf_pmu_register(&rp->pmu, rp->name, -1);
	rp->is_registered = !ret;
	spin_lock(&rasdes_events_lock);
	rp->is_open = !ret;
	spin_unlock(&rasdes_events_lock);
	mutex_unlock(&rp->hotplug);
	return ret;
}

/**
 * rasdes_port_create() - makes the PMU of a function
 * @pdev: the function
 * @vsec: offset of the capability
 *
 * Return: the port, or an error pointer.
 */
struct rasdes_pmu *rasdes_port_create(struct pci_dev *pdev, u16 vsec)
{
	struct rasdes_pmu *rp;
	int ret;

	if (!rasdes_is_seed && rasdes_is_served(pdev)) {
		dev_warn_once(&pdev->dev, "dwc_pcie_pmu has the names; unload it, or use naming=seed\n");
		return ERR_PTR(-EBUSY);
	}
	rp = rasdes_port_alloc(pdev, vsec);
	if (!rp)
		return ERR_PTR(-ENOMEM);
	ret = cpuhp_state_add_instance(rasdes_cpuhp, &rp->cpuhp_node);
	if (ret) {
		pci_err(pdev, "cannot follow CPU hotplug: %d\n", ret);
		goto err_free;
	}
	ret = rasdes_port_register(rp);
	if (ret) {
		pci_err(pdev, "cannot register %s: %d\n", rp->name, ret);
		goto err_remove_instance;
	}
	return rp;

err_remove_instance:
	cpuhp_state_remove_instance_nocalls(rasdes_cpuhp, &rp->cpuhp_node);
err_free:
	pci_dev_put(rp->pdev);
	kfree(rp);
	return ERR_PTR(ret);
}

/**
 * rasdes_port_destroy() - takes a PMU without events away
 * @rp: the port, on no list
 */
void rasdes_port_destroy(struct rasdes_pmu *rp)
{
	cpuhp_state_remove_instance_nocalls(rasdes_cpuhp, &rp->cpuhp_node);
	perf_pmu_unregister(&rp->pmu);
	cancel_delayed_work_sync(&rp->poll);
	pci_dev_put(rp->successor);
	pci_dev_put(rp->pdev);
	kfree(rp);
}

/**
 * rasdes_port_leave() - the function is being removed
 * @rp: the port
 */
void rasdes_port_leave(struct rasdes_pmu *rp)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&rp->lock, flags);
	rp->is_gone = true;
	raw_spin_unlock_irqrestore(&rp->lock, flags);
	spin_lock(&rasdes_events_lock);
	rp->is_open = false;
	if (!rp->events)
		queue_delayed_work(rasdes_wq, &rp->unwind, 0);
	spin_unlock(&rasdes_events_lock);
}

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

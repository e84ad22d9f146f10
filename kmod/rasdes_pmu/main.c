// SPDX-License-Identifier: GPL-2.0-only
/*
 * rasdes_pmu: the counters of PCIe root ports with DesignWare RAS D.E.S., as
 * perf PMUs (docs/pmu.md).
 *
 * No driver is bound: root ports belong to the kernel's port driver. This
 * file finds the functions, at load and as they come and go.
 */
#include <linux/cpuhotplug.h>
#include <linux/module.h>

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

unsigned int rasdes_poll_ms = 100;
module_param_named(poll_ms, rasdes_poll_ms, uint, 0444);
MODULE_PARM_DESC(poll_ms, "how often counters in use are looked at, 1 to 1000 ms (default 100)");

unsigned int rasdes_tba_bits = 64;
module_param_named(tba_bits, rasdes_tba_bits, uint, 0444);
MODULE_PARM_DESC(tba_bits, "width of the time-based data, 32 to 64 (default 64: a narrower one is noticed when it wraps)");

#define RASDES_POLL_MAX_MS	1000

bool rasdes_is_seed;
bool rasdes_is_old_variant;
bool rasdes_narrow_wraps;
struct workqueue_struct *rasdes_wq;
enum cpuhp_state rasdes_cpuhp;

static DEFINE_MUTEX(rasdes_ports_lock);	/* the following */
static LIST_HEAD(rasdes_ports);
static bool rasdes_is_exiting;

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

/* A PMU of this address: the function's own, or one that waits for its last event. */
static struct rasdes_pmu *rasdes_find(struct pci_dev *pdev)
{
	struct rasdes_pmu *rp;

	lockdep_assert_held(&rasdes_ports_lock);
	list_for_each_entry(rp, &rasdes_ports, node) {
		if (rp->domain == pci_domain_nr(pdev->bus) && rp->bus == pdev->bus->number &&
		    rp->devfn == pdev->devfn)
			return rp;
	}
	return NULL;
}

static void rasdes_add_locked(struct pci_dev *pdev)
{
	struct rasdes_pmu *rp;
	u16 vsec;

	lockdep_assert_held(&rasdes_ports_lock);
	vsec = rasdes_find_vsec(pdev);
	if (!vsec || rasdes_is_exiting)
		return;
	rp = rasdes_find(pdev);
	if (!rp) {
		rp = rasdes_port_create(pdev, vsec);
		if (!IS_ERR(rp))
			list_add_tail(&rp->node, &rasdes_ports);
	} else if (rp->pdev != pdev) {
		pci_dev_put(rp->successor);
		rp->successor = pci_dev_get(pdev);
	}
}

static void rasdes_add(struct pci_dev *pdev)
{
	if (!rasdes_is_ours(pdev))
		return;
	mutex_lock(&rasdes_ports_lock);
	rasdes_add_locked(pdev);
	mutex_unlock(&rasdes_ports_lock);
}

static void rasdes_remove(struct pci_dev *pdev)
{
	struct rasdes_pmu *rp;

	mutex_lock(&rasdes_ports_lock);
	rp = rasdes_find(pdev);
	if (rp && rp->pdev == pdev) {
		rasdes_port_leave(rp);
	} else if (rp && rp->successor == pdev) {
		rp->successor = NULL;
		pci_dev_put(pdev);
	}
	mutex_unlock(&rasdes_ports_lock);
}

/**
 * rasdes_forget() - the end of a removed function's PMU; who came to its address gets one now
 * @rp: the port, without events
 */
void rasdes_forget(struct rasdes_pmu *rp)
{
	struct pci_dev *successor;

	mutex_lock(&rasdes_ports_lock);
	/* Off the list, rasdes_exit() waits for us to take it away itself. */
	if (!list_empty(&rp->node)) {
		successor = pci_dev_get(rp->successor);
		list_del(&rp->node);
		rasdes_port_destroy(rp);
		if (successor)
			rasdes_add_locked(successor);
		pci_dev_put(successor);
	}
	mutex_unlock(&rasdes_ports_lock);
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

/* Which of two words a parameter is. */
static int rasdes_parse(const char *name, const char *value, const char *first,
			const char *second, bool *is_second)
{
	*is_second = sysfs_streq(value, second);
	if (*is_second || sysfs_streq(value, first))
		return 0;
	pr_err(RASDES_NAME ": %s=%s is neither %s nor %s\n", name, value, first, second);
	return -EINVAL;
}

static int rasdes_parse_all(void)
{
	int ret;

	ret = rasdes_parse("naming", naming, "upstream", "seed", &rasdes_is_seed);
	if (ret)
		return ret;
	ret = rasdes_parse("variant", variant, "seed", "old", &rasdes_is_old_variant);
	if (ret)
		return ret;
	ret = rasdes_parse("narrow", narrow, "saturate", "wrap", &rasdes_narrow_wraps);
	if (ret)
		return ret;
	if (rasdes_poll_ms < 1 || rasdes_poll_ms > RASDES_POLL_MAX_MS) {
		pr_err(RASDES_NAME ": poll_ms=%u is not within 1..%u\n", rasdes_poll_ms,
		       RASDES_POLL_MAX_MS);
		return -EINVAL;
	}
	if (rasdes_tba_bits < 32 || rasdes_tba_bits > 64) {
		pr_err(RASDES_NAME ": tba_bits=%u is not within 32..64\n", rasdes_tba_bits);
		return -EINVAL;
	}
	return 0;
}

static void rasdes_find_all(void)
{
	struct pci_dev *pdev = NULL;

	for_each_pci_dev(pdev)
		rasdes_add(pdev);
}

static int __init rasdes_init(void)
{
	int ret;

	ret = rasdes_parse_all();
	if (ret)
		return ret;
	ret = rasdes_events_init();
	if (ret)
		return ret;
	/* Whichever CPU has time: a late look at a narrow counter loses counts. */
	rasdes_wq = alloc_workqueue(RASDES_NAME, WQ_UNBOUND | WQ_HIGHPRI, 0);
	if (!rasdes_wq) {
		ret = -ENOMEM;
		goto err_events;
	}
	ret = cpuhp_setup_state_multi(CPUHP_AP_ONLINE_DYN, RASDES_NAME ":online",
				      rasdes_cpu_online, rasdes_cpu_offline);
	if (ret < 0)
		goto err_wq;
	rasdes_cpuhp = ret;
	ret = bus_register_notifier(&pci_bus_type, &rasdes_notifier);
	if (ret)
		goto err_cpuhp;
	rasdes_find_all();
	return 0;

err_cpuhp:
	cpuhp_remove_multi_state(rasdes_cpuhp);
err_wq:
	destroy_workqueue(rasdes_wq);
err_events:
	rasdes_events_exit();
	return ret;
}

static struct rasdes_pmu *rasdes_take_first(void)
{
	struct rasdes_pmu *rp;

	mutex_lock(&rasdes_ports_lock);
	rasdes_is_exiting = true;
	rp = list_first_entry_or_null(&rasdes_ports, struct rasdes_pmu, node);
	if (rp)
		list_del_init(&rp->node);
	mutex_unlock(&rasdes_ports_lock);
	return rp;
}

/* No event exists: each holds the module. */
static void __exit rasdes_exit(void)
{
	struct rasdes_pmu *rp;

	bus_unregister_notifier(&pci_bus_type, &rasdes_notifier);
	while ((rp = rasdes_take_first())) {
		cancel_delayed_work_sync(&rp->unwind);
		rasdes_port_destroy(rp);
	}
	destroy_workqueue(rasdes_wq);
	cpuhp_remove_multi_state(rasdes_cpuhp);
	rasdes_events_exit();
}

module_init(rasdes_init);
module_exit(rasdes_exit);

MODULE_DESCRIPTION("Counters of PCIe root ports with DesignWare RAS D.E.S.");
MODULE_AUTHOR("The pciescope authors");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");

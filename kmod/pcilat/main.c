// SPDX-License-Identifier: GPL-2.0-only
/*
 * pcilat: PCIe latency from every CPU.
 *
 * No in-tree driver measures this: vfio-pci lets user space access registers, but
 * interrupts then arrive behind a wake-up, configuration space behind a system call,
 * and nothing keeps interrupts away between two stamps.
 *
 * This file binds devices. An open file holds a reference to struct pcilat_device,
 * which may outlive the binding. Code accesses the device between pcilat_enter() and
 * pcilat_leave() only. remove() waits for all of this code before the device leaves.
 */
#include "internal.h"

static unsigned int max_vectors = 128;
module_param(max_vectors, uint, 0444);
MODULE_PARM_DESC(max_vectors, "most interrupt vectors to take of a device (default 128)");

static unsigned int ring_records = 1048576;
module_param(ring_records, uint, 0444);
MODULE_PARM_DESC(ring_records, "raw records of 16 bytes that a device's ring holds (default 1048576)");

#define PCILAT_RING_MIN		256u
#define PCILAT_RING_MAX		((u32)BIT(28))

DEFINE_MUTEX(pcilat_devices_lock);	/* pcilat_devices, and chardev.c's pcilat_by_id */
LIST_HEAD(pcilat_devices);

struct class pcilat_class = {
	.name = PCILAT_NAME,
};

static enum cpuhp_state pcilat_cpuhp;

static void pcilat_release_device(struct kref *ref)
{
	struct pcilat_device *pl = container_of(ref, struct pcilat_device, ref);
	u32 i;

	pcilat_job_free(pl->job);
	vfree(pl->ring.records);
	for (i = 0; i < PCILAT_TEXT_KINDS; i++)
		vfree(pl->text_ring[i].records);
	kfree(pl);
}

bool pcilat_get(struct pcilat_device *pl)
{
	return kref_get_unless_zero(&pl->ref);
}

void pcilat_put(struct pcilat_device *pl)
{
	kref_put(&pl->ref, pcilat_release_device);
}

/* Keeps the device bound until pcilat_leave(). */
int pcilat_check_usable(const struct pcilat_device *pl)
{
	if (READ_ONCE(pl->gone))
		return -ENODEV;
	return READ_ONCE(pl->resetting) ? -ECANCELED : 0;
}

int pcilat_enter(struct pcilat_device *pl)
{
	int ret;

	down_read(&pl->hw);
	ret = pcilat_check_usable(pl);
	if (ret)
		up_read(&pl->hw);
	return ret;
}

void pcilat_leave(struct pcilat_device *pl)
{
	up_read(&pl->hw);
}

int pcilat_check_lockdown(void)
{
	return security_locked_down(LOCKDOWN_PCI_ACCESS);
}

/* Reads the device's ID. */
bool pcilat_check_present(struct pcilat_device *pl)
{
	bool present = pci_device_is_present(pl->pdev);

	WRITE_ONCE(pl->present, present);
	return present;
}

/*
 * The first BAR whose address is not the one that the kernel gave it, or -1. A reset that nobody
 * announced clears them; accesses then go to nobody, and are answered fast. The BARs of a virtual
 * function read 0, and so do those of Enhanced Allocation (PCIe 6.0, 9.3.4.1.11 and 7.8.5).
 */
static int pcilat_lost_bar(struct pci_dev *pdev)
{
	int bar;

	for (bar = 0; bar < PCI_STD_NUM_BARS && !pdev->is_virtfn; bar++) {
		unsigned long flags = pci_resource_flags(pdev, bar);
		int at = PCI_BASE_ADDRESS_0 + 4 * bar;
		u32 low = 0, high = 0;

		if (!(flags & IORESOURCE_MEM) || !pci_resource_len(pdev, bar) ||
		    flags & (IORESOURCE_UNSET | IORESOURCE_PCI_EA_BEI))
			continue;
		pci_read_config_dword(pdev, at, &low);
		if (flags & IORESOURCE_MEM_64)
			pci_read_config_dword(pdev, at + 4, &high);
		low &= (u32)PCI_BASE_ADDRESS_MEM_MASK;
		if (((u64)high << 32 | low) != pci_bus_address(pdev, bar))
			return bar;
	}
	return -1;
}

/*
 * Whether the registers can be reached. Somebody may reset a function, or put it to
 * sleep, without telling its driver: by the bridge above it, or by its own registers.
 * What is measured then is the way to nobody. 0; -ENODEV: the function does not answer;
 * -ECANCELED: it answers, but its memory does not. A virtual function has no bit of its
 * own for its memory: it reads 0 (PCIe 6.0, 9.3.4.1.3).
 */
int pcilat_check_alive(struct pcilat_device *pl, bool needs_memory)
{
	struct pci_dev *pdev = pl->pdev;
	u16 command = 0, power = 0;

	if (!pcilat_check_present(pl))
		return -ENODEV;
	if (!needs_memory)
		return 0;
	pci_read_config_word(pdev, PCI_COMMAND, &command);
	if (pdev->pm_cap)
		pci_read_config_word(pdev, pdev->pm_cap + PCI_PM_CTRL, &power);
	if ((!pdev->is_virtfn && !(command & PCI_COMMAND_MEMORY)) || power & PCI_PM_CTRL_STATE_MASK)
		return -ECANCELED;
	return pcilat_lost_bar(pdev) < 0 ? 0 : -ECANCELED;
}

static void pcilat_claim_bars(struct pcilat_device *pl)
{
	int bar;

	for (bar = 0; bar < PCI_STD_NUM_BARS; bar++) {
		if (!(pci_resource_flags(pl->pdev, bar) & IORESOURCE_MEM) ||
		    !pci_resource_len(pl->pdev, bar))
			continue;
		if (pci_request_region(pl->pdev, bar, PCILAT_NAME))
			pci_warn(pl->pdev, "BAR%d is in use by another driver, not claimed\n", bar);
		else
			pl->claimed |= BIT(bar);
	}
}

static void pcilat_fill_bars(struct pcilat_device *pl)
{
	int bar;

	for (bar = 0; bar < PCI_STD_NUM_BARS; bar++) {
		unsigned long flags = pci_resource_flags(pl->pdev, bar);
		struct pcilat_bar *out = &pl->info.bars[bar];

		out->size = pci_resource_len(pl->pdev, bar);
		if (!out->size)
			continue;
		out->flags = PCILAT_BAR_PRESENT;
		if (flags & IORESOURCE_MEM)
			out->flags |= PCILAT_BAR_MEMORY;
		if (flags & IORESOURCE_MEM_64)
			out->flags |= PCILAT_BAR_64BIT;
		if (flags & IORESOURCE_PREFETCH)
			out->flags |= PCILAT_BAR_PREFETCH;
	}
}

static void pcilat_fill_info(struct pcilat_device *pl)
{
	struct pci_dev *pdev = pl->pdev;
	struct pcilat_info *info = &pl->info;

	info->size = sizeof(*info);
	info->abi = PCILAT_ABI;
	info->domain = pci_domain_nr(pdev->bus);
	info->bus = pdev->bus->number;
	info->devfn = pdev->devfn;
	info->vendor = pdev->vendor;
	info->device = pdev->device;
	info->subsystem_vendor = pdev->subsystem_vendor;
	info->subsystem_device = pdev->subsystem_device;
	info->class_code = pdev->class;
	info->clock = PCILAT_CLOCK;
	info->clock_hz = pcilat_clock_hz();
	info->irq_type = pl->irq_type;
	info->vectors = pl->nvectors;
	info->sources = pl->sources;
	info->ring_records = pl->ring.size;
	info->batch_max_ns = PCILAT_BATCH_MAX_NS;
	info->hops = pl->nhops;
	if (pl->trigger)
		strscpy(info->trigger, pl->trigger->name, sizeof(info->trigger));
	pcilat_fill_bars(pl);
}

static struct pcilat_device *pcilat_new_device(struct pci_dev *pdev)
{
	struct pcilat_device *pl = kzalloc(sizeof(*pl), GFP_KERNEL);

	if (!pl)
		return NULL;
	kref_init(&pl->ref);
	pl->pdev = pdev;
	strscpy(pl->bdf, pci_name(pdev), sizeof(pl->bdf));
	INIT_LIST_HEAD(&pl->node);
	init_rwsem(&pl->hw);
	mutex_init(&pl->lock);
	pl->present = true;
	pcilat_ring_init(&pl->ring, ring_records, sizeof(struct pcilat_record));
	return pl;
}

/* With pl->lock held. A run that has ended keeps its result. */
static void pcilat_end_run(struct pcilat_device *pl, int error)
{
	if (pl->job && pl->job->running)
		pcilat_job_end(pl->job, error, -1, 0);
}

/*
 * Whether handlers leave a device alone that may not answer. With pl->hw held. They all
 * know it when this returns.
 */
static void pcilat_set_silent(struct pcilat_device *pl, bool is_silent)
{
	u32 i;

	for (i = 0; i < pl->nvectors; i++) {
		WRITE_ONCE(pl->vectors[i].is_silent, is_silent);
		synchronize_irq(pl->vectors[i].irq);
	}
}

/*
 * Waits for all code that accesses the device. Later callers see `gone` or `resetting`, and
 * do not access it.
 */
static void pcilat_wait_for_accesses(struct pcilat_device *pl, bool is_silent)
{
	guard(rwsem_write)(&pl->hw);
	pcilat_set_silent(pl, is_silent);
}

/* Ends the run under way, and waits for all code that accesses the device. */
static void pcilat_disconnect(struct pcilat_device *pl)
{
	/* The status tells unbound devices from removed ones. */
	bool present = pcilat_check_present(pl);

	mutex_lock(&pl->lock);
	WRITE_ONCE(pl->gone, true);
	pcilat_end_run(pl, -ENODEV);
	mutex_unlock(&pl->lock);
	/* Its memory may be lost after an error, although its configuration space answers. */
	pcilat_wait_for_accesses(pl, !present || READ_ONCE(pl->resetting));
}

/*
 * The device is about to lose its registers. Ends the run under way, and waits for all code
 * that accesses the device; whoever comes until pcilat_restart() gets ECANCELED.
 */
static void pcilat_quiesce(struct pcilat_device *pl)
{
	mutex_lock(&pl->lock);
	WRITE_ONCE(pl->resetting, true);
	pcilat_end_run(pl, -ECANCELED);
	mutex_unlock(&pl->lock);
	pcilat_wait_for_accesses(pl, true);
}

/* The PCI core has restored what is its own: the BARs, and the table of vectors. */
static void pcilat_restart(struct pcilat_device *pl)
{
	guard(rwsem_write)(&pl->hw);
	pcilat_set_silent(pl, false);
	pcilat_irq_restore(pl);
	/* Its handler may have switched the pin off. */
	if (pl->irq_type == PCILAT_IRQ_INTX)
		pci_intx(pl->pdev, true);
	/* For pcilat_slot_reset(): restoring a state forgets it. */
	pci_save_state(pl->pdev);
	WRITE_ONCE(pl->resetting, false);
}

static int pcilat_suspend(struct device *dev)
{
	pcilat_quiesce(dev_get_drvdata(dev));
	return 0;
}

static int pcilat_resume(struct device *dev)
{
	pcilat_restart(dev_get_drvdata(dev));
	return 0;
}

static DEFINE_SIMPLE_DEV_PM_OPS(pcilat_pm_ops, pcilat_suspend, pcilat_resume);

static void pcilat_reset_prepare(struct pci_dev *pdev)
{
	pcilat_quiesce(pci_get_drvdata(pdev));
}

static void pcilat_reset_done(struct pci_dev *pdev)
{
	pcilat_restart(pci_get_drvdata(pdev));
}

/* The link may be reset next, whichever function behind it is at fault. */
static pci_ers_result_t pcilat_error_detected(struct pci_dev *pdev, pci_channel_state_t state)
{
	if (state == pci_channel_io_normal)
		return PCI_ERS_RESULT_CAN_RECOVER;
	if (state == pci_channel_io_perm_failure) {
		pcilat_disconnect(pci_get_drvdata(pdev));
		return PCI_ERS_RESULT_DISCONNECT;
	}
	pcilat_quiesce(pci_get_drvdata(pdev));
	return PCI_ERS_RESULT_NEED_RESET;
}

/*
 * Unlike a reset that somebody asks for, this one leaves configuration space to the driver.
 * It may follow an error that was none for this function: another one on the bus asked for it.
 */
static pci_ers_result_t pcilat_slot_reset(struct pci_dev *pdev)
{
	pcilat_quiesce(pci_get_drvdata(pdev));
	pci_restore_state(pdev);
	return PCI_ERS_RESULT_RECOVERED;
}

static void pcilat_error_resume(struct pci_dev *pdev)
{
	struct pcilat_device *pl = pci_get_drvdata(pdev);

	if (READ_ONCE(pl->resetting))
		pcilat_restart(pl);
}

static const struct pci_error_handlers pcilat_err_handlers = {
	.error_detected = pcilat_error_detected,
	.slot_reset = pcilat_slot_reset,
	.resume = pcilat_error_resume,
	.reset_prepare = pcilat_reset_prepare,
	.reset_done = pcilat_reset_done,
};

/* As the original program does: the BARs that can be read, and the interrupt of each vector. */
static void pcilat_say_ready(struct pcilat_device *pl)
{
	char bars[2 * PCI_STD_NUM_BARS + 1] = "";
	unsigned int bar, at = 0;
	u32 i;

	for (bar = 0; bar < PCI_STD_NUM_BARS; bar++) {
		if (pl->info.bars[bar].flags & PCILAT_BAR_MEMORY)
			at += scnprintf(bars + at, sizeof(bars) - at, " %u", bar);
	}
	pci_info(pl->pdev, "ready: usable BARs:%s; %u vectors, %u hops, trigger %s\n",
		 at ? bars : " none", pl->nvectors, pl->nhops,
		 pl->trigger ? pl->trigger->name : "none");
	for (i = 0; i < pl->nvectors; i++)
		pci_info(pl->pdev, "vector %u: IRQ %d\n", i, pl->vectors[i].irq);
}

static int pcilat_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct pcilat_device *pl;
	int ret, bar;

	/* By name only: an ID that is written to new_id could match other devices too. */
	if (!compat_is_overridden(pdev, pdev->dev.driver)) {
		pci_err(pdev, "not bound: write " PCILAT_NAME " to its driver_override first\n");
		return -ENODEV;
	}
	/* To unbind it would end the DMA of all functions behind it. */
	if (pdev->hdr_type != PCI_HEADER_TYPE_NORMAL) {
		pci_err(pdev, "not bound: a bridge has no registers to measure\n");
		return -ENODEV;
	}
	/* Before the memory is enabled: at address 0 it would be in the way of others. */
	bar = pcilat_lost_bar(pdev);
	if (bar >= 0) {
		pci_err(pdev, "not bound: BAR%d has lost its address: remove the function, then rescan\n",
			bar);
		return -EIO;
	}
	pl = pcilat_new_device(pdev);
	if (!pl)
		return -ENOMEM;
	ret = pci_enable_device_mem(pdev);
	if (ret) {
		pci_err(pdev, "cannot enable the device's memory: %d\n", ret);
		goto err_put;
	}
	pci_set_master(pdev);
	pcilat_claim_bars(pl);
	ret = pcilat_path_init(pl);
	if (ret)
		goto err_release_bars;
	ret = pcilat_irq_init(pl, max_vectors);
	if (ret)
		goto err_release_bars;
	pcilat_fill_info(pl);
	pci_set_drvdata(pdev, pl);
	/* For pcilat_slot_reset(). */
	pci_save_state(pdev);
	ret = pcilat_text_init(pl);
	if (ret)
		goto err_irq;
	ret = pcilat_nodes_init(pl);
	if (ret)
		goto err_text;
	mutex_lock(&pcilat_devices_lock);
	list_add_tail(&pl->node, &pcilat_devices);
	mutex_unlock(&pcilat_devices_lock);
	pcilat_say_ready(pl);
	return 0;

err_text:
	/* A command may have started a run already. */
	pcilat_disconnect(pl);
	pcilat_text_exit(pl);
err_irq:
	pcilat_irq_exit(pl);
err_release_bars:
	pci_release_selected_regions(pdev, pl->claimed);
	pci_clear_master(pdev);
	pci_disable_device(pdev);
err_put:
	pcilat_put(pl);
	return ret;
}

static void pcilat_remove(struct pci_dev *pdev)
{
	struct pcilat_device *pl = pci_get_drvdata(pdev);

	mutex_lock(&pcilat_devices_lock);
	list_del(&pl->node);
	mutex_unlock(&pcilat_devices_lock);
	pcilat_disconnect(pl);
	pcilat_text_exit(pl);
	pcilat_nodes_exit(pl);
	pcilat_irq_exit(pl);
	pci_release_selected_regions(pdev, pl->claimed);
	pci_clear_master(pdev);
	pci_disable_device(pdev);
	pcilat_put(pl);
}

static bool pcilat_job_uses(const struct pcilat_job *job, u32 cpu)
{
	u32 i;

	if (job->req.kind == PCILAT_KIND_IRQ && job->req.trigger_cpu == (s32)cpu)
		return true;
	for (i = 0; i < job->req.ncpus; i++) {
		if (job->cpus[i] == cpu)
			return true;
	}
	return false;
}

/* Ends a run that uses the CPU at once, and not only at that CPU's turn. */
static int pcilat_cpu_offline(unsigned int cpu)
{
	struct pcilat_device *pl;

	guard(mutex)(&pcilat_devices_lock);
	list_for_each_entry(pl, &pcilat_devices, node) {
		mutex_lock(&pl->lock);
		if (pl->job && pl->job->running && pcilat_job_uses(pl->job, cpu))
			pcilat_job_end(pl->job, -ENXIO, cpu, 0);
		mutex_unlock(&pl->lock);
	}
	return 0;
}

/* No IDs: devices are bound by driver_override only. */
static const struct pci_device_id pcilat_ids[] = {
	{ }
};

static struct pci_driver pcilat_driver = {
	.name = PCILAT_NAME,
	.id_table = pcilat_ids,
	.probe = pcilat_probe,
	.remove = pcilat_remove,
	.err_handler = &pcilat_err_handlers,
	.driver.pm = pm_sleep_ptr(&pcilat_pm_ops),
};

/* A stamp reads the register once, without the workaround that the kernel may need. */
static void __init pcilat_say_errata(void)
{
#ifdef CONFIG_ARM_ARCH_TIMER_OOL_WORKAROUND
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		const struct arch_timer_erratum_workaround *erratum =
			per_cpu(timer_unstable_counter_workaround, cpu);

		if (!erratum || !erratum->read_cntvct_el0)
			continue;
		pr_warn(PCILAT_NAME ": single times may be wrong on CPU %u: %s\n", cpu,
			erratum->desc);
		return;
	}
#endif
}

static int __init pcilat_check_clock(void)
{
	if (!pcilat_clock_hz()) {
		pr_err(PCILAT_NAME ": the frequency of the CPU's clock is not known\n");
		return -ENODEV;
	}
#ifdef CONFIG_X86
	if (!boot_cpu_has(X86_FEATURE_RDTSCP)) {
		pr_err(PCILAT_NAME ": the CPU has no RDTSCP\n");
		return -ENODEV;
	}
#endif
	return 0;
}

static int __init pcilat_init(void)
{
	int ret;

	ret = pcilat_check_clock();
	if (ret)
		return ret;
	pcilat_say_errata();
	if (ring_records < PCILAT_RING_MIN || ring_records > PCILAT_RING_MAX) {
		pr_err(PCILAT_NAME ": ring_records=%u is not within %u..%u\n", ring_records,
		       PCILAT_RING_MIN, PCILAT_RING_MAX);
		return -EINVAL;
	}
	ret = class_register(&pcilat_class);
	if (ret)
		return ret;
	ret = pcilat_nodes_register();
	if (ret)
		goto err_class;
	ret = cpuhp_setup_state_nocalls(CPUHP_AP_ONLINE_DYN, "pcilat:online", NULL,
					pcilat_cpu_offline);
	if (ret < 0)
		goto err_nodes;
	pcilat_cpuhp = ret;
	ret = pci_register_driver(&pcilat_driver);
	if (ret)
		goto err_cpuhp;
	return 0;

err_cpuhp:
	cpuhp_remove_state_nocalls(pcilat_cpuhp);
err_nodes:
	pcilat_nodes_unregister();
err_class:
	class_unregister(&pcilat_class);
	return ret;
}

static void __exit pcilat_exit(void)
{
	pci_unregister_driver(&pcilat_driver);
	cpuhp_remove_state_nocalls(pcilat_cpuhp);
	pcilat_nodes_unregister();
	class_unregister(&pcilat_class);
}

module_init(pcilat_init);
module_exit(pcilat_exit);

MODULE_DESCRIPTION("PCIe latency from every CPU");
MODULE_AUTHOR("The pciescope authors");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");

// SPDX-License-Identifier: GPL-2.0-only
/*
 * sis8300: Struck SIS8300 digitizers (docs/sis8300.md).
 *
 * No driver of the boards is in the kernel's tree. Unlike those of ESS and Struck, whose
 * tools still work, it reads into buffers that user space maps, finds lost interrupts and
 * short DMAs, and lets a board be removed or reset while it is in use.
 *
 * This file binds boards and names their nodes. Files and mappings hold references to
 * the board's struct device. They may outlive the binding, and then find the board
 * gone. Registers, DMA mappings and interrupt end with the binding.
 */
#include "internal.h"

#define SIS8300_VENDOR		0x1796
#define SIS8300_MINORS		64
#define SIS8300_CHUNK_MIN	SZ_64K
#define SIS8300_WORDS_MIN	0x300	/* the last register in use is 0x230 */
#define SIS8300_LANE_MEGABITS	2000ULL	/* of a first-generation lane, each second */

static bool sis8300_intx;
module_param_named(intx, sis8300_intx, bool, 0444);
MODULE_PARM_DESC(intx, "interrupts by pin even where the board has messages (default 0)");

static unsigned int sis8300_chunk_kib = 4096;
module_param_named(chunk_kib, sis8300_chunk_kib, uint, 0444);
MODULE_PARM_DESC(chunk_kib, "longest DMA in KiB, 64 to 4096 (default 4096, or what memory gives)");

static ushort sis8300_mode = 0600;
module_param_named(mode, sis8300_mode, ushort, 0444);
MODULE_PARM_DESC(mode, "permissions of the nodes (default 0600)");

bool sis8300_unsafe_registers;
module_param_named(unsafe_registers, sis8300_unsafe_registers, bool, 0444);
MODULE_PARM_DESC(unsafe_registers, "with CAP_SYS_RAWIO, let user space write the registers of DMA, interrupts and reset (default 0)");

bool sis8300_serial;
module_param_named(serial, sis8300_serial, bool, 0644);
MODULE_PARM_DESC(serial, "read() does DMA and copy one after the other, as the ESS driver does (default 0)");

int sis8300_check_length = -1;
module_param_named(check_length, sis8300_check_length, int, 0644);
MODULE_PARM_DESC(check_length, "find short DMAs by the source register: 0, 1, or -1 where it was seen to move (default)");

int sis8300_daq_irq = -1;
module_param_named(daq_irq, sis8300_daq_irq, int, 0644);
MODULE_PARM_DESC(daq_irq, "the firmware signals the end of an acquisition: 0, 1, or -1 find out (default)");

unsigned int sis8300_dma_timeout_ms = 1000;
module_param_named(dma_timeout_ms, sis8300_dma_timeout_ms, uint, 0644);
MODULE_PARM_DESC(dma_timeout_ms, "a DMA has failed after this and 16 times what the link takes (default 1000, at most 60000)");

unsigned int sis8300_write_bytes = 64;
module_param_named(write_bytes, sis8300_write_bytes, uint, 0644);
MODULE_PARM_DESC(write_bytes, "longest DMA of write(), 64 to 65536 (default 64: boards were seen to corrupt longer ones)");

struct workqueue_struct *sis8300_wq;

static dev_t sis8300_devt;
static DEFINE_IDA(sis8300_minors);
static DEFINE_MUTEX(sis8300_names_lock);	/* from the choice of a name to its use */

static char *sis8300_devnode(const struct device *dev, umode_t *mode)
{
	if (mode)
		*mode = sis8300_mode & 0666;
	return NULL;
}

#ifndef COMPAT_HAS_class_devnode_const
static char *sis8300_devnode_old(struct device *dev, umode_t *mode)
{
	return sis8300_devnode(dev, mode);
}

#define sis8300_devnode sis8300_devnode_old
#endif

static struct class sis8300_class = {
	.name = SIS8300_NAME,
	.devnode = sis8300_devnode,
};

static void sis8300_release_board(struct device *dev)
{
	struct sis8300 *sis = container_of(dev, struct sis8300, dev);
	int i;

	for (i = 0; i < SIS8300_READ_SLOTS; i++)
		sis8300_buffer_free(sis, &sis->chunks[i]);
	sis8300_buffer_free(sis, &sis->write_buffer);
	if (sis->minor >= 0)
		ida_free(&sis8300_minors, sis->minor);
	pci_dev_put(sis->pdev);
	kfree(sis);
}

static struct sis8300 *sis8300_new(struct pci_dev *pdev)
{
	struct sis8300 *sis = kzalloc(sizeof(*sis), GFP_KERNEL);

	if (!sis)
		return NULL;
	sis->pdev = pci_dev_get(pdev);
	sis->minor = -1;
	init_rwsem(&sis->hw);
	mutex_init(&sis->buffers_lock);
	INIT_LIST_HEAD(&sis->buffers);
	mutex_init(&sis->reader);
	mutex_init(&sis->setup_lock);
	sis->clock = SIS8300_CLOCK_KEEP;
	spin_lock_init(&sis->lock);
	INIT_LIST_HEAD(&sis->queue);
	sis->acq.signals = sis8300_daq_irq != 0;
	init_waitqueue_head(&sis->dma_wait);
	init_waitqueue_head(&sis->wait);
	INIT_DELAYED_WORK(&sis->tick, sis8300_tick);
	device_initialize(&sis->dev);
	sis->dev.class = &sis8300_class;
	sis->dev.parent = &pdev->dev;
	sis->dev.release = sis8300_release_board;
	dev_set_drvdata(&sis->dev, sis);
	return sis;
}

/* What the slowest link up to the board moves in a second, before the overhead of packets. */
static u64 sis8300_link_rate(struct pci_dev *pdev)
{
	u64 megabits = pcie_bandwidth_available(pdev, NULL, NULL, NULL);

	/* Links of virtual machines may not say. */
	return max(megabits, SIS8300_LANE_MEGABITS) * 1000000 / 8;
}

/* Two chunks for read(), as large as contiguous memory is available. */
static int sis8300_alloc_chunks(struct sis8300 *sis)
{
	size_t most = dma_max_mapping_size(&sis->pdev->dev), bytes;
	int ret = -ENOMEM;

	bytes = clamp_t(size_t, (size_t)sis8300_chunk_kib * SZ_1K, SIS8300_CHUNK_MIN, SZ_4M);
	bytes = rounddown_pow_of_two(min(bytes, most));
	for (; bytes >= PAGE_SIZE && ret; bytes /= 2) {
		ret = sis8300_buffer_alloc(sis, &sis->chunks[0], bytes, DMA_FROM_DEVICE, 0);
		if (!ret) {
			ret = sis8300_buffer_alloc(sis, &sis->chunks[1], bytes, DMA_FROM_DEVICE, 0);
			if (ret)
				sis8300_buffer_free(sis, &sis->chunks[0]);
		}
		sis->chunk_bytes = bytes;
	}
	if (ret)
		return ret;
	return sis8300_buffer_alloc(sis, &sis->write_buffer, SIS8300_WRITE_MAX, DMA_TO_DEVICE, 0);
}

/* The physical slot number of the port above the board; 0: none. */
static u32 sis8300_slot(struct pci_dev *pdev)
{
	struct pci_dev *port = pci_upstream_bridge(pdev);
	u32 capabilities = 0;

	if (!port || !(pcie_caps_reg(port) & PCI_EXP_FLAGS_SLOT))
		return 0;
	pcie_capability_read_dword(port, PCI_EXP_SLTCAP, &capabilities);
	return FIELD_GET(PCI_EXP_SLTCAP_PSN, capabilities);
}

static bool sis8300_name_is_taken(const char *name)
{
	struct device *dev = class_find_device_by_name(&sis8300_class, name);

	put_device(dev);
	return dev;
}

/* With sis8300_names_lock held, so that the name stays free until it is used. */
static int sis8300_set_name(struct sis8300 *sis)
{
	u32 slot = sis8300_slot(sis->pdev);
	char name[32];

	snprintf(name, sizeof(name), SIS8300_NAME "-%u", slot);
	if (!slot || sis8300_name_is_taken(name))
		return dev_set_name(&sis->dev, SIS8300_NAME "-%s", pci_name(sis->pdev));
	return dev_set_name(&sis->dev, "%s", name);
}

static int sis8300_add_node(struct sis8300 *sis)
{
	int ret;

	ret = ida_alloc_max(&sis8300_minors, SIS8300_MINORS - 1, GFP_KERNEL);
	if (ret < 0)
		return ret;
	sis->minor = ret;
	sis->dev.devt = MKDEV(MAJOR(sis8300_devt), MINOR(sis8300_devt) + sis->minor);
	cdev_init(&sis->cdev, &sis8300_fops);
	sis->cdev.owner = THIS_MODULE;
	guard(mutex)(&sis8300_names_lock);
	return sis8300_set_name(sis) ?: cdev_device_add(&sis->cdev, &sis->dev);
}

/* Wakes all tasks that wait for the board. Nobody touches it when this returns. */
static void sis8300_teardown(void *data)
{
	struct sis8300 *sis = data;

	sis8300_stop(sis);
	cancel_delayed_work_sync(&sis->tick);
	sis8300_buffer_unmap_all(sis);
}

static void sis8300_put(void *data)
{
	struct sis8300 *sis = data;

	put_device(&sis->dev);
}

static void sis8300_disable(void *data)
{
	pci_disable_device(data);
}

static void sis8300_free_vectors(void *data)
{
	pci_free_irq_vectors(data);
}

static int sis8300_map(struct sis8300 *sis)
{
	struct pci_dev *pdev = sis->pdev;
	int ret;

	ret = pci_enable_device_mem(pdev) ?:
	      devm_add_action_or_reset(&pdev->dev, sis8300_disable, pdev);
	if (ret)
		return ret;
	sis->words = pci_resource_len(pdev, 0) / 4;
	if (sis->words < SIS8300_WORDS_MIN)
		return -ENODEV;
	sis->regs = devm_ioremap_resource(&pdev->dev, &pdev->resource[0]);
	return PTR_ERR_OR_ZERO(sis->regs);
}

static int sis8300_request_irq(struct sis8300 *sis)
{
	unsigned int types = PCI_IRQ_INTX | (sis8300_intx ? 0 : PCI_IRQ_MSI);
	struct pci_dev *pdev = sis->pdev;
	int ret;

	ret = pci_alloc_irq_vectors(pdev, 1, 1, types);
	if (ret < 0)
		return ret;
	ret = devm_add_action_or_reset(&pdev->dev, sis8300_free_vectors, pdev);
	if (ret)
		return ret;
	sis->is_msi = pdev->msi_enabled;
	return devm_request_irq(&pdev->dev, pci_irq_vector(pdev, 0), sis8300_interrupt,
				sis->is_msi ? 0 : IRQF_SHARED, pci_name(pdev), sis);
}

/* devres frees all in reverse order, after a failure and after remove(). */
static int sis8300_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct device *dev = &pdev->dev;
	struct sis8300 *sis;
	int ret;

	sis = sis8300_new(pdev);
	if (!sis)
		return -ENOMEM;
	ret = devm_add_action_or_reset(dev, sis8300_put, sis);
	if (ret)
		return ret;
	ret = sis8300_map(sis);
	if (ret) {
		pci_err(pdev, "BAR 0 cannot be used: %d\n", ret);
		return ret;
	}
	ret = sis8300_identify(sis);
	if (ret)
		return ret;
	if (dma_set_mask_and_coherent(dev, DMA_BIT_MASK(64)))
		ret = dma_set_mask_and_coherent(dev, DMA_BIT_MASK(32));
	if (ret)
		return ret;
	sis->link_bytes_per_s = sis8300_link_rate(pdev);
	/* No interrupt before the line is shared, and no old DMA before the board is bus master. */
	sis8300_write(sis, SIS8300_REG_IRQ_ENABLE, SIS8300_IRQ_ALL << 16);
	ret = sis8300_dma_halt(sis);
	if (ret) {
		pci_err(pdev, "not bound: an engine runs and does not stop\n");
		return ret;
	}
	ret = sis8300_request_irq(sis);
	if (ret) {
		pci_err(pdev, "no interrupt: %d\n", ret);
		return ret;
	}
	pci_set_drvdata(pdev, sis);
	/* Before devres frees the interrupt: the board must not assert its pin any more. */
	ret = devm_add_action_or_reset(dev, sis8300_teardown, sis) ?: sis8300_alloc_chunks(sis);
	if (ret)
		return ret;
	sis8300_init_registers(sis);
	pci_set_master(pdev);
	/* For sis8300_slot_reset(). */
	pci_save_state(pdev);
	ret = sis8300_add_node(sis);
	if (ret)
		return ret;
	pci_info(pdev, "%s: module 0x%08x, serial %u, %llu MiB, %s\n", dev_name(&sis->dev),
		 sis->module_id, sis->serial & 0xffff, sis->memory_bytes / SZ_1M,
		 sis->is_msi ? "MSI" : "INTx");
	return 0;
}

static void sis8300_remove(struct pci_dev *pdev)
{
	struct sis8300 *sis = pci_get_drvdata(pdev);

	cdev_device_del(&sis->cdev, &sis->dev);
	devm_release_action(&pdev->dev, sis8300_teardown, sis);
}

/* No DMA may run into the next kernel's memory. */
static void sis8300_shutdown(struct pci_dev *pdev)
{
	sis8300_stop(pci_get_drvdata(pdev));
}

static int sis8300_suspend(struct device *dev)
{
	struct sis8300 *sis = dev_get_drvdata(dev);
	bool busy;

	spin_lock_irq(&sis->lock);
	busy = !sis->gone && (sis->current_dma || sis->ring || sis->acq.owner || sis->is_written);
	if (!busy && !sis->gone)
		sis8300_write(sis, SIS8300_REG_IRQ_ENABLE, SIS8300_IRQ_ALL << 16);
	spin_unlock_irq(&sis->lock);
	if (busy)
		return -EBUSY;
	cancel_delayed_work_sync(&sis->tick);
	return 0;
}

/* The registers are as after power-up: the next arming writes the setup again. */
static int sis8300_resume(struct device *dev)
{
	struct sis8300 *sis = dev_get_drvdata(dev);

	/* For sis8300_slot_reset(): restoring a state forgets it. */
	pci_save_state(sis->pdev);
	guard(spinlock_irq)(&sis->lock);
	if (!sis->gone && !sis8300_check_dead_locked(sis, sis8300_read(sis, SIS8300_REG_ID))) {
		sis8300_acq_reset(sis);
		sis8300_init_registers(sis);
	}
	return 0;
}

static DEFINE_SIMPLE_DEV_PM_OPS(sis8300_pm_ops, sis8300_suspend, sis8300_resume);

/*
 * Waits for all code that accesses registers of a board that is out of use: while it does
 * not answer, a read may crash an arm64 machine.
 */
static void sis8300_wait_for_accesses(struct sis8300 *sis)
{
	cancel_delayed_work_sync(&sis->tick);
	guard(rwsem_write)(&sis->hw);
}

/* The link is down or will be reset: the content of the board is not valid any more. */
static pci_ers_result_t sis8300_error_detected(struct pci_dev *pdev, pci_channel_state_t state)
{
	struct sis8300 *sis = pci_get_drvdata(pdev);

	if (state == pci_channel_io_normal)
		return PCI_ERS_RESULT_CAN_RECOVER;
	spin_lock_irq(&sis->lock);
	if (!sis->gone) {
		pci_warn(pdev, "PCIe error: out of use until it is bound anew\n");
		sis8300_disconnect_locked(sis);
	}
	spin_unlock_irq(&sis->lock);
	sis8300_wait_for_accesses(sis);
	return state == pci_channel_io_frozen ? PCI_ERS_RESULT_NEED_RESET :
						PCI_ERS_RESULT_DISCONNECT;
}

/* The board stays out of use, but it can be bound anew, and the others behind the link recover. */
static pci_ers_result_t sis8300_slot_reset(struct pci_dev *pdev)
{
	struct sis8300 *sis = pci_get_drvdata(pdev);

	/* Another function may have asked for it, after an error that was none for this board. */
	spin_lock_irq(&sis->lock);
	sis8300_disconnect_locked(sis);
	spin_unlock_irq(&sis->lock);
	sis8300_wait_for_accesses(sis);
	pci_restore_state(pdev);
	pci_save_state(pdev);
	pci_clear_master(pdev);
	return PCI_ERS_RESULT_RECOVERED;
}

/* The function or its bus is reset: all registers lose their values. */
static void sis8300_reset_prepare(struct pci_dev *pdev)
{
	struct sis8300 *sis = pci_get_drvdata(pdev);

	pci_warn(pdev, "reset: out of use until it is bound anew\n");
	sis8300_stop(sis);
	sis8300_wait_for_accesses(sis);
}

static void sis8300_reset_done(struct pci_dev *pdev)
{
	/* As after a sleep. */
	pci_save_state(pdev);
	pci_clear_master(pdev);
}

static const struct pci_error_handlers sis8300_err_handlers = {
	.error_detected = sis8300_error_detected,
	.slot_reset = sis8300_slot_reset,
	.reset_prepare = sis8300_reset_prepare,
	.reset_done = sis8300_reset_done,
};

/* 0022 (SIS8325) and 0023 (SIS8800) are other cards with other registers. */
static const struct pci_device_id sis8300_ids[] = {
	{ PCI_DEVICE(SIS8300_VENDOR, 0x0018) },
	{ PCI_DEVICE(SIS8300_VENDOR, 0x0019) },
	{ PCI_DEVICE(SIS8300_VENDOR, 0x0024) },
	{ }
};
MODULE_DEVICE_TABLE(pci, sis8300_ids);

static struct pci_driver sis8300_driver = {
	.name = SIS8300_NAME,
	.id_table = sis8300_ids,
	.probe = sis8300_probe,
	.remove = sis8300_remove,
	.shutdown = sis8300_shutdown,
	.err_handler = &sis8300_err_handlers,
	.driver.pm = pm_sleep_ptr(&sis8300_pm_ops),
};

static int __init sis8300_init(void)
{
	int ret;

	sis8300_wq = alloc_workqueue(SIS8300_NAME, WQ_UNBOUND | WQ_HIGHPRI, 0);
	if (!sis8300_wq)
		return -ENOMEM;
	ret = alloc_chrdev_region(&sis8300_devt, 0, SIS8300_MINORS, SIS8300_NAME);
	if (ret)
		goto err_wq;
	ret = class_register(&sis8300_class);
	if (ret)
		goto err_region;
	ret = pci_register_driver(&sis8300_driver);
	if (ret)
		goto err_class;
	return 0;

err_class:
	class_unregister(&sis8300_class);
err_region:
	unregister_chrdev_region(sis8300_devt, SIS8300_MINORS);
err_wq:
	destroy_workqueue(sis8300_wq);
	return ret;
}

static void __exit sis8300_exit(void)
{
	pci_unregister_driver(&sis8300_driver);
	class_unregister(&sis8300_class);
	unregister_chrdev_region(sis8300_devt, SIS8300_MINORS);
	destroy_workqueue(sis8300_wq);
	ida_destroy(&sis8300_minors);
}

module_init(sis8300_init);
module_exit(sis8300_exit);

MODULE_DESCRIPTION("Struck SIS8300 digitizers");
MODULE_AUTHOR("The pciescope authors");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");

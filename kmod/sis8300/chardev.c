// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/sis8300-N. This file checks the part of user space's input that does not
 * depend on the board's state.
 */
#include "internal.h"

static int sis8300_open(struct inode *inode, struct file *file)
{
	struct sis8300 *sis = container_of(inode->i_cdev, struct sis8300, cdev);
	struct sis8300_file *f;

	if (READ_ONCE(sis->gone))
		return -ENODEV;
	f = kzalloc(sizeof(*f), GFP_KERNEL_ACCOUNT);
	if (!f)
		return -ENOMEM;
	f->sis = sis;
	mutex_init(&f->lock);
	spin_lock_irq(&sis->lock);
	memcpy(f->events_seen, sis->events, sizeof(f->events_seen));
	f->interrupts_base = sis->interrupts;
	spin_unlock_irq(&sis->lock);
	/* The cdev holds a reference during open(); from now on the file needs its own. */
	get_device(&sis->dev);
	file->private_data = f;
	return 0;
}

static int sis8300_release(struct inode *inode, struct file *file)
{
	struct sis8300_file *f = file->private_data;
	struct sis8300 *sis = f->sis;

	sis8300_ring_close(f);
	sis8300_acq_release(f);
	kfree(f);
	put_device(&sis->dev);
	return 0;
}

static loff_t sis8300_llseek(struct file *file, loff_t offset, int whence)
{
	struct sis8300_file *f = file->private_data;

	if (offset & (SIS8300_ALIGN - 1))
		return -EINVAL;
	return fixed_size_llseek(file, offset, whence, f->sis->memory_bytes);
}

static __poll_t sis8300_poll(struct file *file, poll_table *table)
{
	struct sis8300_file *f = file->private_data;
	struct sis8300 *sis = f->sis;
	__poll_t events = 0;
	bool ended;

	poll_wait(file, &sis->wait, table);
	/* The file's lock keeps the ring from being set up or freed. */
	guard(mutex)(&f->lock);
	spin_lock_irq(&sis->lock);
	if (!sis8300_ring_poll(f->ring, &events)) {
		ended = f->end.armed ? f->end.sequence == f->end.armed :
				       sis->acq.state == SIS8300_ACQ_ENDED;
		/* The board was reset: no end comes, and WAIT_END returns at once. */
		if (f->end.armed && f->end.error == -EIO)
			events |= EPOLLIN | EPOLLRDNORM | EPOLLERR;
		if (ended)
			events |= EPOLLIN | EPOLLRDNORM;
	}
	if (sis->gone)
		events |= EPOLLHUP;
	spin_unlock_irq(&sis->lock);
	return events;
}

static int sis8300_ioc_info(struct sis8300_file *f, struct sis8300_info *info)
{
	struct sis8300 *sis = f->sis;
	int ret;

	if (memchr_inv(info->reserved, 0, sizeof(info->reserved)))
		return -EINVAL;
	ret = sis8300_enter(sis);
	if (ret)
		return ret;
	info->abi = SIS8300_ABI;
	info->domain = pci_domain_nr(sis->pdev->bus);
	info->bus = sis->pdev->bus->number;
	info->devfn = sis->pdev->devfn;
	info->vendor = sis->pdev->vendor;
	info->device = sis->pdev->device;
	info->channels = SIS8300_CHANNELS;
	info->module_id = sis->module_id;
	info->serial = sis->serial;
	info->options = sis->options;
	info->flags = (sis->is_msi ? SIS8300_INFO_MSI : 0) |
		      (READ_ONCE(sis->acq.signals) ? SIS8300_INFO_DAQ_IRQ : 0);
	info->chunk_bytes = sis->chunk_bytes;
	info->memory_bytes = sis->memory_bytes;
	info->block_samples = sis8300_block_samples(sis);
	info->dma_timeout_ms = sis8300_timeout_ms(sis, sis->chunk_bytes);
	sis8300_leave(sis);
	return 0;
}

static int sis8300_ioc_stats(struct sis8300_file *f, struct sis8300_stats *stats)
{
	struct sis8300 *sis = f->sis;
	u32 reset = stats->reset;

	if (reset > 1 || memchr_inv(stats->reserved, 0, sizeof(stats->reserved)))
		return -EINVAL;
	/* Also for a board that is gone. */
	spin_lock_irq(&sis->lock);
	*stats = f->stats;
	stats->interrupts = sis->interrupts - f->interrupts_base;
	if (reset) {
		memset(&f->stats, 0, sizeof(f->stats));
		f->interrupts_base = sis->interrupts;
	}
	spin_unlock_irq(&sis->lock);
	stats->size = sizeof(*stats);
	stats->reset = reset;
	return 0;
}

SIZED_IOCTL(sis8300_ioc_info)
SIZED_IOCTL(sis8300_setup)
SIZED_IOCTL(sis8300_get_setup)
SIZED_IOCTL(sis8300_arm)
SIZED_IOCTL(sis8300_wait_end)
SIZED_IOCTL(sis8300_ioc_stats)
SIZED_IOCTL(sis8300_ring_setup)
SIZED_IOCTL(sis8300_ring_start)
SIZED_IOCTL(sis8300_ring_next)

static const struct sized_ioctl sis8300_ioctls[] = {
	{ SIS8300_IOC_INFO, sis8300_ioc_info_sized },
	{ SIS8300_IOC_SETUP, sis8300_setup_sized },
	{ SIS8300_IOC_GET_SETUP, sis8300_get_setup_sized },
	{ SIS8300_IOC_ARM, sis8300_arm_sized },
	{ SIS8300_IOC_WAIT_END, sis8300_wait_end_sized },
	{ SIS8300_IOC_STATS, sis8300_ioc_stats_sized },
	{ SIS8300_IOC_RING_SETUP, sis8300_ring_setup_sized },
	{ SIS8300_IOC_RING_START, sis8300_ring_start_sized, .is_input = true },
	{ SIS8300_IOC_RING_NEXT, sis8300_ring_next_sized },
};

/* The ESS driver's ioctls. */
static long sis8300_ioc_ess(struct sis8300_file *f, unsigned int cmd, void __user *user)
{
	union {
		struct sis8300_reg reg;
		struct sis8300_wait wait;
	} a;
	int ret;

	if (copy_from_user(&a, user, _IOC_SIZE(cmd)))
		return -EFAULT;
	switch (cmd) {
	case SIS8300_REG_WRITE:
		return sis8300_reg_write(f, &a.reg);
	case SIS8300_RELEASE:
		return sis8300_release_event(f, &a.wait);
	case SIS8300_REG_READ:
		ret = sis8300_reg_read(f, &a.reg);
		break;
	default:
		ret = sis8300_wait_event(f, &a.wait);
		break;
	}
	return ret ?: copy_to_user(user, &a, _IOC_SIZE(cmd)) ? -EFAULT : 0;
}

static long sis8300_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct sis8300_file *f = file->private_data;
	void __user *user = (void __user *)arg;

	switch (cmd) {
	case SIS8300_REG_READ:
	case SIS8300_REG_WRITE:
	case SIS8300_WAIT:
	case SIS8300_RELEASE:
		return sis8300_ioc_ess(f, cmd, user);
	case SIS8300_IOC_DISARM:
		return sis8300_disarm(f);
	case SIS8300_IOC_RING_STOP:
		return sis8300_ring_stop(f);
	default:
		return sized_ioctl(sis8300_ioctls, ARRAY_SIZE(sis8300_ioctls), cmd, f, user);
	}
}

const struct file_operations sis8300_fops = {
	.owner = THIS_MODULE,
	.open = sis8300_open,
	.release = sis8300_release,
	.llseek = sis8300_llseek,
	.read = sis8300_read_card,
	.write = sis8300_write_card,
	.poll = sis8300_poll,
	.mmap = sis8300_ring_mmap,
	.unlocked_ioctl = sis8300_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

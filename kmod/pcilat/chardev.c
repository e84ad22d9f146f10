// SPDX-License-Identifier: GPL-2.0-only
/*
 * The nodes of the devices, and of them /dev/pcilat/BDF: the ioctls, and the ring by read()
 * and mmap(). This file checks the part of user space's input that does not depend on the
 * device. docs/uapi.md lists the errors.
 */
#include "internal.h"

static int pcilat_open(struct inode *inode, struct file *file)
{
	return nonseekable_open(inode, file);
}

static int pcilat_release(struct inode *inode, struct file *file)
{
	pcilat_put(file->private_data);
	return 0;
}

static int pcilat_ioc_info(struct pcilat_device *pl, struct pcilat_info *info)
{
	int ret;

	ret = pcilat_enter(pl);
	if (ret)
		return ret;
	*info = pl->info;
	pcilat_leave(pl);
	return 0;
}

/* Copies a list of different numbers below @limit. */
static u32 *pcilat_copy_list(u64 address, u32 count, u32 limit, int error)
{
	unsigned long *seen;
	u32 *list;
	u32 i;

	if (!count || count > limit)
		return ERR_PTR(-EINVAL);
	if (address != (unsigned long)address)
		return ERR_PTR(-EFAULT);
	list = vmemdup_user(u64_to_user_ptr(address), array_size(count, sizeof(*list)));
	if (IS_ERR(list))
		return list;
	seen = bitmap_zalloc(limit, GFP_KERNEL);
	if (!seen) {
		kvfree(list);
		return ERR_PTR(-ENOMEM);
	}
	for (i = 0; i < count; i++) {
		if (list[i] >= limit || test_and_set_bit(list[i], seen)) {
			error = list[i] >= limit ? error : -EINVAL;
			kvfree(list);
			list = ERR_PTR(error);
			break;
		}
	}
	bitmap_free(seen);
	return list;
}

static bool pcilat_irq_fields_are_zero(const struct pcilat_run *run)
{
	return !run->vectors && !run->nvectors && !run->source && !run->trigger_cpu &&
	       !run->warmup && !run->interval_ns && !run->timeout_ns;
}

static int pcilat_check_run_access(const struct pcilat_run *run)
{
	if (!run->batch || run->batch > PCILAT_MAX_BATCH || !pcilat_irq_fields_are_zero(run))
		return -EINVAL;
	if (run->kind == PCILAT_KIND_READ && run->value)
		return -EINVAL;
	if (run->kind == PCILAT_KIND_CONFIG &&
	    (run->bar || run->offset || run->value || run->width != 4))
		return -EINVAL;
	if (run->width < 8 && run->value >> (8 * run->width))
		return -EINVAL;
	return 0;
}

static int pcilat_check_run_irq(const struct pcilat_run *run)
{
	if (run->batch || run->bar || run->width || run->offset || run->value ||
	    run->order == PCILAT_ORDER_CONCURRENT || run->flags & PCILAT_RUN_ONES_OK)
		return -EINVAL;
	if (run->source < PCILAT_SOURCE_HARDWARE || run->source > PCILAT_SOURCE_INJECT)
		return -EINVAL;
	if (run->trigger_cpu < -1 || run->warmup > PCILAT_MAX_WARMUP ||
	    run->interval_ns > PCILAT_MAX_WAIT_NS ||
	    !run->timeout_ns || run->timeout_ns > PCILAT_MAX_WAIT_NS)
		return -EINVAL;
	if (run->interval_ns && run->gap_ns)
		return -EINVAL;
	if (run->trigger_cpu >= 0 &&
	    (run->trigger_cpu >= nr_cpu_ids || !cpu_online(run->trigger_cpu)))
		return -ENXIO;
	return 0;
}

static int pcilat_check_run(const struct pcilat_run *run)
{
	if (run->kind < PCILAT_KIND_READ || run->kind > PCILAT_KIND_IRQ ||
	    run->order < PCILAT_ORDER_SEQUENTIAL || run->order > PCILAT_ORDER_CONCURRENT ||
	    run->flags & ~(PCILAT_RUN_RAW | PCILAT_RUN_ONES_OK) ||
	    memchr_inv(run->reserved, 0, sizeof(run->reserved)))
		return -EINVAL;
	if (run->order == PCILAT_ORDER_INTERLEAVED ? !run->rounds : run->rounds)
		return -EINVAL;
	if ((!run->count && !run->duration_ns) || run->duration_ns > PCILAT_NS_MAX)
		return -EINVAL;
	if (run->kind != PCILAT_KIND_IRQ)
		return pcilat_check_run_access(run);
	return pcilat_check_run_irq(run);
}

static int pcilat_ioc_run(struct pcilat_device *pl, const struct pcilat_run *run)
{
	u32 *cpus, *vectors = NULL;
	u32 i;
	int ret;

	ret = pcilat_check_run(run);
	if (ret)
		return ret;
	cpus = pcilat_copy_list(run->cpus, run->ncpus, nr_cpu_ids, -ENXIO);
	if (IS_ERR(cpus))
		return PTR_ERR(cpus);
	for (i = 0; i < run->ncpus && !ret; i++) {
		if (!cpu_online(cpus[i]))
			ret = -ENXIO;
	}
	if (run->kind == PCILAT_KIND_IRQ && !ret) {
		if (pl->info.vectors)
			vectors = pcilat_copy_list(run->vectors, run->nvectors, pl->info.vectors,
						   -EOPNOTSUPP);
		else
			vectors = ERR_PTR(-EOPNOTSUPP);
		ret = PTR_ERR_OR_ZERO(vectors);
	}
	if (!ret) {
		ret = pcilat_run(pl, run, cpus, vectors, NULL);
		kvfree(vectors);
	}
	kvfree(cpus);
	return ret;
}

static void pcilat_fill_status(struct pcilat_device *pl, struct pcilat_status *status)
{
	struct pcilat_job *job = pl->job;

	status->error_cpu = -1;
	status->present = READ_ONCE(pl->present);
	if (!job)
		return;
	spin_lock(&job->lock);
	status->error = job->error;
	status->error_cpu = job->error_cpu;
	status->error_offset = job->error_offset;
	spin_unlock(&job->lock);
	if (job->running)
		status->state = PCILAT_STATE_RUNNING;
	else
		status->state = status->error ? PCILAT_STATE_FAILED : PCILAT_STATE_DONE;
	status->done = pcilat_job_done(job);
	status->total = job->total;
	status->elapsed_ns = job->running ? ktime_get_ns() - job->start_ns : job->elapsed_ns;
	status->slots = job->nslots;
	status->start = job->start;
	if (job->req.flags & PCILAT_RUN_RAW) {
		spin_lock(&pl->ring.lock);
		status->raw_written = pl->ring.written;
		status->raw_lost = pl->ring.lost;
		spin_unlock(&pl->ring.lock);
	}
}

static int pcilat_ioc_status(struct pcilat_device *pl, struct pcilat_status *status)
{
	memset(status, 0, sizeof(*status));
	status->size = sizeof(*status);
	guard(mutex)(&pl->lock);
	pcilat_fill_status(pl, status);
	return 0;
}

/* The last run's results; with pl->lock held. They are not complete during a run. */
static struct pcilat_job *pcilat_results(struct pcilat_device *pl, u32 slot)
{
	struct pcilat_job *job = pl->job;

	lockdep_assert_held(&pl->lock);
	if (!job)
		return ERR_PTR(-ENODATA);
	if (job->running)
		return ERR_PTR(-EBUSY);
	if (slot >= job->nslots)
		return ERR_PTR(-EINVAL);
	return job;
}

static void pcilat_fill_slot(const struct pcilat_job *job, struct pcilat_slot *out)
{
	const struct pcilat_slot_state *slot = &job->slots[out->slot];

	*out = slot->counts;
	out->summary[PCILAT_WHAT_LATENCY] = slot->latency.summary;
	out->summary[PCILAT_WHAT_ACK] = slot->ack.summary;
	out->summary[PCILAT_WHAT_CALIBRATION] = job->calibration[out->slot / job->targets].summary;
}

static int pcilat_ioc_slot(struct pcilat_device *pl, struct pcilat_slot *slot)
{
	struct pcilat_job *job;

	guard(mutex)(&pl->lock);
	job = pcilat_results(pl, slot->slot);
	if (!IS_ERR(job))
		pcilat_fill_slot(job, slot);
	return PTR_ERR_OR_ZERO(job);
}

static const struct pcilat_figures *pcilat_figures_of(const struct pcilat_job *job,
						      const struct pcilat_hist *hist)
{
	switch (hist->what) {
	case PCILAT_WHAT_LATENCY:
		return &job->slots[hist->slot].latency;
	case PCILAT_WHAT_ACK:
		return &job->slots[hist->slot].ack;
	default:
		return &job->calibration[hist->slot / job->targets];
	}
}

static void pcilat_fill_buckets(const struct pcilat_figures *f, u32 first, u32 count, u64 *to)
{
	u32 i;

	for (i = 0; i < count; i++) {
		const u64 *chunk = f->chunks[(first + i) / PCILAT_HIST_CHUNK];

		to[i] = chunk ? chunk[(first + i) % PCILAT_HIST_CHUNK] : 0;
	}
}

static int pcilat_ioc_hist(struct pcilat_device *pl, const struct pcilat_hist *hist)
{
	struct pcilat_job *job;
	u64 *buckets;
	u32 end;
	int ret;

	if (hist->what >= PCILAT_WHATS || hist->reserved0 || !hist->count ||
	    check_add_overflow(hist->first, hist->count, &end) || end > PCILAT_HIST_BUCKETS)
		return -EINVAL;
	if (hist->buckets != (unsigned long)hist->buckets)
		return -EFAULT;
	buckets = kvmalloc_array(hist->count, sizeof(*buckets), GFP_KERNEL);
	if (!buckets)
		return -ENOMEM;
	mutex_lock(&pl->lock);
	job = pcilat_results(pl, hist->slot);
	if (!IS_ERR(job))
		pcilat_fill_buckets(pcilat_figures_of(job, hist), hist->first, hist->count,
				    buckets);
	mutex_unlock(&pl->lock);
	ret = PTR_ERR_OR_ZERO(job);
	if (!ret && copy_to_user(u64_to_user_ptr(hist->buckets), buckets,
				 array_size(hist->count, sizeof(*buckets))))
		ret = -EFAULT;
	kvfree(buckets);
	return ret;
}

static int pcilat_ioc_reg(struct pcilat_device *pl, struct pcilat_reg *reg)
{
	if (reg->write > 1 || (!reg->write && reg->value))
		return -EINVAL;
	return pcilat_reg(pl, reg);
}

SIZED_IOCTL(pcilat_ioc_info)
SIZED_IOCTL(pcilat_ioc_run)
SIZED_IOCTL(pcilat_ioc_status)
SIZED_IOCTL(pcilat_ioc_slot)
SIZED_IOCTL(pcilat_ioc_hist)
SIZED_IOCTL(pcilat_ioc_reg)

static const struct sized_ioctl pcilat_ioctls[] = {
	{ PCILAT_IOC_INFO, pcilat_ioc_info_sized },
	{ PCILAT_IOC_RUN, pcilat_ioc_run_sized, .is_input = true },
	{ PCILAT_IOC_STATUS, pcilat_ioc_status_sized },
	{ PCILAT_IOC_SLOT, pcilat_ioc_slot_sized },
	{ PCILAT_IOC_HIST, pcilat_ioc_hist_sized, .is_input = true },
	{ PCILAT_IOC_REG, pcilat_ioc_reg_sized },
};

static long pcilat_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	return sized_ioctl(pcilat_ioctls, ARRAY_SIZE(pcilat_ioctls), cmd, file->private_data,
			   (void __user *)arg);
}

/* Reads records in order, also during a run. Returns 0 when there is none. */
static ssize_t pcilat_read(struct file *file, char __user *to, size_t size, loff_t *pos)
{
	struct pcilat_device *pl = file->private_data;
	struct pcilat_record *bounce;
	size_t done = 0, bytes;
	const u32 most = 256;

	if (size < sizeof(*bounce))
		return -EINVAL;
	bounce = kmalloc_array(most, sizeof(*bounce), GFP_KERNEL);
	if (!bounce)
		return -ENOMEM;
	while (size - done >= sizeof(*bounce) && !signal_pending(current)) {
		bytes = min_t(size_t, (size - done) / sizeof(*bounce), most);
		bytes = pcilat_ring_take(&pl->ring, bounce, bytes) * sizeof(*bounce);
		if (!bytes)
			break;
		if (copy_to_user(to + done, bounce, bytes)) {
			kfree(bounce);
			return -EFAULT;
		}
		done += bytes;
		cond_resched();
	}
	kfree(bounce);
	/* 0 would be the end. */
	if (!done && signal_pending(current))
		return -ERESTARTSYS;
	return done;
}

static int pcilat_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct pcilat_device *pl = file->private_data;

	if (vma->vm_flags & VM_WRITE)
		return -EPERM;
	if (vma->vm_pgoff)
		return -EINVAL;
	compat_vm_forbid(vma, VM_MAYWRITE);
	return pcilat_ring_allocate(pl, &pl->ring) ?:
	       remap_vmalloc_range(vma, pl->ring.records, 0);
}

static const struct file_operations pcilat_fops = {
	.owner = THIS_MODULE,
	.open = pcilat_open,
	.release = pcilat_release,
	.unlocked_ioctl = pcilat_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.read = pcilat_read,
	.mmap = pcilat_mmap,
};

static const struct {
	const char *path;
	const struct file_operations *fops;
} pcilat_nodes[PCILAT_NODES] = {
	[PCILAT_TEXT_IOMEM] = { "pcilatdriver/%s/iomem", &pcilat_text_fops },
	[PCILAT_TEXT_INTERRUPT] = { "pcilatdriver/%s/interrupt", &pcilat_text_fops },
	[PCILAT_TEXT_DEVREG] = { "pcilatdriver/%s/devreg", &pcilat_text_fops },
	[PCILAT_TEXT_KINDS] = { "pcilat/%s", &pcilat_fops },
};

static struct class pcilat_node_class = {
	.name = PCILAT_NAME "_node",
};

static DEFINE_IDR(pcilat_by_id);	/* with pcilat_devices_lock held */
static int pcilat_major;

/* Makes the file one of its node, with a reference to the device as its private data. */
static int pcilat_open_node(struct inode *inode, struct file *file)
{
	const struct file_operations *fops = pcilat_nodes[iminor(inode) % PCILAT_NODES].fops;
	struct pcilat_device *pl;
	int ret;

	if (!capable(CAP_SYS_RAWIO))
		return -EPERM;
	mutex_lock(&pcilat_devices_lock);
	pl = idr_find(&pcilat_by_id, iminor(inode) / PCILAT_NODES);
	if (pl && !pcilat_get(pl))
		pl = NULL;
	mutex_unlock(&pcilat_devices_lock);
	if (!pl)
		return -ENODEV;
	file->private_data = pl;
	replace_fops(file, fops_get(fops));
	ret = fops->open(inode, file);
	if (ret)
		pcilat_put(pl);
	return ret;
}

static const struct file_operations pcilat_node_fops = {
	.owner = THIS_MODULE,
	.open = pcilat_open_node,
};

static dev_t pcilat_devt(const struct pcilat_device *pl, int node)
{
	return MKDEV(pcilat_major, pl->id * PCILAT_NODES + node);
}

/* The nodes of a device can be opened from now on. */
int pcilat_nodes_init(struct pcilat_device *pl)
{
	struct device *node;
	int i;

	mutex_lock(&pcilat_devices_lock);
	pl->id = idr_alloc(&pcilat_by_id, pl, 0, PCILAT_DEVICES, GFP_KERNEL);
	mutex_unlock(&pcilat_devices_lock);
	if (pl->id == -ENOSPC)
		pci_err(pl->pdev, "not bound: %d functions are, and no more can be\n",
			PCILAT_DEVICES);
	if (pl->id < 0)
		return pl->id;
	for (i = 0; i < PCILAT_NODES; i++) {
		node = device_create(&pcilat_node_class, &pl->pdev->dev, pcilat_devt(pl, i), NULL,
				     pcilat_nodes[i].path, pl->bdf);
		if (IS_ERR(node)) {
			pcilat_nodes_exit(pl);
			return PTR_ERR(node);
		}
	}
	return 0;
}

/* Files that are open stay so. */
void pcilat_nodes_exit(struct pcilat_device *pl)
{
	int i;

	mutex_lock(&pcilat_devices_lock);
	idr_remove(&pcilat_by_id, pl->id);
	mutex_unlock(&pcilat_devices_lock);
	for (i = 0; i < PCILAT_NODES; i++)
		device_destroy(&pcilat_node_class, pcilat_devt(pl, i));
}

/* A range of numbers of its own: misc has 128 for all drivers together on 6.1. */
int pcilat_nodes_register(void)
{
	int ret = class_register(&pcilat_node_class);

	if (ret)
		return ret;
	ret = __register_chrdev(0, 0, PCILAT_DEVICES * PCILAT_NODES, PCILAT_NAME,
				&pcilat_node_fops);
	if (ret < 0) {
		class_unregister(&pcilat_node_class);
		return ret;
	}
	pcilat_major = ret;
	return 0;
}

void pcilat_nodes_unregister(void)
{
	__unregister_chrdev(pcilat_major, 0, PCILAT_DEVICES * PCILAT_NODES, PCILAT_NAME);
	class_unregister(&pcilat_node_class);
}

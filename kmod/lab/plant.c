// SPDX-License-Identifier: GPL-2.0-only
/*
 * Plants what makes samples slow: a CPU is busy once, in a context that is known. Kinds
 * and use: docs/lab.md.
 */
#include <linux/kthread.h>
#include <linux/smp.h>
#include <linux/timer.h>
#include <linux/workqueue.h>

#ifdef CONFIG_X86
#include <asm/nmi.h>
#endif

#include "../common/compat.h"

#define PLANT_US_MAX	20000
#define PLANT_WAIT_US	3000000
/* Registers of QEMU's edu device. */
#define PLANT_EDU_RAISE	0x60
#define PLANT_EDU_ACK	0x64

static unsigned int plant_cpu, plant_us;
static u64 plant_count, plant_begin, plant_end;
static bool plant_is_open, plant_irqs_are_off;
static struct task_struct *plant_thread;
static void __iomem *plant_edu;

/* ktime_get_ns() may hang in an NMI. */
static void plant_busy(void)
{
	plant_begin = ktime_get_mono_fast_ns();
	do {
		cpu_relax();
		plant_end = ktime_get_mono_fast_ns();
	} while (plant_end < plant_begin + plant_us * NSEC_PER_USEC);
}

static void plant_run(void *unused)
{
	plant_busy();
	plant_count++;
	/* Behind the stamps. */
	smp_store_release(&plant_is_open, false);
}

static noinline void plant_irqs_off(void)
{
	local_irq_disable();
	plant_busy();
	local_irq_enable();
	/* Interrupts come behind the instruction after that: in here. */
	plant_count++;
	/* Behind the stamps. */
	smp_store_release(&plant_is_open, false);
}

static int plant_thread_fn(void *unused)
{
	for (;;) {
		set_current_state(TASK_INTERRUPTIBLE);
		if (kthread_should_stop())
			break;
		schedule();
		/* Before what is to be done is read. */
		if (smp_load_acquire(&plant_is_open))
			plant_run(NULL);
	}
	__set_current_state(TASK_RUNNING);
	return 0;
}

/* It gets the CPU from a module that waits with preemption off. */
static void plant_timer_fn(struct timer_list *unused)
{
	if (plant_irqs_are_off)
		plant_irqs_off();
	else
		plant_run(NULL);
}

static DEFINE_TIMER(plant_timer, plant_timer_fn);

static void plant_work_fn(struct work_struct *unused)
{
	plant_run(NULL);
}

static DECLARE_WORK(plant_work, plant_work_fn);

static irqreturn_t plant_edu_handler(int irq, void *edu)
{
	writel(U32_MAX, edu + PLANT_EDU_ACK);
	plant_run(NULL);
	return IRQ_HANDLED;
}

#ifdef CONFIG_X86
static bool plant_is_nmi;

/* QEMU's monitor gives one to all CPUs: the others' are taken too, or the kernel prints. */
static int plant_nmi_fn(unsigned int type, struct pt_regs *regs)
{
	if (!plant_is_nmi)
		return NMI_DONE;
	if (raw_smp_processor_id() == plant_cpu && plant_is_open)
		plant_run(NULL);
	return NMI_HANDLED;
}
#endif

static void plant_nothing(void *unused)
{
}

/* Interrupts one CPU from this one for so many milliseconds, as fast as it answers. */
static int plant_storm(void)
{
	ktime_t end = ktime_add_ms(ktime_get(), plant_us);

	while (ktime_before(ktime_get(), end)) {
		int ret = smp_call_function_single(plant_cpu, plant_nothing, NULL, true);

		if (ret || fatal_signal_pending(current))
			return ret ?: -EINTR;
		cond_resched();
	}
	return 0;
}

static int plant_set(const char *value, const struct kernel_param *kp)
{
	char kind[16];

	if (plant_is_open)
		return -EBUSY;
	if (sscanf(value, "%15s %u %u", kind, &plant_cpu, &plant_us) != 3 ||
	    plant_us > PLANT_US_MAX || plant_cpu >= nr_cpu_ids || !cpu_online(plant_cpu))
		return -EINVAL;
	if (!strcmp(kind, "storm"))
		return plant_storm();
	plant_irqs_are_off = !strcmp(kind, "irqs-off");
	/* Behind what is to be done. */
	smp_store_release(&plant_is_open, true);
	if (!strcmp(kind, "thread")) {
		set_cpus_allowed_ptr(plant_thread, cpumask_of(plant_cpu));
		wake_up_process(plant_thread);
	} else if (!strcmp(kind, "ipi")) {
		smp_call_function_single(plant_cpu, plant_run, NULL, false);
	} else if (plant_irqs_are_off || !strcmp(kind, "softirq")) {
		plant_timer.expires = jiffies + 1;
		add_timer_on(&plant_timer, plant_cpu);
	} else if (!strcmp(kind, "workqueue")) {
		queue_work_on(plant_cpu, system_highpri_wq, &plant_work);
	} else if (!strcmp(kind, "interrupt") && plant_edu) {
		writel(1, plant_edu + PLANT_EDU_RAISE);
#ifdef CONFIG_X86
	} else if (!strcmp(kind, "nmi")) {
		plant_is_nmi = true;
#endif
	} else {
		plant_is_open = false;
		return -EINVAL;
	}
	return 0;
}

static int plant_get(char *buffer, const struct kernel_param *kp)
{
	unsigned int waited;

	/* Before the stamps are read. */
	for (waited = 0; smp_load_acquire(&plant_is_open); waited += 200) {
		if (waited > PLANT_WAIT_US)
			return -ETIMEDOUT;
		usleep_range(200, 400);
	}
	return sysfs_emit(buffer, "%llu %llu %llu\n", plant_count, plant_begin, plant_end);
}

static const struct kernel_param_ops plant_ops = {
	.set = plant_set,
	.get = plant_get,
};

module_param_cb(plant, &plant_ops, NULL, 0600);
MODULE_PARM_DESC(plant, "write KIND CPU MICROSECONDS; read number, begin and end of plants");

static int plant_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int ret;

	/* Others are there to be measured. */
	if (plant_edu)
		return -ENODEV;
	ret = pcim_enable_device(pdev) ?: pcim_iomap_regions(pdev, BIT(0), KBUILD_MODNAME);
	if (ret)
		return ret;
	pci_set_master(pdev);
	plant_edu = pcim_iomap_table(pdev)[0];
	ret = pci_alloc_irq_vectors(pdev, 1, 1, PCI_IRQ_MSI);
	return ret < 0 ? ret : devm_request_irq(&pdev->dev, pci_irq_vector(pdev, 0),
						plant_edu_handler, 0, "plant-edu", plant_edu);
}

static const struct pci_device_id plant_ids[] = {
	{ PCI_DEVICE(0x1234, 0x11e8) },
	{ }
};

static struct pci_driver plant_driver = {
	.name = KBUILD_MODNAME,
	.id_table = plant_ids,
	.probe = plant_probe,
};

static int __init plant_init(void)
{
	int ret = pci_register_driver(&plant_driver);

	if (ret)
		return ret;
#ifdef CONFIG_X86
	register_nmi_handler(NMI_LOCAL, plant_nmi_fn, 0, KBUILD_MODNAME);
#endif
	plant_thread = kthread_run(plant_thread_fn, NULL, KBUILD_MODNAME);
	return PTR_ERR_OR_ZERO(plant_thread);
}
module_init(plant_init);

MODULE_DESCRIPTION("pciescope lab: plants causes of slow samples");
MODULE_LICENSE("GPL");

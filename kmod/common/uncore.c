// SPDX-License-Identifier: GPL-2.0-only
/*
 * Each module that uses this compiles it into itself, by a file that includes it: Kbuild
 * names an object after its module, so two modules cannot share one.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/topology.h>

#include "uncore.h"

/**
 * uncore_pmu_disable() - perf begins to remove and add events
 * @pmu: perf's part
 *
 * Counters keep running. perf disables and enables a PMU by CPU. Newer kernels keep an
 * empty context of the PMU where its events once were. So two CPUs may do so at a time:
 * the PMU is enabled when the last of them enables it.
 */
void uncore_pmu_disable(struct pmu *pmu)
{
	struct uncore_pmu *u = to_uncore(pmu);

	guard(raw_spinlock)(&u->lock);
	if (!u->disable_depth++)
		u->disable_seq++;
}

/**
 * uncore_pmu_enable() - perf has removed and added what it wanted to on a CPU
 * @pmu: perf's part
 */
void uncore_pmu_enable(struct pmu *pmu)
{
	struct uncore_pmu *u = to_uncore(pmu);

	guard(raw_spinlock)(&u->lock);
	if (!--u->disable_depth)
		u->drv->commit(u);
}

/* Events */

/**
 * uncore_event_check() - refuses what no system-wide PMU can count
 * @event: the event
 *
 * Return: 0, -ENOENT for another PMU's event, -EOPNOTSUPP for a sampling one, by which perf
 * tells its user to count, or -EINVAL.
 */
int uncore_event_check(struct perf_event *event)
{
	const struct perf_event_attr *attr = &event->attr;
	u64 others = attr->config1 | attr->config2;

	if (attr->type != event->pmu->type)
		return -ENOENT;
#ifdef PERF_ATTR_SIZE_VER8
	others |= attr->config3;
#endif
#ifdef PERF_ATTR_SIZE_VER9
	others |= attr->config4;
#endif
	if (is_sampling_event(event))
		return -EOPNOTSUPP;
	return others || event->attach_state & PERF_ATTACH_TASK || event->cpu < 0 ? -EINVAL : 0;
}

/**
 * uncore_group_check() - whether an event can be counted together with its group
 * @event: the event, which is not on its leader's list yet
 * @fits: called for it and for each other event of the PMU: whether it fits to those before
 * @state: handed to @fits
 *
 * Return: whether all fit, and none is of other hardware.
 */
bool uncore_group_check(struct perf_event *event,
			bool (*fits)(struct perf_event *event, void *state), void *state)
{
	struct perf_event *leader = event->group_leader, *sibling;

	if (!fits(event, state))
		return false;
	if (leader == event)
		return true;
	if (!is_software_event(leader) && (leader->pmu != event->pmu || !fits(leader, state)))
		return false;
	for_each_sibling_event(sibling, leader) {
		if (!is_software_event(sibling) &&
		    (sibling->pmu != event->pmu || !fits(sibling, state)))
			return false;
	}
	return true;
}

/**
 * uncore_event_enter() - adds a new event to its PMU
 * @event: the event; it is counted on the PMU's CPU
 *
 * perf can find a PMU by its number before perf_pmu_register() has allocated its
 * contexts. An event that is opened then would write through a null pointer (seen
 * with 6.1). So events are refused until the registration has ended.
 *
 * Return: 0, or -ENODEV if the PMU is not registered yet or the device is gone.
 */
int uncore_event_enter(struct perf_event *event)
{
	struct uncore_pmu *u = to_uncore(event->pmu);
	unsigned long flags;
	bool is_open;

	raw_spin_lock_irqsave(&u->lock, flags);
	is_open = u->is_open;
	if (is_open) {
		event->cpu = READ_ONCE(u->cpu);
		list_add(&event->active_entry, &u->events);
	}
	raw_spin_unlock_irqrestore(&u->lock, flags);
	if (!is_open)
		return -ENODEV;
	queue_delayed_work(u->drv->wq, &u->poll, msecs_to_jiffies(u->drv->poll_ms));
	return 0;
}

/**
 * uncore_event_leave() - removes an event from its PMU
 * @event: the event; its PMU may be freed when this returns
 *
 * Work is queued without the lock: perf's callbacks take the lock within the lock of a
 * runqueue, and queueing takes that of a runqueue.
 */
void uncore_event_leave(struct perf_event *event)
{
	struct uncore_pmu *u = to_uncore(event->pmu);
	struct uncore_driver *drv = u->drv;
	unsigned long flags;
	bool is_unused;

	raw_spin_lock_irqsave(&u->lock, flags);
	list_del_init(&event->active_entry);
	is_unused = u->is_gone && list_empty(&u->events);
	raw_spin_unlock_irqrestore(&u->lock, flags);
	if (is_unused)
		queue_work(system_long_wq, &drv->reap);
}

/*
 * The accesses of a PMU's polls take no more than a fiftieth of a CPU's time: where each
 * traps to a hypervisor, the polls of many PMUs would else take all of it. This lengthens
 * the time between two polls to a second at most, because counters of 32 bits must not
 * wrap. A poll that waits for a CPU or for the lock is not put off for that.
 */
static void uncore_poll(struct work_struct *work)
{
	struct uncore_pmu *u = container_of(to_delayed_work(work), struct uncore_pmu, poll);
	u64 pause_ms = min_t(u64, div_u64(u->drv->poll(u) * 50, NSEC_PER_MSEC), MSEC_PER_SEC);

	if (!list_empty_careful(&u->events))
		queue_delayed_work(u->drv->wq, &u->poll,
				   msecs_to_jiffies(max_t(u64, pause_ms, u->drv->poll_ms)));
}

/* CPUs */

static unsigned int uncore_count_on(struct uncore_pmu *u, int cpu)
{
	struct perf_event *event;
	unsigned int n = 0;

	guard(raw_spinlock_irqsave)(&u->lock);
	list_for_each_entry(event, &u->events, active_entry)
		n += READ_ONCE(event->cpu) == cpu;
	return n;
}

/* Runs on the events' CPU, so that it cannot interrupt perf's own work on them. */
static void uncore_end_migration(void *data)
{
	struct uncore_pmu *u = data;

	guard(raw_spinlock)(&u->lock);
	u->is_migrating = false;
	if (!u->disable_depth)
		u->drv->commit(u);
}

/*
 * Moves all events to another CPU, without a gap in their counts. Since 6.2, perf
 * moves only the first event or group, because it loses its place in the tree of
 * events (seen with 6.12). So this calls it once for each event.
 */
static void uncore_migrate(struct uncore_pmu *u, int from, int to)
{
	unsigned int tries = uncore_count_on(u, from);

	if (!tries)
		return;
	raw_spin_lock_irq(&u->lock);
	u->is_migrating = true;
	u->migrations++;
	raw_spin_unlock_irq(&u->lock);
	while (tries-- && uncore_count_on(u, from))
		perf_pmu_migrate_context(&u->pmu, from, to);
	smp_call_function_single(to, uncore_end_migration, u, 1);
}

static void uncore_set_cpu(struct uncore_pmu *u, int cpu)
{
	int from = u->cpu;

	WRITE_ONCE(u->cpu, cpu);
	if (u->drv->moved)
		u->drv->moved(u);
	uncore_migrate(u, from, cpu);
}

static bool uncore_is_near(const struct uncore_pmu *u, unsigned int cpu)
{
	return u->nid == NUMA_NO_NODE || cpu_to_node(cpu) == u->nid;
}

static int uncore_cpu_online(unsigned int cpu, struct hlist_node *node)
{
	struct uncore_pmu *u = hlist_entry_safe(node, struct uncore_pmu, cpuhp_node);

	if (!cpu_online(u->cpu) || (uncore_is_near(u, cpu) && !uncore_is_near(u, u->cpu)))
		uncore_set_cpu(u, cpu);
	return 0;
}

static int uncore_cpu_offline(unsigned int cpu, struct hlist_node *node)
{
	struct uncore_pmu *u = hlist_entry_safe(node, struct uncore_pmu, cpuhp_node);
	unsigned int other, to = cpumask_any_but(cpu_online_mask, cpu);

	for_each_online_cpu(other) {
		if (other != cpu && uncore_is_near(u, other)) {
			to = other;
			break;
		}
	}
	if (u->cpu == cpu && to < nr_cpu_ids)
		uncore_set_cpu(u, to);
	/* An event that was opened during the move may still be on the old CPU. */
	if (u->cpu != cpu)
		uncore_migrate(u, cpu, u->cpu);
	return 0;
}

/* PMUs. With the driver's lock held, unless said otherwise. */

static struct uncore_pmu *uncore_find(struct uncore_driver *drv, const char *name)
{
	struct uncore_pmu *u;

	lockdep_assert_held(&drv->lock);
	list_for_each_entry(u, &drv->pmus, node) {
		if (!strcmp(u->name, name))
			return u;
	}
	return NULL;
}

/**
 * uncore_get() - finds the PMU of a device that has come, or makes one
 * @drv: the module
 * @name: of the PMU
 * @bytes: size of the driver's structure, where it is made
 * @nid: the device's NUMA node
 *
 * The caller fills in the device, for a new PMU also perf's functions, and calls uncore_open().
 *
 * Return: the PMU; -EEXIST if its device is there; -ENOMEM.
 */
void *uncore_get(struct uncore_driver *drv, const char *name, size_t bytes, int nid)
{
	struct uncore_pmu *u = uncore_find(drv, name);

	if (u)
		return u->is_gone ? u : ERR_PTR(-EEXIST);
	u = kvzalloc(bytes, GFP_KERNEL);
	if (!u)
		return ERR_PTR(-ENOMEM);
	strscpy(u->name, name, sizeof(u->name));
	INIT_LIST_HEAD(&u->node);
	u->drv = drv;
	u->nid = nid;
	u->cpu = cpumask_local_spread(0, nid);
	u->is_gone = true;
	raw_spin_lock_init(&u->lock);
	INIT_LIST_HEAD(&u->events);
	INIT_DELAYED_WORK(&u->poll, uncore_poll);
	return u;
}

static int uncore_register(struct uncore_pmu *u)
{
	int ret;

	lockdep_assert_held(&u->drv->lock);
	ret = perf_pmu_register(&u->pmu, u->name, -1);
	if (ret)
		return ret;
	ret = cpuhp_state_add_instance(u->drv->cpuhp, &u->cpuhp_node);
	if (ret) {
		perf_pmu_unregister(&u->pmu);
		/* As in uncore_destroy(). */
		synchronize_rcu_tasks();
		return ret;
	}
	list_add_tail(&u->node, &u->drv->pmus);
	return 0;
}

/**
 * uncore_open() - lets events of a present device count
 * @u: the PMU, from uncore_get(); it is freed at a failure
 *
 * Return: 0, or a negative error code.
 */
int uncore_open(struct uncore_pmu *u)
{
	int ret = uncore_is_new(u) ? uncore_register(u) : 0;

	if (ret) {
		kvfree(u);
		return ret;
	}
	guard(raw_spinlock_irqsave)(&u->lock);
	u->is_gone = false;
	u->drv->resume(u);
	u->is_open = true;
	return 0;
}

/**
 * uncore_remove() - the device is being removed
 * @u: the PMU; it may be freed when the driver's lock is released
 */
void uncore_remove(struct uncore_pmu *u)
{
	unsigned long flags;
	bool is_unused;

	raw_spin_lock_irqsave(&u->lock, flags);
	u->drv->suspend(u);
	u->is_gone = true;
	u->is_open = false;
	is_unused = list_empty(&u->events);
	raw_spin_unlock_irqrestore(&u->lock, flags);
	if (is_unused)
		queue_work(system_long_wq, &u->drv->reap);
}

/*
 * While interrupts of devices are off: nobody else is about to use the device. Tasks are
 * frozen, but perf's timers and the poll may still come.
 */
static int uncore_sleep(struct device *dev)
{
	struct uncore_pmu *u = dev_get_drvdata(dev);

	guard(raw_spinlock_irqsave)(&u->lock);
	u->drv->suspend(u);
	u->is_asleep = true;
	return 0;
}

/* The device is awake again, perhaps without what its registers held. */
static int uncore_wake(struct device *dev)
{
	struct uncore_pmu *u = dev_get_drvdata(dev);

	guard(raw_spinlock_irqsave)(&u->lock);
	u->is_asleep = false;
	u->drv->resume(u);
	return 0;
}

/* Of a device whose drvdata is its struct uncore_pmu, and which is not gone. */
const struct dev_pm_ops uncore_pm_ops = {
	NOIRQ_SYSTEM_SLEEP_PM_OPS(uncore_sleep, uncore_wake)
};

/* perf's timer, which lets events take turns, may be pending for one more interval. */
static void uncore_wait_for_timers(const struct list_head *pmus)
{
	struct uncore_pmu *u;
	int interval_ms = 0;

	list_for_each_entry(u, pmus, node)
		interval_ms = max(interval_ms, READ_ONCE(u->pmu.hrtimer_interval_ms));
	if (interval_ms)
		msleep(interval_ms);
}

/*
 * perf_pmu_unregister() waits for those who look for a PMU, and takes its number away only
 * then: who found it by its number in between still asks it for an event (seen with 6.1).
 * Neither they nor perf behind the end of an event sleep: after synchronize_rcu_tasks() no
 * task is in that code.
 */
static void uncore_destroy(struct list_head *pmus)
{
	struct uncore_pmu *u, *next;

	if (list_empty(pmus))
		return;
	synchronize_rcu_tasks();
	uncore_wait_for_timers(pmus);
	list_for_each_entry(u, pmus, node) {
		cpuhp_state_remove_instance_nocalls(u->drv->cpuhp, &u->cpuhp_node);
		perf_pmu_unregister(&u->pmu);
		cancel_delayed_work_sync(&u->poll);
	}
	synchronize_rcu_tasks();
	list_for_each_entry_safe(u, next, pmus, node)
		kvfree(u);
	INIT_LIST_HEAD(pmus);
}

/*
 * The lock is held all the while: a device that comes back must not get a second PMU of the
 * same name.
 */
static void uncore_reap(struct work_struct *work)
{
	struct uncore_driver *drv = container_of(work, struct uncore_driver, reap);
	struct uncore_pmu *u, *next;
	LIST_HEAD(unused);

	guard(mutex)(&drv->lock);
	list_for_each_entry_safe(u, next, &drv->pmus, node) {
		if (u->is_gone && list_empty_careful(&u->events))
			list_move(&u->node, &unused);
	}
	uncore_destroy(&unused);
}

/* Modules */

/**
 * uncore_init() - prepares a module's PMUs
 * @drv: the module
 *
 * Return: 0, or a negative error code.
 */
int uncore_init(struct uncore_driver *drv)
{
	int ret;

	mutex_init(&drv->lock);
	INIT_LIST_HEAD(&drv->pmus);
	INIT_WORK(&drv->reap, uncore_reap);
	/*
	 * On any CPU that is free, because a narrow counter that is read late loses counts. But
	 * one poll at a time: off x86, accesses to configuration space share a spinlock, and
	 * polls on several CPUs would wait for each other with interrupts off.
	 */
	drv->wq = alloc_ordered_workqueue("%s", WQ_HIGHPRI, drv->name);
	if (!drv->wq)
		return -ENOMEM;
	ret = cpuhp_setup_state_multi(CPUHP_AP_ONLINE_DYN, drv->name, uncore_cpu_online,
				      uncore_cpu_offline);
	if (ret < 0) {
		destroy_workqueue(drv->wq);
		return ret;
	}
	drv->cpuhp = ret;
	return 0;
}

/**
 * uncore_exit() - unregisters all PMUs of a module that is being unloaded
 * @drv: the module. No device comes or goes any more, and no event exists: each holds the module
 */
void uncore_exit(struct uncore_driver *drv)
{
	cancel_work_sync(&drv->reap);
	uncore_destroy(&drv->pmus);
	cpuhp_remove_multi_state(drv->cpuhp);
	destroy_workqueue(drv->wq);
}

/* A parameter that is one of two words. */
int uncore_parse_word(const char *name, const char *value, const char *first, const char *second,
		      bool *is_second)
{
	*is_second = sysfs_streq(value, second);
	if (*is_second || sysfs_streq(value, first))
		return 0;
	pr_err("%s=%s is neither %s nor %s\n", name, value, first, second);
	return -EINVAL;
}

int uncore_check_range(const char *name, unsigned int value, unsigned int min, unsigned int max)
{
	if (value >= min && value <= max)
		return 0;
	pr_err("%s=%u is not within %u..%u\n", name, value, min, max);
	return -EINVAL;
}

/**
 * uncore_add_event() - one more file
 * @events: the files
 * @first: its name's first part
 * @second: the rest of its name
 * @format: its content
 */
void uncore_add_event(struct uncore_events *events, const char *first, const char *second,
		      const char *format, ...)
{
	struct perf_pmu_events_attr *attr = &events->attrs[events->n];
	char *name = events->names[events->n], *text = events->texts[events->n];
	va_list args;

	if (WARN_ON(events->n == UNCORE_EVENTS_MAX))
		return;
	snprintf(name, sizeof(events->names[0]), "%s%s", first, second);
	va_start(args, format);
	vsnprintf(text, sizeof(events->texts[0]), format, args);
	va_end(args);
	sysfs_attr_init(&attr->attr.attr);
	attr->attr.attr.name = name;
	attr->attr.attr.mode = 0444;
	attr->attr.show = perf_event_sysfs_show;
	attr->event_str = text;
	events->list[events->n++] = &attr->attr.attr;
}

/* Empty while the device is gone, so that user space can tell. */
static ssize_t cpumask_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct uncore_pmu *u = to_uncore(dev_get_drvdata(dev));

	if (READ_ONCE(u->is_gone))
		return sysfs_emit(buf, "\n");
	return sysfs_emit(buf, "%d\n", READ_ONCE(u->cpu));
}

DEVICE_ATTR_RO(cpumask);

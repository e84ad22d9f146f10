// SPDX-License-Identifier: GPL-2.0-only
/*
 * Interrupts: from the trigger to the handler, and from the handler's entry to
 * the acknowledge, for each CPU and vector.
 *
 * One worker at a time triggers. struct pcilat_vector says how a trigger reaches
 * the handler, and how the answer comes back.
 */
#include <asm/irq_regs.h>

#include "internal.h"

#define PCILAT_DRAIN_NS	(5 * NSEC_PER_MSEC)	/* the wait for doubled interrupts */
#define PCILAT_WARMUP_MORE	8u	/* further warm-ups until one comes to the right CPU */
#define PCILAT_MOVE_NS	(500 * NSEC_PER_MSEC)	/* for so long more, at longer intervals */
#define PCILAT_LOST_MAX		64u	/* lost in a row: no interrupt comes any more */

/*
 * Handler: answers the open trigger. A trigger that was raised after the
 * handler's entry did not bring it here: that was a second message for an
 * earlier one.
 */
static void pcilat_answer(struct pcilat_vector *v, u64 entry, u64 acked)
{
	struct pt_regs *regs = get_irq_regs();
	u64 open = READ_ONCE(v->open);

	if (!open || (s64)(entry - open) < 0 || cmpxchg(&v->open, open, 0) != open) {
		WRITE_ONCE(v->extra, v->extra + 1);
		return;
	}
	v->event = (struct pcilat_event) {
		.triggered = open,
		.entry = entry,
		.acked = acked,
		.code = regs && !user_mode(regs) ? instruction_pointer(regs) : 0,
		.cpu = smp_processor_id(),
	};
	/* Pairs with pcilat_take_answer(): the event is complete. */
	smp_store_release(&v->is_answered, true);
}

/* False if the interrupt was not the device's. A removed device reads all-ones. */
static bool pcilat_acknowledge(const struct pcilat_vector *v)
{
	u32 causes;

	if (v->cause) {
		causes = readl(v->cause);
		if (v->cause_mask && (!(causes & v->cause_mask) || causes == U32_MAX))
			return false;
	}
	if (v->ack.reg)
		writel(v->ack.value, v->ack.reg);
	return true;
}

/*
 * Others on the line may interrupt while the device is reset, when a read of its memory may
 * crash an arm64 machine. Where the device asserts its pin, nobody else would deassert it.
 */
static irqreturn_t pcilat_handler_of_silent(const struct pcilat_device *pl)
{
	if (pl->irq_type != PCILAT_IRQ_INTX)
		return IRQ_HANDLED;
	if (pci_device_is_present(pl->pdev) && pci_check_and_mask_intx(pl->pdev))
		return IRQ_HANDLED;
	return IRQ_NONE;
}

static irqreturn_t pcilat_handler(int irq, void *data)
{
	u64 entry = pcilat_clock_begin(), acked;
	struct pcilat_vector *v = data;
	bool ours;

	if (READ_ONCE(v->is_silent))
		return pcilat_handler_of_silent(v->pl);
	ours = pcilat_acknowledge(v);
	acked = pcilat_clock_end();
	if (!ours)
		return IRQ_NONE;
	pcilat_answer(v, entry, acked);
	return IRQ_HANDLED;
}

/* Counts an answer in the slot. */
static void pcilat_count_event(struct pcilat_worker *w, const struct pcilat_vector *v,
			       struct pcilat_slot_state *slot)
{
	const struct pcilat_event *event = &v->event;
	struct pcilat_job *job = w->job;
	u64 latency = event->entry - event->triggered;
	u64 ack = event->acked - event->entry;
	struct pcilat_text_record text;

	if (event->cpu != w->cpu) {
		slot->counts.wrong_cpu++;
		return;
	}
	slot->counts.handled++;
	pcilat_job_store(job, w->cpu, slot, &slot->latency, PCILAT_RECORD_TRIGGER,
			 event->triggered, latency);
	pcilat_job_store_code(job, w->cpu, slot, event->code);
	pcilat_job_store(job, w->cpu, slot, &slot->ack, PCILAT_RECORD_ACK, event->entry, ack);
	if (!job->text)
		return;
	text = (struct pcilat_text_record) {
		.at_ns = job->start_ns + pcilat_ticks_to_ns(event->entry - job->start),
		.first_ns = pcilat_ticks_to_ns(latency),
		.second_ns = pcilat_ticks_to_ns(ack),
		.cpu = event->cpu,
		.where = v->irq,
	};
	pcilat_ring_write(job->text, &text);
}

/* Takes the trigger's answer, if it has come. */
static bool pcilat_take_answer(struct pcilat_vector *v)
{
	/* Pairs with pcilat_answer(). */
	if (!smp_load_acquire(&v->is_answered))
		return false;
	v->is_answered = false;
	v->is_raised = false;
	return true;
}

/* Cancels the open trigger; false if the handler has it already, or none is raised. */
static bool pcilat_cancel(struct pcilat_vector *v)
{
	if (!xchg(&v->open, 0))
		return false;
	v->is_raised = false;
	return true;
}

/* The handler has taken the trigger, and is writing its answer. */
static bool pcilat_is_answering(const struct pcilat_vector *v)
{
	return v->is_raised && !READ_ONCE(v->open);
}

/* Raises one interrupt by software. */
static int pcilat_raise_by_core(struct irq_data *data, u32 source)
{
	if (source == PCILAT_SOURCE_RETRIGGER)
		return irq_chip_retrigger_hierarchy(data) > 0 ? 0 : -EOPNOTSUPP;
#ifdef CONFIG_GENERIC_IRQ_INJECTION
	return irq_inject_interrupt(data->irq);
#else
	return -EOPNOTSUPP;
#endif
}

/*
 * Raises one interrupt. All is prepared before the stamp is taken. Only the store of
 * the stamp, which the handler reads, and the write to the device follow. Returns a
 * negative errno if nothing was raised.
 */
static int pcilat_fire(struct pcilat_worker *w, struct pcilat_vector *v)
{
	const u32 source = w->job->req.source;
	void __iomem *reg = source == PCILAT_SOURCE_HARDWARE ? v->raise.reg : NULL;
	struct irq_data *data = irq_get_irq_data(v->irq);
	u32 value = v->raise.value;
	unsigned long flags;
	int ret = 0;

	local_irq_save(flags);
	if (smp_processor_id() != w->runs_on) {
		local_irq_restore(flags);
		pcilat_job_end(w->job, -ENXIO, w->runs_on, 0);
		return -ENXIO;
	}
	v->is_raised = true;
	/* The last answer was taken before. */
	smp_store_release(&v->open, pcilat_clock_begin());
	if (reg)
		writel(value, reg);
	else
		ret = pcilat_raise_by_core(data, source);
	/* It may have been answered anyway. */
	if (ret && !pcilat_cancel(v))
		ret = 0;
	local_irq_restore(flags);
	return ret;
}

/* As pcilat_fire(), but tries again while the kernel is busy with the last interrupt. */
static int pcilat_fire_retry(struct pcilat_worker *w, struct pcilat_vector *v)
{
	u64 until = pcilat_clock() + pcilat_ns_to_ticks(w->job->req.timeout_ns);
	int ret;

	for (;;) {
		ret = pcilat_fire(w, v);
		if (ret != -EBUSY || pcilat_clock() > until || pcilat_job_stopped(w->job))
			return ret;
		pcilat_relax();
	}
}

/*
 * Waits for the answer; false if the interrupt is lost or the run was stopped. A stopped run
 * leaves its trigger open: its interrupt may still come, and is none that nobody triggered.
 */
static bool pcilat_wait_answer(struct pcilat_worker *w, struct pcilat_vector *v)
{
	u64 until = pcilat_clock() + pcilat_ns_to_ticks(w->job->req.timeout_ns);

	while (!pcilat_take_answer(v)) {
		cpu_relax();
		if (pcilat_job_stopped(w->job) && READ_ONCE(v->open))
			return false;
		if (pcilat_clock() > until && pcilat_cancel(v))
			return false;
		pcilat_yield();
	}
	return true;
}

/* Counts a lost interrupt, which may be the first sign of a lost device. */
static void pcilat_lost(struct pcilat_worker *w, struct pcilat_slot_state *slot)
{
	struct pcilat_job *job = w->job;
	int ret = pcilat_check_alive(job->pl, pcilat_needs_memory(job->pl, job->req.kind));

	slot->counts.lost++;
	if (ret)
		pcilat_job_end(job, ret, w->cpu, 0);
}

/*
 * Warms up. After a change of its affinity, an edge interrupt moves when the next one
 * comes. x86 does not move an interrupt again before a timer has cleaned up its last
 * move, on the CPU that it left. Where that takes long, the warm-ups come at longer
 * intervals. Returns 0 when one has come to the right CPU.
 */
static int pcilat_warm_up(struct pcilat_worker *w, struct pcilat_vector *v,
			  struct pcilat_slot_state *slot)
{
	u32 warmup = w->job->req.warmup, quick = warmup + PCILAT_WARMUP_MORE, n;
	u64 until = pcilat_clock() + pcilat_ns_to_ticks(PCILAT_MOVE_NS);
	bool answered = false, right = false;
	int ret;

	if (!warmup)
		return 0;
	for (n = 0; (n < warmup || !right) && !pcilat_turn_is_over(w); n++) {
		if (n >= quick && (!answered || (s64)(pcilat_clock() - until) > 0))
			break;
		if (n >= quick)
			usleep_range(1000, 2000);
		ret = pcilat_fire_retry(w, v);
		if (ret)
			return ret;
		slot->counts.warmup_triggers++;
		if (!pcilat_wait_answer(w, v))
			continue;
		slot->counts.warmup_handled++;
		answered = true;
		right = v->event.cpu == w->cpu;
	}
	if (right || pcilat_turn_is_over(w))
		return 0;
	return answered ? -EINVAL : -ETIMEDOUT;
}

/* One after the other. */
static int pcilat_irq_serial(struct pcilat_worker *w, struct pcilat_vector *v,
			     struct pcilat_slot_state *slot, u64 count)
{
	struct pcilat_job *job = w->job;
	u32 lost = 0;
	int ret;

	for (; count && !pcilat_turn_is_over(w); count--) {
		ret = pcilat_fire_retry(w, v);
		if (ret)
			return ret;
		WRITE_ONCE(slot->counts.triggers, slot->counts.triggers + 1);
		if (pcilat_wait_answer(w, v)) {
			pcilat_count_event(w, v, slot);
			lost = 0;
		} else if (!pcilat_job_stopped(job)) {
			pcilat_lost(w, slot);
			if (++lost == PCILAT_LOST_MAX)
				return -ETIMEDOUT;
		}
		if (job->gap)
			pcilat_worker_wait(w, pcilat_clock() + job->gap);
		pcilat_yield();
	}
	return 0;
}

/* Counts an answer that has come, and cancels a trigger that is too old. */
static void pcilat_collect(struct pcilat_worker *w, struct pcilat_vector *v,
			   struct pcilat_slot_state *slot, u64 timeout)
{
	u64 open;

	while (pcilat_is_answering(v)) {
		if (pcilat_take_answer(v))
			pcilat_count_event(w, v, slot);
		else
			cpu_relax();
	}
	open = READ_ONCE(v->open);
	if (open && (s64)(pcilat_clock() - open) > (s64)timeout && pcilat_cancel(v))
		pcilat_lost(w, slot);
}

static void pcilat_collect_until(struct pcilat_worker *w, struct pcilat_vector *v,
				 struct pcilat_slot_state *slot, u64 timeout, u64 until)
{
	do {
		pcilat_collect(w, v, slot, timeout);
		pcilat_relax();
	} while ((s64)(until - pcilat_clock()) > 0 && !pcilat_turn_is_over(w));
}

/*
 * At absolute times. Nothing tells which of several open triggers a handler run
 * belongs to, so there is never more than one. A time at which the last trigger is
 * still open is counted instead, and so is a time that passed before this CPU came
 * to it: a slow handler hides nothing.
 */
static int pcilat_irq_at_rate(struct pcilat_worker *w, struct pcilat_vector *v,
			      struct pcilat_slot_state *slot, u64 count)
{
	struct pcilat_job *job = w->job;
	u64 interval = max_t(u64, pcilat_ns_to_ticks(job->req.interval_ns), 1);
	u64 timeout = pcilat_ns_to_ticks(job->req.timeout_ns);
	u64 next = pcilat_clock() + interval, behind;
	int ret = 0;

	while (count && !pcilat_turn_is_over(w) && !ret) {
		pcilat_collect_until(w, v, slot, timeout, next);
		if (pcilat_turn_is_over(w))
			break;
		behind = pcilat_clock() - next;
		if ((s64)behind >= (s64)interval) {
			u64 passed = min(div64_u64(behind, interval), count - 1);

			slot->counts.missed += passed;
			count -= passed;
			next += passed * interval;
			behind -= passed * interval;
		}
		pcilat_collect(w, v, slot, timeout);
		if (v->is_raised) {
			slot->counts.merged++;
		} else {
			ret = pcilat_fire(w, v);
			if (ret == -EBUSY) {
				slot->counts.missed++;
				ret = 0;
			} else if (!ret) {
				WRITE_ONCE(slot->counts.triggers, slot->counts.triggers + 1);
				slot->counts.late += (s64)behind > (s64)interval / 2;
			}
		}
		next += interval;
		count--;
	}
	do {
		pcilat_collect(w, v, slot, timeout);
		pcilat_relax();
	} while (v->is_raised && !pcilat_job_stopped(job));
	return ret;
}

/* Adds handler runs without a trigger to the slot that the vector served last. */
static void pcilat_count_extra(struct pcilat_vector *v)
{
	u32 extra = READ_ONCE(v->extra);

	if (v->slot)
		v->slot->counts.extra += extra - v->extra_seen;
	v->extra_seen = extra;
}

static void pcilat_drain(const struct pcilat_job *job)
{
	u32 us = div_u64(min_t(u64, job->req.timeout_ns, PCILAT_DRAIN_NS), NSEC_PER_USEC);

	usleep_range(us + 1, us + 50);
}

static int pcilat_irq_slot(struct pcilat_worker *w, struct pcilat_vector *v,
			   struct pcilat_slot_state *slot)
{
	int ret;

	pcilat_count_extra(v);
	v->slot = slot;
	/* A run that was stopped may have left a trigger. */
	while (v->is_raised && !pcilat_cancel(v))
		pcilat_take_answer(v);
	if (!cpu_online(w->cpu)) {
		pcilat_job_end(w->job, -ENXIO, w->cpu, 0);
		return 0;
	}
	ret = compat_irq_set_affinity(v->irq, cpumask_of(w->cpu));
	if (ret)
		return -EINVAL;
	ret = pcilat_warm_up(w, v, slot);
	if (ret || pcilat_job_stopped(w->job))
		return ret;
	if (w->job->req.interval_ns)
		ret = pcilat_irq_at_rate(w, v, slot, w->quota);
	else
		ret = pcilat_irq_serial(w, v, slot, w->quota);
	pcilat_drain(w->job);
	pcilat_count_extra(v);
	return ret;
}

/* The vectors one after the other, each with its share of the turn's time. */
void pcilat_irq_turn(struct pcilat_worker *w)
{
	struct pcilat_job *job = w->job;
	u64 begin = pcilat_clock(), end = w->deadline;
	int ret;
	u32 i;

	for (i = 0; i < job->targets && !pcilat_job_stopped(job); i++) {
		struct pcilat_slot_state *slot = pcilat_slot_of(w, i);
		struct pcilat_vector *v = &job->pl->vectors[slot->counts.index];

		if (slot->counts.error)
			continue;
		if (end)
			w->deadline = end <= begin ? end :
				begin + mul_u64_u64_div_u64(end - begin, i + 1, job->targets);
		if (pcilat_turn_is_over(w))
			continue;
		ret = pcilat_irq_slot(w, v, slot);
		/* -ENXIO is the run's error already: the worker is not on its CPU. */
		if (ret != -ENXIO)
			slot->counts.error = ret;
	}
}

/* After the last turn: it is an error if no interrupt came, or none could be raised. */
void pcilat_irq_check_result(struct pcilat_job *job)
{
	int error = 0;
	u32 i;

	for (i = 0; i < job->nslots; i++) {
		const struct pcilat_slot_state *slot = &job->slots[i];

		if (slot->counts.handled || slot->counts.wrong_cpu || slot->counts.warmup_handled)
			return;
		if (!error)
			error = slot->counts.error ?: slot->counts.lost ? -ETIMEDOUT : 0;
	}
	if (error)
		pcilat_job_end(job, error, -1, 0);
}

/*
 * Some interrupts move to another CPU only when the next one comes. The next change
 * of affinity would cancel such a pending move: raises one interrupt before.
 */
static void pcilat_finish_move(struct pcilat_vector *v)
{
	u64 until = pcilat_clock() + pcilat_ns_to_ticks(NSEC_PER_MSEC);
	struct irq_data *data = irq_get_irq_data(v->irq);

	if (!irqd_is_setaffinity_pending(data))
		return;
	irq_chip_retrigger_hierarchy(data);
	while (irqd_is_setaffinity_pending(data) && pcilat_clock() < until)
		usleep_range(20, 50);
}

/*
 * What smp_affinity_list shows: x86 moves an interrupt when it next comes, to the pending
 * mask. Read without the descriptor's lock, as /proc does. Where another CPU is chosen
 * meanwhile, it is the one or the other.
 */
const struct cpumask *pcilat_affinity(struct irq_data *data)
{
#ifdef CONFIG_GENERIC_PENDING_IRQ
	if (irqd_is_setaffinity_pending(data))
		return irq_data_to_desc(data)->pending_mask;
#endif
	return irq_data_get_affinity_mask(data);
}

/* Saves a vector's affinity, and keeps irqbalance from changing it. */
static void pcilat_hold_vector(struct pcilat_vector *v)
{
	pcilat_finish_move(v);
	cpumask_copy(v->affinity, pcilat_affinity(irq_get_irq_data(v->irq)));
	irq_modify_status(v->irq, 0, IRQ_NO_BALANCING);
	v->slot = NULL;
	pcilat_count_extra(v);
}

static void pcilat_restore_vector(struct pcilat_vector *v)
{
	pcilat_count_extra(v);
	v->slot = NULL;
	irq_modify_status(v->irq, IRQ_NO_BALANCING, 0);
	if (compat_irq_set_affinity(v->irq, v->affinity))
		pci_warn(v->pl->pdev, "cannot put back the affinity of interrupt %d\n", v->irq);
	else
		pcilat_finish_move(v);
	pcilat_count_extra(v);
}

int pcilat_irq_prepare(struct pcilat_job *job)
{
	struct pcilat_device *pl = job->pl;
	u32 source = job->req.source, i;

	if (!(pl->sources & BIT(source)))
		return -EOPNOTSUPP;
	for (i = 0; i < job->req.nvectors; i++) {
		if (job->vectors[i] >= pl->nvectors)
			return -EOPNOTSUPP;
		if (source == PCILAT_SOURCE_HARDWARE && job->vectors[i] >= pl->trigger->vectors)
			return -EOPNOTSUPP;
	}
	for (i = 0; i < job->nslots; i++)
		job->slots[i].counts.irq = pl->vectors[job->slots[i].counts.index].irq;
	for (i = 0; i < job->req.nvectors; i++)
		pcilat_hold_vector(&pl->vectors[job->vectors[i]]);
	if (pl->trigger)
		pl->trigger->enable(pl, source == PCILAT_SOURCE_HARDWARE);
	return 0;
}

/* A read of a device that does not answer may crash an arm64 machine. */
static bool pcilat_can_trigger(struct pcilat_device *pl)
{
	return pl->trigger && !pcilat_check_alive(pl, true);
}

void pcilat_irq_finish(struct pcilat_job *job)
{
	struct pcilat_device *pl = job->pl;
	u32 i;

	if (pcilat_can_trigger(pl))
		pl->trigger->enable(pl, pl->irq_enabled);
	for (i = 0; i < job->req.nvectors; i++)
		pcilat_restore_vector(&pl->vectors[job->vectors[i]]);
}

/* Requests as many of the granted vectors as possible. */
static int pcilat_irq_request(struct pcilat_device *pl, u32 granted)
{
	unsigned long flags = IRQF_NO_THREAD;
	u32 i;
	int ret;

	if (pl->irq_type == PCILAT_IRQ_INTX)
		flags |= IRQF_SHARED;
	for (i = 0; i < granted; i++) {
		struct pcilat_vector *v = &pl->vectors[i];

		v->pl = pl;
		v->index = i;
		v->irq = pci_irq_vector(pl->pdev, i);
		if (pl->trigger && i < pl->trigger->vectors)
			pl->trigger->prepare(pl, v);
		if (!zalloc_cpumask_var(&v->affinity, GFP_KERNEL))
			return -ENOMEM;
		ret = request_irq(v->irq, pcilat_handler, flags, PCILAT_NAME, v);
		if (ret) {
			free_cpumask_var(v->affinity);
			pci_warn(pl->pdev, "only %u of %u vectors: %d\n", i, granted, ret);
			break;
		}
		pl->nvectors = i + 1;
	}
	return 0;
}

static u32 pcilat_irq_sources(const struct pcilat_device *pl)
{
	u32 sources = 0;

	if (!pl->nvectors)
		return 0;
	if (pl->trigger)
		sources |= BIT(PCILAT_SOURCE_HARDWARE);
	/* A line's level cannot be raised by software. */
	if (pl->irq_type != PCILAT_IRQ_INTX) {
		sources |= BIT(PCILAT_SOURCE_RETRIGGER);
		if (IS_ENABLED(CONFIG_GENERIC_IRQ_INJECTION))
			sources |= BIT(PCILAT_SOURCE_INJECT);
	}
	return sources;
}

static void pcilat_trigger_init(struct pcilat_device *pl)
{
	const struct pcilat_trigger *trigger;

	trigger = pcilat_trigger_find(pl->pdev->vendor, pl->pdev->device);
	if (!trigger || !(pl->claimed & BIT(0)) ||
	    pci_resource_len(pl->pdev, 0) < trigger->regs_size)
		return;
	pl->trigger_regs = ioremap(pci_resource_start(pl->pdev, 0), trigger->regs_size);
	if (pl->trigger_regs)
		pl->trigger = trigger;
}

/* MSI-X or MSI; or INTx, if the trigger can tell whose interrupt it was. */
static u32 pcilat_irq_allocate(struct pcilat_device *pl, unsigned int max_vectors)
{
	unsigned int flags = PCI_IRQ_MSIX | PCI_IRQ_MSI;
	int granted;

	if (pl->trigger && pl->trigger->has_line)
		flags |= PCI_IRQ_INTX;
	if (!max_vectors)
		return 0;
	granted = pci_alloc_irq_vectors(pl->pdev, 1, max_vectors, flags);
	if (granted <= 0) {
		pci_info(pl->pdev, "no interrupt vectors: %d\n", granted);
		return 0;
	}
	if (pl->pdev->msix_enabled)
		pl->irq_type = PCILAT_IRQ_MSIX;
	else if (pl->pdev->msi_enabled)
		pl->irq_type = PCILAT_IRQ_MSI;
	else
		pl->irq_type = PCILAT_IRQ_INTX;
	return granted;
}

/* The device is quiet, and knows the type of its interrupts. */
static void pcilat_trigger_setup(struct pcilat_device *pl)
{
	pl->trigger->enable(pl, false);
	if (pl->trigger->setup)
		pl->trigger->setup(pl);
}

/* After a reset or a sleep, with hw held for writing. */
void pcilat_irq_restore(struct pcilat_device *pl)
{
	if (!pcilat_can_trigger(pl))
		return;
	pcilat_trigger_setup(pl);
	/* By the text command, until it is taken back. */
	if (pl->irq_enabled)
		pl->trigger->enable(pl, true);
}

int pcilat_irq_init(struct pcilat_device *pl, unsigned int max_vectors)
{
	u32 granted;
	int ret;

	pcilat_trigger_init(pl);
	granted = pcilat_irq_allocate(pl, max_vectors);
	if (pl->trigger) {
		/* The device is quiet before the handlers are there. */
		pl->nvectors = granted;
		pcilat_trigger_setup(pl);
		pl->nvectors = 0;
	}
	if (granted) {
		pl->vectors = kvcalloc(granted, sizeof(*pl->vectors), GFP_KERNEL);
		ret = pl->vectors ? pcilat_irq_request(pl, granted) : -ENOMEM;
		if (ret) {
			pcilat_irq_exit(pl);
			return ret;
		}
	}
	if (!pl->nvectors) {
		pl->irq_type = PCILAT_IRQ_NONE;
		/* Enabling the device has enabled its pin, for which there is no handler. */
		pci_intx(pl->pdev, 0);
	}
	pl->sources = pcilat_irq_sources(pl);
	return 0;
}

void pcilat_irq_exit(struct pcilat_device *pl)
{
	u32 i;

	if (pcilat_can_trigger(pl))
		pl->trigger->enable(pl, false);
	if (pl->irq_type == PCILAT_IRQ_NONE)
		pci_intx(pl->pdev, 1);
	for (i = 0; i < pl->nvectors; i++) {
		free_irq(pl->vectors[i].irq, &pl->vectors[i]);
		free_cpumask_var(pl->vectors[i].affinity);
	}
	pl->nvectors = 0;
	pci_free_irq_vectors(pl->pdev);
	kvfree(pl->vectors);
	pl->vectors = NULL;
	if (pl->trigger_regs)
		iounmap(pl->trigger_regs);
	pl->trigger_regs = NULL;
	pl->trigger = NULL;
}

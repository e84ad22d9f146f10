// SPDX-License-Identifier: GPL-2.0-only
/*
 * The run. Each CPU has a bound thread, the worker. It takes samples in segments, and
 * sorts them into histograms between the segments. The caller starts the turns and
 * waits for their ends, so that a signal ends the run.
 *
 * When a CPU goes offline, the scheduler moves its worker. The worker notices that
 * before its next sample and ends the run. When a run is stopped, its workers may end
 * on any CPU, so that a real-time task that occupies a CPU cannot delay the end.
 */
#include "internal.h"

/* Ends a run. Only the first caller's error counts; 0 is none. */
void pcilat_job_end(struct pcilat_job *job, int error, int cpu, u64 offset)
{
	spin_lock(&job->lock);
	if (!job->stop) {
		job->error = error;
		job->error_cpu = cpu;
		job->error_offset = offset;
		WRITE_ONCE(job->stop, true);
	}
	spin_unlock(&job->lock);
	wake_up(&job->wait);
}

static void pcilat_figures_free(struct pcilat_figures *f)
{
	u32 i;

	for (i = 0; i < PCILAT_HIST_CHUNKS; i++)
		kfree(f->chunks[i]);
}

/* May sleep for memory; false if there was none. */
static bool pcilat_figures_add(struct pcilat_figures *f, u64 ticks, u64 at)
{
	u32 bucket;
	u64 **chunk;

	if (!pcilat_hist_overflows(ticks)) {
		bucket = pcilat_hist_bucket(ticks);
		chunk = &f->chunks[bucket / PCILAT_HIST_CHUNK];
		if (!*chunk)
			*chunk = kcalloc(PCILAT_HIST_CHUNK, sizeof(**chunk), GFP_KERNEL_ACCOUNT);
		if (!*chunk)
			return false;
		(*chunk)[bucket % PCILAT_HIST_CHUNK]++;
	}
	pcilat_summary_add(&f->summary, ticks, at);
	return true;
}

/* Adds one value to a histogram and to the rings. @at is a reading of the clock. */
void pcilat_job_store(struct pcilat_job *job, u32 cpu, struct pcilat_slot_state *slot,
		      struct pcilat_figures *f, u32 kind, u64 at, u64 ticks)
{
	at -= job->start;
	if (!pcilat_figures_add(f, ticks, at)) {
		slot->counts.samples_lost++;
		pcilat_job_end(job, -ENOMEM, cpu, 0);
		return;
	}
	if (job->req.flags & PCILAT_RUN_RAW) {
		struct pcilat_record record = {
			.at = at,
			.value = min_t(u64, ticks, U32_MAX),
			.cpu = cpu,
			.kind_index = kind << 14 | slot->counts.index,
		};

		pcilat_ring_write(&job->pl->ring, &record);
	}
	if (job->text && kind == PCILAT_RECORD_LATENCY) {
		struct pcilat_text_record record = {
			.at_ns = job->start_ns + pcilat_ticks_to_ns(at),
			.first_ns = pcilat_ticks_to_ns(ticks),
			.cpu = cpu,
			.where = job->req.bar,
		};

		pcilat_ring_write(job->text, &record);
	}
}

/* Adds where the kernel was when the last interrupt came. */
void pcilat_job_store_code(struct pcilat_job *job, u32 cpu, const struct pcilat_slot_state *slot,
			   u64 code)
{
	struct pcilat_record record = {
		.at = code,
		.cpu = cpu,
		.kind_index = PCILAT_RECORD_CODE << 14 | slot->counts.index,
	};

	if (code && job->req.flags & PCILAT_RUN_RAW)
		pcilat_ring_write(&job->pl->ring, &record);
}

bool pcilat_turn_is_over(const struct pcilat_worker *w)
{
	return pcilat_job_stopped(w->job) || (w->deadline && pcilat_clock() >= w->deadline);
}

/* Waits busily, interrupts on, and lets other tasks run. */
void pcilat_worker_wait(const struct pcilat_worker *w, u64 until)
{
	do {
		pcilat_relax();
	} while ((s64)(until - pcilat_clock()) > 0 && !pcilat_turn_is_over(w));
}

static void pcilat_worker_fault(struct pcilat_worker *w)
{
	struct pcilat_job *job = w->job;
	u64 offset = job->req.offset;
	int ret;

	if (job->req.kind == PCILAT_KIND_CONFIG)
		offset = job->pl->hops[w->ones_target].offset;
	ret = pcilat_check_alive(job->pl, pcilat_needs_memory(job->pl, job->req.kind));
	pcilat_job_end(job, ret == -ECANCELED ? ret : -EIO, w->cpu, offset);
}

static void pcilat_calibrate(struct pcilat_worker *w)
{
	struct pcilat_figures *f = &w->job->calibration[w->position];
	u32 left = PCILAT_CALIBRATION, i;

	while (left && !pcilat_job_stopped(w->job)) {
		pcilat_segment(w, min(left, PCILAT_SEGMENT), PCILAT_KIND_EMPTY);
		if (w->moved) {
			pcilat_job_end(w->job, -ENXIO, w->cpu, 0);
			return;
		}
		for (i = 0; i < w->samples; i++) {
			if (!pcilat_figures_add(f, w->sample[i].ticks,
						w->sample[i].at - w->job->start))
				pcilat_job_end(w->job, -ENOMEM, w->cpu, 0);
		}
		left -= w->samples;
		pcilat_yield();
	}
	w->calibrated = true;
}

static void pcilat_access_turn(struct pcilat_worker *w)
{
	struct pcilat_job *job = w->job;
	u32 most = job->gap ? 1 : PCILAT_SEGMENT;
	struct pcilat_sample *s = NULL;
	u32 i;

	while (w->quota && !pcilat_turn_is_over(w)) {
		pcilat_segment(w, min_t(u64, most, w->quota), job->req.kind);
		for (i = 0; i < w->samples; i++) {
			struct pcilat_slot_state *slot;

			s = &w->sample[i];
			slot = pcilat_slot_of(w, s->target);
			pcilat_job_store(job, w->cpu, slot, &slot->latency, PCILAT_RECORD_LATENCY,
					 s->at, s->ticks);
		}
		w->quota -= w->samples;
		if (w->moved)
			pcilat_job_end(job, -ENXIO, w->cpu, 0);
		else if (w->ones)
			pcilat_worker_fault(w);
		else if (job->gap && s)
			pcilat_worker_wait(w, s->at + s->ticks + job->gap);
		pcilat_yield();
	}
}

static int pcilat_worker_main(void *data)
{
	struct pcilat_worker *w = data;
	struct pcilat_job *job = w->job;

	for (;;) {
		/* Pairs with pcilat_turn_start(): the turn's limits are seen. */
		wait_event_idle(w->wait, smp_load_acquire(&w->turn) || kthread_should_stop());
		if (!READ_ONCE(w->turn))
			return 0;
		if (!w->calibrated)
			pcilat_calibrate(w);
		if (job->req.kind == PCILAT_KIND_IRQ)
			pcilat_irq_turn(w);
		else
			pcilat_access_turn(w);
		/* Pairs with pcilat_turn_wait(): the turn's samples are seen. */
		smp_store_release(&w->turn, false);
		wake_up(&job->wait);
	}
}

/* Wakes only this worker: the others sleep while it takes samples. */
static void pcilat_turn_start(struct pcilat_worker *w, u64 quota, u64 deadline)
{
	if (w->job->req.kind == PCILAT_KIND_CONFIG &&
	    check_mul_overflow(quota, (u64)w->job->targets, &quota))
		quota = U64_MAX;
	w->quota = quota;
	w->deadline = deadline;
	/* Pairs with pcilat_worker_main(). */
	smp_store_release(&w->turn, true);
	wake_up(&w->wait);
}

/* Lets a worker that has to end do so on any CPU. */
static void pcilat_worker_unbind(struct pcilat_worker *w)
{
	set_cpus_allowed_ptr(w->task, cpu_possible_mask);
}

/*
 * Waits for a worker's turn to end; a signal ends the run and with it the turn. Tasks
 * are frozen, by what looks like a signal, before pcilat_suspend() is called.
 */
static void pcilat_turn_wait(struct pcilat_worker *w)
{
	struct pcilat_job *job = w->job;

	/* Both pair with pcilat_worker_main(). */
	if (wait_event_interruptible(job->wait, !smp_load_acquire(&w->turn) ||
				     pcilat_job_stopped(job)))
		pcilat_job_end(job, freezing(current) ? -ECANCELED : -EINTR, -1, 0);
	if (pcilat_job_stopped(job))
		pcilat_worker_unbind(w);
	/* As above. */
	wait_event(job->wait, !smp_load_acquire(&w->turn));
}

static bool pcilat_job_is_over(const struct pcilat_job *job)
{
	return pcilat_job_stopped(job) || (job->deadline && pcilat_clock() >= job->deadline);
}

/* CPUs in turn. Each turn ends after its share of the time, so that every CPU has a turn. */
static void pcilat_take_turns(struct pcilat_job *job)
{
	u64 count = job->req.count ?: U64_MAX;
	u32 rounds = job->req.rounds ?: 1;
	u64 turns = (u64)rounds * job->req.ncpus, turn = 0;
	u64 time = job->deadline - job->start, deadline = 0, quota;
	u32 round, i;

	for (round = 0; round < rounds && !pcilat_job_is_over(job); round++) {
		quota = div_u64(count, rounds);
		quota += round < count - quota * rounds;
		if (!quota)
			break;	/* there are more rounds than samples */
		for (i = 0; i < job->req.ncpus && !pcilat_job_is_over(job); i++) {
			if (job->deadline)
				deadline = job->start + mul_u64_u64_div_u64(time, ++turn, turns);
			pcilat_turn_start(job->workers[i], quota, deadline);
			pcilat_turn_wait(job->workers[i]);
		}
	}
}

static void pcilat_all_at_once(struct pcilat_job *job)
{
	u32 i;

	for (i = 0; i < job->req.ncpus; i++)
		pcilat_turn_start(job->workers[i], job->req.count ?: U64_MAX, job->deadline);
	for (i = 0; i < job->req.ncpus; i++)
		pcilat_turn_wait(job->workers[i]);
}

static int pcilat_worker_start(struct pcilat_job *job, u32 position)
{
	struct pcilat_worker *w;
	struct task_struct *task;

	w = kvzalloc(sizeof(*w), GFP_KERNEL_ACCOUNT);
	if (!w)
		return -ENOMEM;
	job->workers[position] = w;
	init_waitqueue_head(&w->wait);
	w->job = job;
	w->position = position;
	w->cpu = job->cpus[position];
	w->runs_on = w->cpu;
	if (job->req.kind == PCILAT_KIND_IRQ && job->req.trigger_cpu >= 0)
		w->runs_on = job->req.trigger_cpu;
	task = kthread_create_on_node(pcilat_worker_main, w, cpu_to_node(w->runs_on), "pcilat/%u",
				      w->runs_on);
	if (IS_ERR(task))
		return PTR_ERR(task);
	kthread_bind(task, w->runs_on);
	w->task = task;
	wake_up_process(task);
	return 0;
}

static void pcilat_workers_stop(struct pcilat_job *job)
{
	u32 i;

	for (i = 0; i < job->req.ncpus; i++) {
		struct pcilat_worker *w = job->workers[i];

		if (w && w->task) {
			pcilat_worker_unbind(w);
			kthread_stop(w->task);
		}
		kvfree(w);
	}
	kvfree(job->workers);
	job->workers = NULL;
}

static int pcilat_workers_start(struct pcilat_job *job)
{
	int ret = 0;
	u32 i;

	job->workers = kvcalloc(job->req.ncpus, sizeof(*job->workers), GFP_KERNEL_ACCOUNT);
	if (!job->workers)
		return -ENOMEM;
	for (i = 0; i < job->req.ncpus && !ret; i++)
		ret = pcilat_worker_start(job, i);
	if (ret)
		pcilat_workers_stop(job);
	return ret;
}

void pcilat_job_free(struct pcilat_job *job)
{
	u32 i;

	if (!job)
		return;
	for (i = 0; job->slots && i < job->nslots; i++) {
		pcilat_figures_free(&job->slots[i].latency);
		pcilat_figures_free(&job->slots[i].ack);
	}
	for (i = 0; job->calibration && i < job->req.ncpus; i++)
		pcilat_figures_free(&job->calibration[i]);
	kvfree(job->slots);
	kvfree(job->calibration);
	kfree(job);
}

static int pcilat_job_slots(struct pcilat_job *job)
{
	struct pcilat_device *pl = job->pl;
	u32 i;

	switch (job->req.kind) {
	case PCILAT_KIND_CONFIG:
		job->targets = pl->nhops;
		break;
	case PCILAT_KIND_IRQ:
		job->targets = job->req.nvectors;
		break;
	default:
		job->targets = 1;
		break;
	}
	if (check_mul_overflow(job->req.ncpus, job->targets, &job->nslots) ||
	    job->nslots > PCILAT_MAX_SLOTS)
		return -EINVAL;
	if (check_mul_overflow(job->req.count, (u64)job->nslots, &job->total))
		return -EINVAL;
	job->slots = kvcalloc(job->nslots, sizeof(*job->slots), GFP_KERNEL_ACCOUNT);
	job->calibration = kvcalloc(job->req.ncpus, sizeof(*job->calibration), GFP_KERNEL_ACCOUNT);
	if (!job->slots || !job->calibration)
		return -ENOMEM;
	for (i = 0; i < job->nslots; i++) {
		struct pcilat_slot *counts = &job->slots[i].counts;
		u32 target = i % job->targets;

		counts->size = sizeof(*counts);
		counts->slot = i;
		counts->cpu = job->cpus[i / job->targets];
		counts->index = job->req.nvectors ? job->vectors[target] : target;
		counts->accesses = max(job->req.batch, 1u);
		if (job->req.kind == PCILAT_KIND_CONFIG) {
			const struct pci_dev *pdev = pl->hops[target].pdev;

			counts->domain = pci_domain_nr(pdev->bus);
			counts->bus = pdev->bus->number;
			counts->devfn = pdev->devfn;
			counts->config_offset = pl->hops[target].offset;
		}
	}
	return 0;
}

static struct pcilat_job *pcilat_job_new(struct pcilat_device *pl, const struct pcilat_run *req,
					 const u32 *cpus, const u32 *vectors)
{
	struct pcilat_job *job = kzalloc(sizeof(*job), GFP_KERNEL_ACCOUNT);
	int ret;

	if (!job)
		return ERR_PTR(-ENOMEM);
	job->pl = pl;
	job->req = *req;
	job->cpus = cpus;
	job->vectors = vectors;
	job->error_cpu = -1;
	spin_lock_init(&job->lock);
	init_waitqueue_head(&job->wait);
	job->budget = pcilat_ns_to_ticks(PCILAT_BATCH_MAX_NS);
	job->gap = pcilat_ns_to_ticks(req->gap_ns);
	ret = pcilat_job_slots(job);
	if (ret) {
		pcilat_job_free(job);
		return ERR_PTR(ret);
	}
	return job;
}

/* Prepares the device for the run. */
static int pcilat_job_prepare(struct pcilat_job *job)
{
	struct pcilat_run *req = &job->req;

	if (req->kind == PCILAT_KIND_CONFIG)
		return 0;
	if (req->kind == PCILAT_KIND_IRQ)
		return pcilat_irq_prepare(job);
	/* All-ones are written: the register may read so. */
	if (req->kind == PCILAT_KIND_WRITE_READ && req->value == U64_MAX >> (64 - 8 * req->width))
		req->flags |= PCILAT_RUN_ONES_OK;
	job->reg = pcilat_map(job->pl, req->bar, req->width, req->offset);
	return job->reg ? 0 : -ENOMEM;
}

static void pcilat_job_finish(struct pcilat_job *job)
{
	if (job->req.kind == PCILAT_KIND_IRQ)
		pcilat_irq_finish(job);
	if (job->reg)
		iounmap(job->reg);
	job->reg = NULL;
}

/* Drops the results of the last run. From now on, others can stop this one. */
static int pcilat_job_publish(struct pcilat_job *job)
{
	struct pcilat_device *pl = job->pl;
	int ret;

	mutex_lock(&pl->lock);
	ret = pcilat_check_usable(pl);
	if (ret) {
		mutex_unlock(&pl->lock);
		return ret;
	}
	if (job->req.flags & PCILAT_RUN_RAW)
		pcilat_ring_reset(&pl->ring);
	job->start = pcilat_clock_begin();
	job->start_ns = ktime_get_ns();
	if (job->req.duration_ns)
		job->deadline = job->start + pcilat_ns_to_ticks(job->req.duration_ns);
	job->running = true;
	pcilat_job_free(pl->job);
	pl->job = job;
	mutex_unlock(&pl->lock);
	return 0;
}

/* Otherwise an offline CPU would be noticed only at its turn. */
static void pcilat_check_online(struct pcilat_job *job)
{
	u32 i;

	for (i = 0; i < job->req.ncpus; i++) {
		if (!cpu_online(job->cpus[i]))
			pcilat_job_end(job, -ENXIO, job->cpus[i], 0);
		else if (job->req.kind == PCILAT_KIND_IRQ && job->req.trigger_cpu >= 0 &&
			 !cpu_online(job->req.trigger_cpu))
			pcilat_job_end(job, -ENXIO, job->req.trigger_cpu, 0);
	}
}

static int pcilat_job_run(struct pcilat_job *job)
{
	struct pcilat_device *pl = job->pl;
	int ret;

	pcilat_check_online(job);
	if (job->req.order == PCILAT_ORDER_CONCURRENT)
		pcilat_all_at_once(job);
	else
		pcilat_take_turns(job);
	/* Not every bus answers all-ones for nobody: also what looked well may have been none. */
	if (!pcilat_job_stopped(job)) {
		ret = pcilat_check_alive(pl, pcilat_needs_memory(pl, job->req.kind));
		if (ret)
			pcilat_job_end(job, ret, -1, 0);
	}
	if (job->req.kind == PCILAT_KIND_IRQ && !pcilat_job_stopped(job))
		pcilat_irq_check_result(job);
	guard(mutex)(&pl->lock);
	job->elapsed_ns = ktime_get_ns() - job->start_ns;
	job->running = false;
	ret = job->error;
	return ret;
}

static int pcilat_run_exclusive(struct pcilat_device *pl, const struct pcilat_run *req,
				const u32 *cpus, const u32 *vectors, struct pcilat_ring *text)
{
	struct pcilat_job *job;
	bool published = false;
	int ret;

	if (req->flags & PCILAT_RUN_RAW) {
		ret = pcilat_ring_allocate(pl, &pl->ring);
		if (ret)
			return ret;
	}
	job = pcilat_job_new(pl, req, cpus, vectors);
	if (IS_ERR(job))
		return PTR_ERR(job);
	job->text = text;
	ret = pcilat_job_prepare(job);
	if (ret)
		goto out_free;
	ret = pcilat_workers_start(job);
	if (ret)
		goto out_finish;
	ret = pcilat_job_publish(job);
	if (!ret) {
		published = true;
		ret = pcilat_job_run(job);
	}
	pcilat_workers_stop(job);
out_finish:
	pcilat_job_finish(job);
out_free:
	if (!published)
		pcilat_job_free(job);
	return ret;
}

/*
 * Executes a run. The caller has checked the request as far as it does not depend on
 * the device, and holds no lock.
 */
int pcilat_run(struct pcilat_device *pl, const struct pcilat_run *req, const u32 *cpus,
	       const u32 *vectors, struct pcilat_ring *text)
{
	int ret;

	ret = pcilat_check_lockdown();
	if (ret)
		return ret;
	if (test_and_set_bit_lock(0, &pl->busy))
		return -EBUSY;
	ret = pcilat_enter(pl);
	if (ret)
		goto out_idle;
	if (req->kind <= PCILAT_KIND_WRITE_READ)
		ret = pcilat_check_access(pl, req->bar, req->width, req->offset,
					  req->kind != PCILAT_KIND_READ);
	if (!ret)
		ret = pcilat_check_alive(pl, pcilat_needs_memory(pl, req->kind));
	if (!ret)
		ret = pcilat_run_exclusive(pl, req, cpus, vectors, text);
	pcilat_leave(pl);
out_idle:
	clear_bit_unlock(0, &pl->busy);
	return ret;
}

/* The samples so far. Called with pl->lock held, also during a run. */
u64 pcilat_job_done(const struct pcilat_job *job)
{
	u64 done = 0;
	u32 i;

	for (i = 0; i < job->nslots; i++) {
		const struct pcilat_slot_state *slot = &job->slots[i];

		if (job->req.kind == PCILAT_KIND_IRQ)
			done += READ_ONCE(slot->counts.triggers);
		else
			done += READ_ONCE(slot->latency.summary.count);
	}
	return done;
}

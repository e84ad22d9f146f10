// SPDX-License-Identifier: GPL-2.0-only
/*
 * The ring: a file's buffers, which user space maps and the engine fills one
 * after the other. The interrupt of one DMA starts the next one, so that no task
 * has to be awake for it. Only the file itself can map its buffers.
 */
#include "internal.h"

enum sis8300_ring_state {
	SIS8300_RING_IDLE,		/* not started, stopped, all passes done, or failed */
	SIS8300_RING_WAITS,		/* for the end of an acquisition */
	SIS8300_RING_READS,
};

struct sis8300_ring_slot {
	struct sis8300_buffer buffer;
	struct sis8300_ring *ring;
	struct sis8300_dma dma;
	u64 pass;
	u64 trigger_ns;
	bool is_last;			/* of its pass */
};

struct sis8300_ring {
	struct kref ref;
	struct sis8300_file *file;
	struct sis8300 *sis;
	u32 buffers;
	u32 buffer_bytes;
	u32 stride;
	atomic_t mapped;
	struct mutex next_lock;		/* handed; keeps syncs in the order of releases */
	/* Under sis8300.lock from here on. */
	enum sis8300_ring_state state;
	bool was_started;
	bool is_freed;
	int error;			/* why it stopped */
	u32 flags;
	u64 address;
	u64 bytes;
	u64 passes;
	u64 timeout_ns;
	u64 pass;			/* being submitted */
	u64 offset;			/* in this pass */
	u64 submitted;			/* buffers, since the start */
	u64 filled;
	u64 handed;
	u64 released;
	u64 trigger_ns;
	bool is_pass_submitted;		/* triggered: the next pass needs an acquisition first */
	u64 stall_ns;			/* when the engine ran out of buffers; 0: it has some */
	struct sis8300_ring_slot slots[];
};

static void sis8300_ring_free(struct kref *ref)
{
	struct sis8300_ring *ring = container_of(ref, struct sis8300_ring, ref);
	u32 i;

	for (i = 0; i < ring->buffers; i++)
		sis8300_buffer_free(ring->sis, &ring->slots[i].buffer);
	put_device(&ring->sis->dev);
	kvfree(ring);
}

static void sis8300_ring_put(struct sis8300_ring *ring)
{
	kref_put(&ring->ref, sis8300_ring_free);
}

/* Frees the engine and the acquisition for others. With sis->lock held. */
static void sis8300_ring_end(struct sis8300_ring *ring)
{
	struct sis8300 *sis = ring->sis;

	ring->state = SIS8300_RING_IDLE;
	if (ring->stall_ns)
		ring->file->stats.stall_ns += ktime_get_ns() - ring->stall_ns;
	ring->stall_ns = 0;
	if (sis->ring == ring)
		sis->ring = NULL;
	if (sis->acq.ring == ring) {
		if (!sis->gone && sis->acq.state == SIS8300_ACQ_ARMED)
			sis8300_write(sis, SIS8300_REG_CONTROL, SIS8300_CONTROL_RESET);
		sis8300_acq_cancel(sis, -ECANCELED);
	}
	wake_up_all(&sis->wait);
}

/* Cancels the DMAs that the engine has not begun. With sis->lock held. */
static void sis8300_ring_cancel(struct sis8300_ring *ring)
{
	u32 i;

	for (i = 0; i < ring->buffers; i++)
		sis8300_dma_cancel_locked(ring->sis, &ring->slots[i].dma);
}

/**
 * sis8300_ring_fail() - an error stops the ring
 * @ring: the ring; sis->lock is held
 * @error: the error
 */
void sis8300_ring_fail(struct sis8300_ring *ring, int error)
{
	lockdep_assert_held(&ring->sis->lock);
	if (ring->state == SIS8300_RING_IDLE)
		return;
	ring->error = error;
	sis8300_ring_end(ring);
	sis8300_ring_cancel(ring);
}

static bool sis8300_ring_is_submitted(const struct sis8300_ring *ring)
{
	return ring->passes && ring->pass == ring->passes;
}

/* The slot of a buffer's number. The numbers continue over all passes. */
static struct sis8300_ring_slot *sis8300_ring_slot(struct sis8300_ring *ring, u64 number)
{
	u32 at;

	div_u64_rem(number, ring->buffers, &at);
	return &ring->slots[at];
}

static void sis8300_ring_submit(struct sis8300_ring *ring)
{
	struct sis8300_ring_slot *slot = sis8300_ring_slot(ring, ring->submitted);
	u32 bytes = min_t(u64, ring->buffer_bytes, ring->bytes - ring->offset);
	int ret;

	slot->dma.card = ring->address + ring->offset;
	slot->dma.bytes = bytes;
	slot->pass = ring->pass;
	slot->trigger_ns = ring->trigger_ns;
	ring->offset += bytes;
	slot->is_last = ring->offset == ring->bytes;
	if (slot->is_last) {
		ring->offset = 0;
		ring->pass++;
		ring->is_pass_submitted = ring->flags & SIS8300_RING_TRIGGERED;
	}
	ring->submitted++;
	ret = sis8300_dma_submit_locked(ring->sis, &slot->dma);
	if (ret)
		sis8300_ring_fail(ring, ret);
}

/* Queues a DMA for each free buffer. With sis->lock held. */
static void sis8300_ring_fill(struct sis8300_ring *ring)
{
	struct sis8300_stats *stats = &ring->file->stats;

	while (ring->state == SIS8300_RING_READS && !sis8300_ring_is_submitted(ring) &&
	       !ring->is_pass_submitted && ring->submitted - ring->released < ring->buffers) {
		if (ring->stall_ns) {
			stats->stall_ns += ktime_get_ns() - ring->stall_ns;
			ring->stall_ns = 0;
		}
		sis8300_ring_submit(ring);
	}
}

/* Counts a stall: the engine has nothing to do because no buffer is free. */
static void sis8300_ring_note_stall(struct sis8300_ring *ring, u64 now)
{
	if (ring->submitted != ring->filled || ring->stall_ns)
		return;
	ring->stall_ns = now;
	ring->file->stats.stalls++;
}

static void sis8300_ring_next_pass(struct sis8300_ring *ring, u64 now)
{
	struct sis8300 *sis = ring->sis;

	/* The board is idle, and its start addresses have not changed: it can be armed at once. */
	ring->state = SIS8300_RING_WAITS;
	sis8300_acq_begin(ring->file, ring, sis8300_arm_command(sis), now);
}

/* In the interrupt, with sis->lock held. */
static void sis8300_ring_dma_done(struct sis8300_dma *dma)
{
	struct sis8300_ring_slot *slot = container_of(dma, struct sis8300_ring_slot, dma);
	struct sis8300_ring *ring = slot->ring;

	if (dma->status)
		sis8300_ring_fail(ring, dma->status);
	/* After an error, a number is missing: no further buffer counts as full. */
	if (dma->status || ring->error)
		return;
	/* A stopped ring's last DMA is a full buffer as well. */
	ring->filled++;
	ring->file->stats.user_bytes += dma->bytes;
	wake_up_all(&ring->sis->wait);
	if (ring->state != SIS8300_RING_READS)
		return;
	if (sis8300_ring_is_submitted(ring) && ring->filled == ring->submitted) {
		sis8300_ring_end(ring);
	} else if (slot->is_last && ring->flags & SIS8300_RING_TRIGGERED) {
		sis8300_ring_next_pass(ring, dma->end_ns);
	} else {
		sis8300_ring_fill(ring);
		if (ring->state == SIS8300_RING_READS)
			sis8300_ring_note_stall(ring, dma->end_ns);
	}
}

/**
 * sis8300_ring_acq_ended() - the acquisition of a pass has ended
 * @ring: that waits for it; sis->lock is held
 * @time_ns: when
 */
void sis8300_ring_acq_ended(struct sis8300_ring *ring, u64 time_ns)
{
	ring->trigger_ns = time_ns;
	ring->is_pass_submitted = false;
	ring->state = SIS8300_RING_READS;
	sis8300_ring_fill(ring);
	if (ring->state == SIS8300_RING_READS)
		sis8300_ring_note_stall(ring, time_ns);
}

/**
 * sis8300_ring_tick() - end a ring whose acquisition takes too long
 * @sis: the board; sis->lock is held
 * @now: the time
 *
 * Return: true while it has to be called again.
 */
bool sis8300_ring_tick(struct sis8300 *sis, u64 now)
{
	struct sis8300_ring *ring = sis->ring;

	if (!ring || ring->state != SIS8300_RING_WAITS)
		return false;
	if (now > sis->acq.armed_ns + ring->timeout_ns)
		sis8300_ring_fail(ring, -ETIMEDOUT);
	return ring->state == SIS8300_RING_WAITS;
}

static struct sis8300_ring *sis8300_ring_new(struct sis8300_file *f, u32 buffers, u32 bytes)
{
	struct sis8300 *sis = f->sis;
	struct sis8300_ring *ring;
	int ret = 0;
	u32 i;

	ring = kvzalloc(struct_size(ring, slots, buffers), GFP_KERNEL_ACCOUNT);
	if (!ring)
		return ERR_PTR(-ENOMEM);
	kref_init(&ring->ref);
	mutex_init(&ring->next_lock);
	get_device(&sis->dev);
	ring->file = f;
	ring->sis = sis;
	ring->buffers = buffers;
	ring->buffer_bytes = bytes;
	ring->stride = PAGE_ALIGN(bytes);
	for (i = 0; i < buffers && !ret; i++) {
		struct sis8300_ring_slot *slot = &ring->slots[i];

		ret = sis8300_enter(sis);
		if (ret)
			break;
		ret = sis8300_buffer_alloc(sis, &slot->buffer, ring->stride, DMA_FROM_DEVICE,
					   COMPAT_GFP_MAPPED | __GFP_RETRY_MAYFAIL);
		sis8300_leave(sis);
		slot->ring = ring;
		INIT_LIST_HEAD(&slot->dma.node);
		slot->dma.file = f;
		slot->dma.host = slot->buffer.dma;
		slot->dma.done = sis8300_ring_dma_done;
		if (!ret && fatal_signal_pending(current))
			ret = -EINTR;
	}
	if (!ret)
		return ring;
	sis8300_ring_put(ring);
	return ERR_PTR(ret);
}

/* Cancels the DMAs that have not begun, and waits for the one that runs. */
static void sis8300_ring_drain(struct sis8300_ring *ring)
{
	struct sis8300 *sis = ring->sis;
	u32 i;

	spin_lock_irq(&sis->lock);
	sis8300_ring_cancel(ring);
	spin_unlock_irq(&sis->lock);
	for (i = 0; i < ring->buffers; i++)
		sis8300_dma_finish(sis, &ring->slots[i].dma);
}

/* With the file's lock held, or while the file is being closed. */
static void sis8300_ring_detach(struct sis8300_file *f)
{
	struct sis8300_ring *ring = f->ring;

	f->ring = NULL;
	spin_lock_irq(&f->sis->lock);
	sis8300_ring_end(ring);
	ring->is_freed = true;
	spin_unlock_irq(&f->sis->lock);
	sis8300_ring_drain(ring);
	sis8300_ring_put(ring);
}

/**
 * sis8300_ring_setup() - allocate the buffers of a file's ring, or free them
 * @f: the file
 * @setup: number and size; the stride is filled in
 *
 * Return: 0; -EINVAL; -EBUSY while they are mapped or filled; -ENOMEM, -EINTR,
 * -ENODEV.
 */
int sis8300_ring_setup(struct sis8300_file *f, struct sis8300_ring_setup *setup)
{
	struct sis8300_ring *ring;
	int ret = 0;

	if (memchr_inv(setup->reserved, 0, sizeof(setup->reserved)) ||
	    setup->buffers > SIS8300_RING_BUFFERS_MAX)
		return -EINVAL;
	if (setup->buffers &&
	    (setup->buffers < SIS8300_RING_BUFFERS_MIN || !setup->buffer_bytes ||
	     setup->buffer_bytes % SIS8300_DMA_ALIGN || setup->buffer_bytes > f->sis->chunk_bytes))
		return -EINVAL;
	setup->stride = setup->buffers ? PAGE_ALIGN(setup->buffer_bytes) : 0;
	if (mutex_lock_interruptible(&f->lock))
		return -EINTR;
	if (READ_ONCE(f->sis->gone))
		ret = -ENODEV;
	else if (f->ring && (atomic_read(&f->ring->mapped) ||
			     READ_ONCE(f->ring->state) != SIS8300_RING_IDLE))
		ret = -EBUSY;
	if (ret)
		goto out_unlock;
	if (f->ring)
		sis8300_ring_detach(f);
	if (!setup->buffers)
		goto out_unlock;
	ring = sis8300_ring_new(f, setup->buffers, setup->buffer_bytes);
	if (IS_ERR(ring))
		ret = PTR_ERR(ring);
	else
		f->ring = ring;
out_unlock:
	mutex_unlock(&f->lock);
	return ret;
}

static int sis8300_ring_check(const struct sis8300 *sis, const struct sis8300_ring_start *start)
{
	u64 end;

	if (memchr_inv(start->reserved, 0, sizeof(start->reserved)) || start->reserved0 ||
	    start->flags & ~SIS8300_RING_TRIGGERED || !start->bytes ||
	    start->address % SIS8300_DMA_ALIGN || start->bytes % SIS8300_DMA_ALIGN ||
	    check_add_overflow(start->address, start->bytes, &end) || end > sis->memory_bytes)
		return -EINVAL;
	if (start->timeout_ms > 3600000 ||
	    (start->flags & SIS8300_RING_TRIGGERED && !start->timeout_ms))
		return -EINVAL;
	return 0;
}

/* With sis->lock held and the board not gone. */
static void sis8300_ring_begin(struct sis8300_ring *ring, const struct sis8300_ring_start *start)
{
	ring->was_started = true;
	ring->error = 0;
	ring->flags = start->flags;
	ring->address = start->address;
	ring->bytes = start->bytes;
	ring->passes = start->passes;
	ring->timeout_ns = (u64)start->timeout_ms * NSEC_PER_MSEC;
	ring->pass = 0;
	ring->offset = 0;
	ring->submitted = 0;
	ring->filled = 0;
	ring->handed = 0;
	ring->released = 0;
	ring->trigger_ns = 0;
	ring->stall_ns = 0;
	ring->is_pass_submitted = false;
	ring->sis->ring = ring;
	if (start->flags & SIS8300_RING_TRIGGERED) {
		sis8300_ring_next_pass(ring, ktime_get_ns());
	} else {
		ring->state = SIS8300_RING_READS;
		sis8300_ring_fill(ring);
	}
}

/* With the reader's and the file's lock held. */
static int sis8300_ring_launch(struct sis8300_file *f, const struct sis8300_ring_start *start)
{
	bool triggered = start->flags & SIS8300_RING_TRIGGERED;
	struct sis8300_ring *ring = f->ring;
	struct sis8300 *sis = f->sis;
	int ret;
	u32 i;

	sis8300_ring_drain(ring);
	for (i = 0; i < ring->buffers; i++)
		sis8300_buffer_for_device(sis, &ring->slots[i].buffer, ring->stride);
	ret = sis8300_setup_begin(sis);
	if (ret)
		return ret;
	if (triggered)
		ret = sis8300_acq_prepare(f);
	if (ret)
		goto out;
	spin_lock_irq(&sis->lock);
	if (triggered)
		ret = sis8300_acq_recheck(sis);
	else if (sis->gone)
		ret = -ENODEV;
	if (!ret)
		sis8300_ring_begin(ring, start);
	spin_unlock_irq(&sis->lock);
out:
	sis8300_setup_end(sis);
	return ret;
}

/**
 * sis8300_ring_start() - let the engine fill the ring
 * @f: the file
 * @start: address, length and number of passes
 *
 * Return: 0; -EINVAL, or without a ring; -ENODATA if triggered without a setup;
 * -EBUSY, -EINTR, -ENODEV, -ETIMEDOUT.
 */
int sis8300_ring_start(struct sis8300_file *f, const struct sis8300_ring_start *start)
{
	int ret;

	ret = sis8300_ring_check(f->sis, start);
	if (ret)
		return ret;
	/* Waits until the present reader ends its turn. */
	ret = sis8300_reader_lock(f->sis);
	if (ret)
		return ret;
	if (mutex_lock_interruptible(&f->lock)) {
		ret = -EINTR;
	} else {
		ret = f->ring ? sis8300_ring_launch(f, start) : -EINVAL;
		mutex_unlock(&f->lock);
	}
	sis8300_reader_unlock(f->sis);
	return ret;
}

/**
 * sis8300_ring_stop() - the engine fills no more buffers
 * @f: the file
 *
 * Return: 0; -EINVAL without a ring; -EINTR.
 */
int sis8300_ring_stop(struct sis8300_file *f)
{
	struct sis8300 *sis = f->sis;
	int ret = 0;

	if (mutex_lock_interruptible(&f->lock))
		return -EINTR;
	if (f->ring) {
		spin_lock_irq(&sis->lock);
		sis8300_ring_end(f->ring);
		/* Under the same lock: if a DMA failed now, the next one would take its number. */
		sis8300_ring_cancel(f->ring);
		spin_unlock_irq(&sis->lock);
		sis8300_ring_drain(f->ring);
	} else {
		ret = READ_ONCE(sis->gone) ? -ENODEV : -EINVAL;
	}
	mutex_unlock(&f->lock);
	return ret;
}

/* Returns buffers to the engine; with ring->next_lock held. */
static int sis8300_ring_release(struct sis8300_ring *ring, u64 release)
{
	struct sis8300 *sis = ring->sis;
	u64 first, handed;

	spin_lock_irq(&sis->lock);
	first = ring->released;
	handed = ring->handed;
	spin_unlock_irq(&sis->lock);
	if (release >= handed)
		return -EINVAL;
	for (; first <= release; first++) {
		struct sis8300_buffer *buffer = &sis8300_ring_slot(ring, first)->buffer;

		sis8300_buffer_for_device(sis, buffer, ring->stride);
	}
	spin_lock_irq(&sis->lock);
	/* RING_START may have restarted the numbers meanwhile. */
	if (release < ring->handed && ring->released <= release) {
		ring->released = release + 1;
		if (ring->state == SIS8300_RING_READS && !sis->gone)
			sis8300_ring_fill(ring);
	}
	spin_unlock_irq(&sis->lock);
	return 0;
}

/* With sis->lock held. Return: 1 if a buffer is full, 0 if one may come, else why none comes. */
static int sis8300_ring_status(const struct sis8300_ring *ring)
{
	if (ring->filled > ring->handed)
		return 1;
	if (ring->error)
		return ring->error;
	if (!ring->was_started)
		return -EINVAL;
	if (ring->sis->gone)
		return -ENODEV;
	if (ring->is_freed || ring->state == SIS8300_RING_IDLE)
		return -ENODATA;
	return 0;
}

static int sis8300_ring_ready(struct sis8300_ring *ring)
{
	guard(spinlock_irq)(&ring->sis->lock);
	return sis8300_ring_status(ring);
}

/* Takes the oldest full buffer; with ring->next_lock held. Return: as sis8300_ring_status(). */
static int sis8300_ring_dequeue(struct sis8300_ring *ring, struct sis8300_ring_next *next)
{
	struct sis8300_ring_slot *slot;
	int ret;

	spin_lock_irq(&ring->sis->lock);
	ret = sis8300_ring_status(ring);
	if (ret > 0) {
		next->number = ring->handed++;
		slot = sis8300_ring_slot(ring, next->number);
		next->address = slot->dma.card;
		next->bytes = slot->dma.bytes;
		next->pass = slot->pass;
		next->end_ns = slot->dma.end_ns;
		next->dma_ns = slot->dma.end_ns - slot->dma.start_ns;
		next->trigger_ns = slot->trigger_ns;
	}
	spin_unlock_irq(&ring->sis->lock);
	if (ret > 0)
		sis8300_buffer_for_cpu(ring->sis, &slot->buffer, next->bytes);
	return ret;
}

static int sis8300_ring_wait(struct sis8300_ring *ring, struct sis8300_ring_next *next)
{
	long left = msecs_to_jiffies(next->timeout_ms);
	int ret;

	for (;;) {
		if (mutex_lock_interruptible(&ring->next_lock))
			return -EINTR;
		ret = sis8300_ring_dequeue(ring, next);
		mutex_unlock(&ring->next_lock);
		if (ret)
			return ret < 0 ? ret : 0;
		if (!left)
			return next->timeout_ms ? -ETIMEDOUT : -EAGAIN;
		left = wait_event_interruptible_timeout(ring->sis->wait, sis8300_ring_ready(ring),
							left);
		if (left < 0)
			return -EINTR;
	}
}

/**
 * sis8300_ring_next() - release buffers, wait for the next full one
 * @f: the file
 * @next: buffers to release and the timeout; the full buffer is filled in
 *
 * Return: 0; -EINVAL, or without a ring, or one that was not started; -EAGAIN,
 * -ETIMEDOUT, -EINTR; -ENODATA at the end; the error that stopped the ring.
 */
int sis8300_ring_next(struct sis8300_file *f, struct sis8300_ring_next *next)
{
	struct sis8300_ring *ring;
	int ret = 0;

	if (memchr_inv(next->reserved, 0, sizeof(next->reserved)) || next->timeout_ms > 3600000)
		return -EINVAL;
	if (mutex_lock_interruptible(&f->lock))
		return -EINTR;
	ring = f->ring;
	if (ring)
		kref_get(&ring->ref);
	mutex_unlock(&f->lock);
	if (!ring)
		return READ_ONCE(f->sis->gone) ? -ENODEV : -EINVAL;
	if (next->release != U64_MAX) {
		if (mutex_lock_interruptible(&ring->next_lock)) {
			ret = -EINTR;
		} else {
			ret = sis8300_ring_release(ring, next->release);
			mutex_unlock(&ring->next_lock);
		}
	}
	next->flags = 0;
	if (!ret)
		ret = sis8300_ring_wait(ring, next);
	sis8300_ring_put(ring);
	return ret;
}

/**
 * sis8300_ring_poll() - what poll() sees of a ring
 * @ring: the ring, or NULL; sis->lock is held
 * @events: poll's events are added
 *
 * Return: false if there is no ring: poll() is about acquisitions then.
 */
bool sis8300_ring_poll(struct sis8300_ring *ring, __poll_t *events)
{
	if (!ring)
		return false;
	/* Also at the end of all passes: RING_NEXT returns -ENODATA at once. */
	if (ring->was_started && sis8300_ring_status(ring))
		*events |= EPOLLIN | EPOLLRDNORM;
	if (ring->error)
		*events |= EPOLLERR;
	return true;
}

/**
 * sis8300_ring_close() - the file is closed, and none of its buffers is mapped
 * @f: the file
 */
void sis8300_ring_close(struct sis8300_file *f)
{
	if (f->ring)
		sis8300_ring_detach(f);
}

static void sis8300_vm_open(struct vm_area_struct *vma)
{
	struct sis8300_ring *ring = vma->vm_private_data;

	kref_get(&ring->ref);
	atomic_inc(&ring->mapped);
}

static void sis8300_vm_close(struct vm_area_struct *vma)
{
	struct sis8300_ring *ring = vma->vm_private_data;

	atomic_dec(&ring->mapped);
	sis8300_ring_put(ring);
}

static const struct vm_operations_struct sis8300_vm_ops = {
	.open = sis8300_vm_open,
	.close = sis8300_vm_close,
};

static int sis8300_ring_insert(struct sis8300_ring *ring, struct vm_area_struct *vma)
{
	unsigned long address = vma->vm_start;
	u32 i, offset;
	int ret;

	for (i = 0; i < ring->buffers; i++) {
		for (offset = 0; offset < ring->stride; offset += PAGE_SIZE) {
			ret = vm_insert_page(vma, address,
					     virt_to_page(ring->slots[i].buffer.memory + offset));
			if (ret)
				return ret;
			address += PAGE_SIZE;
		}
		cond_resched();
	}
	return 0;
}

/**
 * sis8300_ring_mmap() - show a ring's buffers to user space
 * @file: the file
 * @vma: all of them, shared and readable
 *
 * The pages are inserted, not remapped: they can be the source of direct I/O.
 *
 * Return: 0; -EINVAL, or without a ring; -EPERM for a writable or executable
 * mapping; -ENODEV, -ENOMEM.
 */
int sis8300_ring_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct sis8300_file *f = file->private_data;
	struct sis8300_ring *ring;
	int ret;

	if (vma->vm_flags & (VM_WRITE | VM_EXEC))
		return -EPERM;
	if (vma->vm_pgoff || !(vma->vm_flags & VM_MAYSHARE))
		return -EINVAL;
	if (READ_ONCE(f->sis->gone))
		return -ENODEV;
	compat_vm_forbid(vma, VM_MAYWRITE | VM_MAYEXEC);
	guard(mutex)(&f->lock);
	ring = f->ring;
	if (!ring || vma->vm_end - vma->vm_start != (u64)ring->buffers * ring->stride)
		return -EINVAL;
	ret = sis8300_ring_insert(ring, vma);
	if (ret)
		return ret;
	vma->vm_private_data = ring;
	vma->vm_ops = &sis8300_vm_ops;
	sis8300_vm_open(vma);
	return 0;
}

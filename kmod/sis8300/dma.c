// SPDX-License-Identifier: GPL-2.0-only
/*
 * The DMA engines. The board accepts one block at a time, so the driver has a queue
 * of blocks for both directions. The interrupt of one block starts the next one.
 */
#include "internal.h"

#define SIS8300_DMA_TIMEOUT_MAX_MS	60000u	/* no signal ends a wait for a DMA */

static u64 sis8300_expected_ns(const struct sis8300 *sis, u32 bytes)
{
	return div64_u64((u64)bytes * NSEC_PER_SEC, sis->link_bytes_per_s);
}

/**
 * sis8300_timeout_ms() - the time after which a DMA has failed
 * @sis: the board
 * @bytes: of the DMA
 *
 * A fixed time and sixteen times the time on the slowest link, which several boards
 * may share.
 */
u32 sis8300_timeout_ms(const struct sis8300 *sis, u32 bytes)
{
	u32 fixed = min(READ_ONCE(sis8300_dma_timeout_ms), SIS8300_DMA_TIMEOUT_MAX_MS);
	u64 expected = sis8300_expected_ns(sis, bytes);

	return fixed + (u32)div_u64(16 * expected, NSEC_PER_MSEC);
}

static u32 sis8300_dma_control(const struct sis8300_dma *dma)
{
	return dma->to_card ? SIS8300_REG_WRITE_CONTROL : SIS8300_REG_READ_CONTROL;
}

/* Starts the next DMA of the queue if the engine is free. */
static void sis8300_dma_start(struct sis8300 *sis)
{
	struct sis8300_dma *dma;
	u64 begin;
	u32 base;

	if (sis->current_dma || sis->recovering || list_empty(&sis->queue))
		return;
	dma = list_first_entry(&sis->queue, struct sis8300_dma, node);
	list_del_init(&dma->node);
	base = dma->to_card ? SIS8300_REG_WRITE_LOW : SIS8300_REG_READ_LOW;
	begin = ktime_get_ns();
	sis8300_write(sis, base, lower_32_bits(dma->host));
	sis8300_write(sis, base + 1, upper_32_bits(dma->host));
	sis8300_write(sis, base + 2, dma->card);
	sis8300_write(sis, base + 3, dma->bytes);
	dma->start_ns = ktime_get_ns();
	sis8300_write(sis, base + 4, SIS8300_DMA_START);
	dma->expected_ns = sis8300_expected_ns(sis, dma->bytes);
	dma->file->stats.setup_ns += dma->start_ns - begin;
	sis->current_dma = dma;
	sis8300_tick_soon(sis, SIS8300_TICK_MS);
}

static void sis8300_dma_count(struct sis8300_dma *dma)
{
	struct sis8300_stats *stats = &dma->file->stats;
	u64 took = dma->end_ns - dma->start_ns;

	stats->lost_interrupts += dma->lost;
	if (dma->status == -ETIMEDOUT) {
		stats->timeouts++;
	} else if (dma->status == -EIO) {
		stats->short_dmas++;
	} else if (!dma->status) {
		stats->dmas++;
		stats->dma_bytes += dma->bytes;
		stats->dma_ns += took;
		stats->dma_ns_max = max(stats->dma_ns_max, took);
	}
}

static void sis8300_dma_end(struct sis8300 *sis, struct sis8300_dma *dma, int status, u64 now)
{
	/* An earlier interrupt may have waited for the lock while this DMA started and ended. */
	dma->end_ns = max(now, dma->start_ns);
	dma->status = status;
	if (dma->start_ns)
		sis8300_dma_count(dma);
	if (dma->done)
		dma->done(dma);
	wake_up_all(&sis->dma_wait);
}

/**
 * sis8300_dma_fail_all() - end all DMAs, queued or running
 * @sis: the board; sis->lock is held
 * @error: the error of all of them
 */
void sis8300_dma_fail_all(struct sis8300 *sis, int error)
{
	struct sis8300_dma *dma;
	u64 now = ktime_get_ns();
	LIST_HEAD(queue);

	list_splice_init(&sis->queue, &queue);
	dma = sis->current_dma;
	sis->current_dma = NULL;
	if (dma)
		sis8300_dma_end(sis, dma, error, now);
	/* The end of one DMA may remove others from the list. */
	while (!list_empty(&queue)) {
		dma = list_first_entry(&queue, struct sis8300_dma, node);
		list_del_init(&dma->node);
		sis8300_dma_end(sis, dma, error, now);
	}
}

/**
 * sis8300_dma_submit_locked() - queue a DMA
 * @sis: the board; sis->lock is held
 * @dma: filled in; belongs to the engine until its status changes
 *
 * Return: 0; -ENODEV, -EIO: it was not queued.
 */
int sis8300_dma_submit_locked(struct sis8300 *sis, struct sis8300_dma *dma)
{
	lockdep_assert_held(&sis->lock);
	dma->start_ns = 0;
	dma->end_ns = 0;
	dma->idle_ns = 0;
	dma->lost = false;
	if (sis->gone)
		dma->status = -ENODEV;
	else if (sis->failed)
		dma->status = -EIO;
	else
		dma->status = -EINPROGRESS;
	if (dma->status != -EINPROGRESS)
		return dma->status;
	list_add_tail(&dma->node, &sis->queue);
	sis8300_dma_start(sis);
	return 0;
}

/**
 * sis8300_dma_submit() - queue a DMA
 * @sis: the board
 * @dma: filled in
 *
 * Return: as sis8300_dma_submit_locked().
 */
int sis8300_dma_submit(struct sis8300 *sis, struct sis8300_dma *dma)
{
	guard(spinlock_irq)(&sis->lock);
	return sis8300_dma_submit_locked(sis, dma);
}

/**
 * sis8300_dma_cancel_locked() - cancel a DMA that has not begun
 * @sis: the board; sis->lock is held
 * @dma: that was submitted
 *
 * Return: false if it has begun: then the buffer is in use until the DMA ends.
 */
bool sis8300_dma_cancel_locked(struct sis8300 *sis, struct sis8300_dma *dma)
{
	lockdep_assert_held(&sis->lock);
	if (dma->status != -EINPROGRESS)
		return true;
	if (dma == sis->current_dma)
		return false;
	list_del_init(&dma->node);
	dma->status = -ECANCELED;
	return true;
}

/**
 * sis8300_dma_is_done() - whether the engine has finished with a DMA
 * @sis: the board
 * @dma: that was submitted
 */
bool sis8300_dma_is_done(struct sis8300 *sis, const struct sis8300_dma *dma)
{
	guard(spinlock_irqsave)(&sis->lock);
	return dma->status != -EINPROGRESS;
}

/**
 * sis8300_dma_finish() - wait for the end of a DMA
 * @sis: the board
 * @dma: that was submitted
 *
 * A signal does not end the wait, because the engine would continue to write. The
 * time-out ends it.
 *
 * Return: 0 or the DMA's error.
 */
int sis8300_dma_finish(struct sis8300 *sis, struct sis8300_dma *dma)
{
	wait_event(sis->dma_wait, sis8300_dma_is_done(sis, dma));
	return dma->status;
}

/*
 * The engine is idle: checks whether it has moved all bytes. The manuals describe no
 * error bit. Vendor software expects the source register to move with the data. That
 * is not proved for every firmware, so by default the check begins when the register
 * was first seen to move.
 */
static int sis8300_dma_check(struct sis8300 *sis, const struct sis8300_dma *dma)
{
	int check = READ_ONCE(sis8300_check_length);
	u32 from = dma->card, end = from + dma->bytes, at;

	if (dma->to_card || !check)
		return 0;
	at = sis8300_read(sis, SIS8300_REG_READ_FROM);
	if (at == end || (!at && end == sis->memory_bytes)) {
		sis->advances = true;
		return 0;
	}
	if (sis8300_check_dead_locked(sis, at))
		return -ENODEV;
	if (check < 0 && !sis->advances && (at <= from || at > end))
		return 0;
	dev_warn_ratelimited(&sis->pdev->dev, "DMA of 0x%x bytes from 0x%x stopped at 0x%x\n",
			     dma->bytes, from, at);
	return -EIO;
}

static void sis8300_dma_complete(struct sis8300 *sis, u64 now)
{
	struct sis8300_dma *dma = sis->current_dma;
	int status = sis8300_dma_check(sis, dma);

	/* Lost just now: it has ended with all others. */
	if (sis->gone)
		return;
	sis->current_dma = NULL;
	/* First start the next one: the link must not be idle. */
	sis8300_dma_start(sis);
	sis8300_dma_end(sis, dma, status, now);
}

/**
 * sis8300_dma_interrupt() - an engine signals its end
 * @sis: the board; sis->lock is held
 * @now: when the interrupt came
 */
void sis8300_dma_interrupt(struct sis8300 *sis, u64 now)
{
	struct sis8300_dma *dma = sis->current_dma;
	u32 control;

	/* An engine that was reset is idle too: sis8300_dma_recover() ends its DMA. */
	if (!dma || sis->recovering)
		return;
	/* The interrupt may be a late one, of a DMA whose end the tick has found. */
	control = sis8300_read(sis, sis8300_dma_control(dma));
	if (!sis8300_check_dead_locked(sis, control) && !(control & SIS8300_DMA_RUNNING))
		sis8300_dma_complete(sis, now);
}

/**
 * sis8300_dma_tick() - find a DMA that hangs, or whose interrupt was lost
 * @sis: the board; sis->lock is held
 *
 * Return: true while it has to be called again.
 */
bool sis8300_dma_tick(struct sis8300 *sis)
{
	struct sis8300_dma *dma = sis->current_dma;
	u64 now = ktime_get_ns(), took;
	u32 control;

	if (!dma)
		return false;
	took = now - dma->start_ns;
	if (took < dma->expected_ns + SIS8300_TICK_MS * NSEC_PER_MSEC)
		return true;
	control = sis8300_read(sis, sis8300_dma_control(dma));
	if (sis8300_check_dead_locked(sis, control))
		return false;
	if (control & SIS8300_DMA_RUNNING) {
		dma->idle_ns = 0;
		if (took > (u64)sis8300_timeout_ms(sis, dma->bytes) * NSEC_PER_MSEC)
			sis->recovering = true;
		return true;
	}
	if (!dma->idle_ns) {
		dma->idle_ns = now;
	} else if (now - dma->idle_ns >= SIS8300_GRACE_NS) {
		dma->lost = true;
		sis8300_count_missed(sis, dma->to_card ? SIS8300_IRQ_WRITE : SIS8300_IRQ_READ);
		sis8300_dma_complete(sis, now);
	}
	return true;
}

/**
 * sis8300_dma_wait_idle() - wait a tenth of a second at most until both engines rest
 * @sis: the board, whose registers stay: at probe, from the tick or from sis8300_stop()
 *
 * Return: whether they rest; false at once for a board that is gone and does not answer.
 */
bool sis8300_dma_wait_idle(struct sis8300 *sis)
{
	u32 reads, writes, i;

	for (i = 0; i < 100; i++) {
		reads = sis8300_read(sis, SIS8300_REG_READ_CONTROL);
		writes = sis8300_read(sis, SIS8300_REG_WRITE_CONTROL);
		if (!((reads | writes) & SIS8300_DMA_RUNNING))
			return true;
		if (reads == U32_MAX && READ_ONCE(sis->gone))
			return false;
		usleep_range(1000, 1500);
	}
	return false;
}

/**
 * sis8300_dma_halt() - stop a transfer that an earlier driver or kernel left
 * @sis: the board, at probe and not a bus master yet
 *
 * Its memory may be in other use by now.
 *
 * Return: 0, or -EBUSY if an engine does not stop.
 */
int sis8300_dma_halt(struct sis8300 *sis)
{
	u32 running;

	/* An acquisition that ends later must not start a DMA. */
	sis8300_write(sis, SIS8300_REG_CHAIN, 0);
	sis8300_write(sis, SIS8300_REG_CONTROL, SIS8300_CONTROL_RESET);
	running = sis8300_read(sis, SIS8300_REG_READ_CONTROL) |
		  sis8300_read(sis, SIS8300_REG_WRITE_CONTROL);
	if (running & SIS8300_DMA_RUNNING)
		sis8300_write(sis, SIS8300_REG_RESET, SIS8300_RESET_ALL);
	return sis8300_dma_wait_idle(sis) ? 0 : -EBUSY;
}

/**
 * sis8300_dma_recover() - reset a board whose engine hangs
 * @sis: the board, with `recovering` set
 *
 * The board is no bus master meanwhile, so that it cannot write to a buffer that is
 * freed. The manuals describe no way to stop an engine; only the reset is known to
 * stop it. The reset also clears the acquisition's settings: the next arming writes
 * them again.
 */
void sis8300_dma_recover(struct sis8300 *sis)
{
	bool idle;

	spin_lock_irq(&sis->lock);
	/* Under the lock: a disconnection writes the same register (INTx). */
	pci_clear_master(sis->pdev);
	if (!sis->gone) {
		sis8300_write(sis, SIS8300_REG_CONTROL, SIS8300_CONTROL_RESET);
		sis8300_write(sis, SIS8300_REG_RESET, SIS8300_RESET_ALL);
	}
	spin_unlock_irq(&sis->lock);
	idle = sis8300_dma_wait_idle(sis);
	spin_lock_irq(&sis->lock);
	/* The code that sets `gone` clears the bus master bit afterwards. */
	if (!sis->gone) {
		if (idle)
			pci_set_master(sis->pdev);
		dev_warn_ratelimited(&sis->pdev->dev, "a DMA hung: the board was reset\n");
		if (!idle)
			dev_err(&sis->pdev->dev, "the engine still runs: no DMA until it is bound anew\n");
		sis->failed = !idle;
		sis8300_init_registers(sis);
		sis8300_acq_reset(sis);
		sis8300_dma_fail_all(sis, -ETIMEDOUT);
		sis->recovering = false;
		sis8300_dma_start(sis);
	}
	spin_unlock_irq(&sis->lock);
}

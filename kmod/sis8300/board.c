// SPDX-License-Identifier: GPL-2.0-only
/*
 * What all parts need of the board: its presence, its memory for DMA, its interrupt,
 * and the tick, which finds ends whose interrupt is missing.
 */
#include "internal.h"

#define SIS8300_MISSED_MAX	8	/* missed in a row: the interrupt does not work */

/**
 * sis8300_enter() - keep the device bound, with its registers and mappings
 * @sis: the board
 *
 * Return: 0: the caller has to call sis8300_leave(); -ENODEV if the board is gone.
 */
int sis8300_enter(struct sis8300 *sis)
{
	down_read(&sis->hw);
	if (!READ_ONCE(sis->gone))
		return 0;
	up_read(&sis->hw);
	return -ENODEV;
}

/**
 * sis8300_leave() - the end of sis8300_enter()
 * @sis: the board
 */
void sis8300_leave(struct sis8300 *sis)
{
	up_read(&sis->hw);
}

/**
 * sis8300_setup_begin() - lock the acquisition's setup, and sis8300_enter()
 * @sis: the board
 *
 * Return: 0: the caller has to call sis8300_setup_end(); -EINTR, -ENODEV.
 */
int sis8300_setup_begin(struct sis8300 *sis)
{
	int ret;

	if (mutex_lock_interruptible(&sis->setup_lock))
		return -EINTR;
	ret = sis8300_enter(sis);
	if (ret)
		mutex_unlock(&sis->setup_lock);
	return ret;
}

/**
 * sis8300_setup_end() - the end of sis8300_setup_begin()
 * @sis: the board
 */
void sis8300_setup_end(struct sis8300 *sis)
{
	sis8300_leave(sis);
	mutex_unlock(&sis->setup_lock);
}

/**
 * sis8300_disconnect_locked() - the board is gone for good
 * @sis: the board; sis->lock is held
 *
 * Wakes all tasks that wait for it. The engine may still run: no buffer may be freed
 * before sis8300_stop().
 */
void sis8300_disconnect_locked(struct sis8300 *sis)
{
	lockdep_assert_held(&sis->lock);
	if (sis->gone)
		return;
	WRITE_ONCE(sis->gone, true);
	/*
	 * An emulated INTx pin may stay asserted after the board has deasserted it: QEMU
	 * waits for a read of one of the board's registers, which no longer comes.
	 */
	if (!sis->is_msi)
		pci_intx(sis->pdev, 0);
	sis8300_dma_fail_all(sis, -ENODEV);
	if (sis->ring)
		sis8300_ring_fail(sis->ring, -ENODEV);
	if (sis->acq.state == SIS8300_ACQ_ARMED)
		sis->acq.state = SIS8300_ACQ_NONE;
	sis->acq.owner = NULL;
	sis->acq.ring = NULL;
	wake_up_all(&sis->dma_wait);
	wake_up_all(&sis->wait);
}

/**
 * sis8300_check_dead_locked() - disconnect a board that does not answer
 * @sis: the board; sis->lock is held
 * @value: the value that was read from a register
 *
 * Other registers may hold all-ones, but the module's number never does.
 *
 * Return: true if the board is gone.
 */
bool sis8300_check_dead_locked(struct sis8300 *sis, u32 value)
{
	if (value != U32_MAX || sis8300_read(sis, SIS8300_REG_ID) != U32_MAX)
		return false;
	if (!sis->gone)
		dev_warn(&sis->pdev->dev,
			 "does not answer (all-ones): out of use until it is bound anew\n");
	sis8300_disconnect_locked(sis);
	return true;
}

/**
 * sis8300_check_dead() - as sis8300_check_dead_locked(), without the lock
 * @sis: the board
 * @value: the value that was read from a register
 *
 * Return: true if the board is gone.
 */
bool sis8300_check_dead(struct sis8300 *sis, u32 value)
{
	if (value != U32_MAX)
		return false;
	guard(spinlock_irq)(&sis->lock);
	return sis8300_check_dead_locked(sis, value);
}

/**
 * sis8300_identify() - read which board it is
 * @sis: the board
 *
 * Return: 0, or -ENODEV.
 */
int sis8300_identify(struct sis8300 *sis)
{
	struct pci_dev *pdev = sis->pdev;
	u32 board;

	sis->module_id = sis8300_read(sis, SIS8300_REG_ID);
	board = FIELD_GET(SIS8300_ID_BOARD, sis->module_id);
	if (board < SIS8300_ID_8300 || board > SIS8300_ID_KU) {
		pci_err(pdev, "not bound: module id 0x%08x is no SIS8300\n", sis->module_id);
		return -ENODEV;
	}
	sis->serial = sis8300_read(sis, SIS8300_REG_SERIAL);
	sis->options = sis8300_read(sis, SIS8300_REG_OPTIONS);
	sis->is_first = board == SIS8300_ID_8300;
	sis->is_ku = board == SIS8300_ID_KU;
	if (!sis->is_first)
		sis->memory_bytes = SZ_2G;
	else if (sis->options & SIS8300_OPTION_1GIB)
		sis->memory_bytes = SZ_1G;
	else
		sis->memory_bytes = SZ_512M;
	return 0;
}

/**
 * sis8300_write_test_mode() - let DMA write to the card's memory, or not
 * @sis: the board, with sis->is_written set or not
 *
 * write() needs it. The board allows it in test mode only, and only with few
 * outstanding requests.
 */
void sis8300_write_test_mode(struct sis8300 *sis)
{
	sis8300_write(sis, SIS8300_REG_WRITE_REQUESTS,
		      sis->is_written ? SIS8300_REQUESTS_FEW : SIS8300_REQUESTS_DEFAULT);
	sis8300_write(sis, SIS8300_REG_MEMORY_TEST, sis->is_written ? SIS8300_MEMORY_TEST_ON : 0);
}

/**
 * sis8300_init_registers() - stop everything, then enable the board's interrupts
 * @sis: the board
 */
void sis8300_init_registers(struct sis8300 *sis)
{
	sis8300_write(sis, SIS8300_REG_IRQ_ENABLE, SIS8300_IRQ_ALL << 16);
	sis8300_write(sis, SIS8300_REG_CHAIN, 0);
	sis8300_write(sis, SIS8300_REG_CONTROL, SIS8300_CONTROL_RESET);
	/* A program may have left it set. */
	sis8300_write(sis, SIS8300_REG_READ_SWAP, 0);
	/* A board that was reset during a write() accepts the rest of it. */
	sis8300_write_test_mode(sis);
	sis8300_write(sis, SIS8300_REG_IRQ_CLEAR, SIS8300_IRQ_ALL);
	sis8300_write(sis, SIS8300_REG_IRQ_ENABLE, SIS8300_IRQ_ALL);
}

/**
 * sis8300_stop() - disconnect the board, and stop its DMA
 * @sis: the board, which does not write to the host's memory after this
 *
 * An engine cannot be stopped, so this waits for its end. After a tenth of a second,
 * the cleared bus master bit keeps the rest from the host.
 */
void sis8300_stop(struct sis8300 *sis)
{
	spin_lock_irq(&sis->lock);
	sis8300_disconnect_locked(sis);
	spin_unlock_irq(&sis->lock);
	sis8300_write(sis, SIS8300_REG_IRQ_ENABLE, SIS8300_IRQ_ALL << 16);
	sis8300_write(sis, SIS8300_REG_CHAIN, 0);
	sis8300_write(sis, SIS8300_REG_CONTROL, SIS8300_CONTROL_RESET);
	sis8300_dma_wait_idle(sis);
	pci_clear_master(sis->pdev);
}

/**
 * sis8300_buffer_alloc() - contiguous memory, mapped for the board
 * @sis: the board
 * @buffer: to be filled in
 * @bytes: its size, a multiple of the page size
 * @direction: of its DMA
 * @gfp: further flags
 *
 * Streaming mappings, because user space maps the pages and they may outlive the
 * binding. Called in sis8300_enter(), or from probe().
 *
 * Return: 0 or -ENOMEM.
 */
int sis8300_buffer_alloc(struct sis8300 *sis, struct sis8300_buffer *buffer, size_t bytes,
			 enum dma_data_direction direction, gfp_t gfp)
{
	struct device *dev = &sis->pdev->dev;

	if (dma_get_mask(dev) < DMA_BIT_MASK(64))
		gfp |= GFP_DMA32;
	/* Zeroed: user space can see it before the board has filled it. */
	buffer->memory = alloc_pages_exact(bytes, GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN | gfp);
	if (!buffer->memory)
		return -ENOMEM;
	buffer->dma = dma_map_single(dev, buffer->memory, bytes, direction);
	if (dma_mapping_error(dev, buffer->dma)) {
		free_pages_exact(buffer->memory, bytes);
		buffer->memory = NULL;
		return -ENOMEM;
	}
	buffer->bytes = bytes;
	buffer->direction = direction;
	buffer->is_mapped = true;
	guard(mutex)(&sis->buffers_lock);
	list_add_tail(&buffer->node, &sis->buffers);
	return 0;
}

static void sis8300_buffer_unmap(struct sis8300 *sis, struct sis8300_buffer *buffer)
{
	dma_unmap_single(&sis->pdev->dev, buffer->dma, buffer->bytes, buffer->direction);
	buffer->is_mapped = false;
	list_del(&buffer->node);
}

/**
 * sis8300_buffer_unmap_all() - unmap all memory when the board leaves
 * @sis: the board, stopped
 *
 * Nobody uses registers or mappings when this returns.
 */
void sis8300_buffer_unmap_all(struct sis8300 *sis)
{
	struct sis8300_buffer *buffer, *next;

	guard(rwsem_write)(&sis->hw);
	mutex_lock(&sis->buffers_lock);
	list_for_each_entry_safe(buffer, next, &sis->buffers, node)
		sis8300_buffer_unmap(sis, buffer);
	mutex_unlock(&sis->buffers_lock);
}

/**
 * sis8300_buffer_free() - free memory
 * @sis: the board
 * @buffer: from sis8300_buffer_alloc(), without a DMA under way; or zeroes
 */
void sis8300_buffer_free(struct sis8300 *sis, struct sis8300_buffer *buffer)
{
	if (!buffer->memory)
		return;
	down_read(&sis->hw);
	if (buffer->is_mapped) {
		/*
		 * A DMA may have been under way: it must not reach this memory any more. Under
		 * the lock: a disconnection writes the same register (INTx).
		 */
		spin_lock_irq(&sis->lock);
		if (sis->gone)
			pci_clear_master(sis->pdev);
		spin_unlock_irq(&sis->lock);
		mutex_lock(&sis->buffers_lock);
		sis8300_buffer_unmap(sis, buffer);
		mutex_unlock(&sis->buffers_lock);
	}
	up_read(&sis->hw);
	free_pages_exact(buffer->memory, buffer->bytes);
	buffer->memory = NULL;
}

/**
 * sis8300_buffer_for_cpu() - make visible what the board wrote
 * @sis: the board
 * @buffer: the memory
 * @bytes: from its start
 */
void sis8300_buffer_for_cpu(struct sis8300 *sis, struct sis8300_buffer *buffer, size_t bytes)
{
	guard(rwsem_read)(&sis->hw);
	if (buffer->is_mapped)
		dma_sync_single_for_cpu(&sis->pdev->dev, buffer->dma, bytes, buffer->direction);
}

/**
 * sis8300_buffer_for_device() - let the board write or read from now on
 * @sis: the board
 * @buffer: the memory
 * @bytes: from its start
 */
void sis8300_buffer_for_device(struct sis8300 *sis, struct sis8300_buffer *buffer, size_t bytes)
{
	guard(rwsem_read)(&sis->hw);
	if (buffer->is_mapped)
		dma_sync_single_for_device(&sis->pdev->dev, buffer->dma, bytes, buffer->direction);
}

/**
 * sis8300_count_missed() - count an end that was found without its interrupt
 * @sis: the board; sis->lock is held
 * @bit: the missing interrupt
 *
 * The interrupt may be lost or late. A board whose interrupts never come is reported
 * once.
 */
void sis8300_count_missed(struct sis8300 *sis, u32 bit)
{
	lockdep_assert_held(&sis->lock);
	/* While the bit is set, the board does not send the next message. */
	sis8300_write(sis, SIS8300_REG_IRQ_CLEAR, bit);
	if (sis->is_msi)
		sis8300_write(sis, SIS8300_REG_IRQ_REFRESH, 1);
	if (++sis->missed == SIS8300_MISSED_MAX)
		dev_warn(&sis->pdev->dev,
			 "its interrupts do not arrive: ends are found by looking, late\n");
}

/*
 * An interrupt while the board is out of use. A board that answers again may assert
 * its pin. Nobody would deassert it, and the other users of the line could not work.
 */
static irqreturn_t sis8300_interrupt_of_lost(struct sis8300 *sis)
{
	if (sis->is_msi)
		return IRQ_HANDLED;
	/* A board that is not there seems to assert its pin: it reads all-ones. */
	if (pci_device_is_present(sis->pdev) && pci_check_and_mask_intx(sis->pdev))
		return IRQ_HANDLED;
	return IRQ_NONE;
}

/**
 * sis8300_interrupt() - the board's interrupt
 * @irq: its number
 * @data: the board
 *
 * Return: IRQ_NONE if the line is shared and the interrupt is not the board's.
 */
irqreturn_t sis8300_interrupt(int irq, void *data)
{
	struct sis8300 *sis = data;
	irqreturn_t none = sis->is_msi ? IRQ_HANDLED : IRQ_NONE;
	u64 now = ktime_get_ns();
	u32 status;

	guard(spinlock_irqsave)(&sis->lock);
	if (sis->gone)
		return sis8300_interrupt_of_lost(sis);
	status = sis8300_read(sis, SIS8300_REG_IRQ_STATUS);
	status = sis8300_check_dead_locked(sis, status) ? 0 : status & SIS8300_IRQ_ALL;
	/* A line that is shared may have come from another device. */
	if (status || sis->is_msi)
		sis->missed = 0;
	if (!status)
		return none;
	/* Before a new DMA starts, whose end must not be cleared. */
	sis8300_write(sis, SIS8300_REG_IRQ_CLEAR, status);
	sis->interrupts++;
	if (status & (SIS8300_IRQ_READ | SIS8300_IRQ_WRITE))
		sis8300_dma_interrupt(sis, now);
	if (status & SIS8300_IRQ_DAQ && !sis->gone)
		sis8300_acq_interrupt(sis, now);
	if (status & SIS8300_IRQ_USER) {
		sis->events[SIS8300_WAIT_USER]++;
		wake_up_all(&sis->wait);
	}
	/* Messages report changes only: makes the board report what came after the status read. */
	if (sis->is_msi && !sis->gone)
		sis8300_write(sis, SIS8300_REG_IRQ_REFRESH, 1);
	return IRQ_HANDLED;
}

/**
 * sis8300_tick_soon() - schedule the tick
 * @sis: the board; sis->lock is held and the board not gone
 * @ms: from now at the latest; 0: at once
 *
 * A tick that is due earlier stays as it is.
 */
void sis8300_tick_soon(struct sis8300 *sis, unsigned int ms)
{
	unsigned long delay = msecs_to_jiffies(ms);

	lockdep_assert_held(&sis->lock);
	if (!ms || !delayed_work_pending(&sis->tick) ||
	    time_before(jiffies + delay, sis->tick.timer.expires))
		mod_delayed_work(sis8300_wq, &sis->tick, delay);
}

/**
 * sis8300_tick() - find ends whose interrupt is missing, and engines that hang
 * @work: the board's work
 *
 * Runs repeatedly while a DMA or an acquisition is under way.
 */
void sis8300_tick(struct work_struct *work)
{
	struct sis8300 *sis = container_of(to_delayed_work(work), struct sis8300, tick);
	u64 until = ktime_get_ns() + 2 * SIS8300_GRACE_NS;
	bool again = false;

	/* Bounded: firmware that signals all the time must not delay the time-out of a DMA. */
	while (sis8300_acq_is_flushing(sis) && ktime_get_ns() < until)
		usleep_range(10, 30);
	spin_lock_irq(&sis->lock);
	if (!sis->gone) {
		again = sis8300_dma_tick(sis);
		if (!sis->gone)
			again |= sis8300_acq_tick(sis);
		if (!sis->gone)
			again |= sis8300_ring_tick(sis, ktime_get_ns());
	}
	if (sis->recovering && !sis->gone) {
		spin_unlock_irq(&sis->lock);
		sis8300_dma_recover(sis);
		spin_lock_irq(&sis->lock);
		again = true;
	}
	if (again && !sis->gone)
		sis8300_tick_soon(sis, sis8300_acq_tick_ms(sis));
	spin_unlock_irq(&sis->lock);
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * read() and write(): card memory is copied through the board's own buffers. While
 * one chunk is copied to user space, the DMA of the next one runs.
 */
#include "internal.h"

#define SIS8300_PIECE_MIN	SZ_512K
#define SIS8300_TURN_PIECES	16	/* of a reader, before another one gets its turn */
#define SIS8300_WRITE_TURN_NS	(10 * NSEC_PER_MSEC)	/* of a writer: its DMAs are small */

/* A DMA of read(), and the part of it that the caller wants. */
struct sis8300_slot {
	struct sis8300_dma dma;
	struct sis8300_buffer *buffer;
	u32 skip;
	u32 take;
};

struct sis8300_reading {
	struct sis8300_file *f;
	char __user *to;
	u64 next;		/* card address of the next DMA */
	u64 end;
	u64 done;		/* bytes copied to user space */
	u32 piece;
	u32 depth;
	unsigned int head;	/* slots submitted since the start */
	unsigned int tail;	/* slots copied since the start */
	struct sis8300_slot slots[SIS8300_READ_SLOTS];
};

/**
 * sis8300_reader_lock() - reserve the board's buffers until sis8300_reader_unlock()
 * @sis: the board
 *
 * Return: 0; -EBUSY if a ring has the engine; -ENODEV, -ERESTARTSYS.
 */
int sis8300_reader_lock(struct sis8300 *sis)
{
	bool busy, gone;

	atomic_inc(&sis->readers);
	if (mutex_lock_interruptible(&sis->reader)) {
		atomic_dec(&sis->readers);
		return -ERESTARTSYS;
	}
	spin_lock_irq(&sis->lock);
	gone = sis->gone;
	busy = sis->ring;
	spin_unlock_irq(&sis->lock);
	if (!gone && !busy)
		return 0;
	mutex_unlock(&sis->reader);
	atomic_dec(&sis->readers);
	return gone ? -ENODEV : -EBUSY;
}

/**
 * sis8300_reader_unlock() - let the next reader in
 * @sis: the board
 */
void sis8300_reader_unlock(struct sis8300 *sis)
{
	mutex_unlock(&sis->reader);
	atomic_dec(&sis->readers);
}

/* An eighth of all: nothing overlaps the first DMA and the last copy, so they should be short. */
static u32 sis8300_piece(const struct sis8300 *sis, u64 bytes)
{
	if (READ_ONCE(sis8300_serial))
		return sis->chunk_bytes;
	return min_t(u64, max_t(u64, round_up(bytes / 8, SZ_64K), SIS8300_PIECE_MIN),
		     sis->chunk_bytes);
}

static int sis8300_submit_piece(struct sis8300_reading *r)
{
	struct sis8300_slot *slot = &r->slots[r->head % SIS8300_READ_SLOTS];
	struct sis8300 *sis = r->f->sis;
	u64 from = round_down(r->next, SIS8300_DMA_ALIGN);
	u64 to = min(round_up(r->end, SIS8300_DMA_ALIGN), from + r->piece);
	int ret;

	memset(&slot->dma, 0, sizeof(slot->dma));
	INIT_LIST_HEAD(&slot->dma.node);
	slot->buffer = &sis->chunks[r->head % SIS8300_READ_SLOTS];
	slot->skip = r->next - from;
	slot->take = min(to, r->end) - r->next;
	slot->dma.file = r->f;
	slot->dma.host = slot->buffer->dma;
	slot->dma.card = from;
	slot->dma.bytes = to - from;
	ret = sis8300_dma_submit(sis, &slot->dma);
	if (ret)
		return ret;
	r->next += slot->take;
	r->head++;
	return 0;
}

/* Waits for the oldest DMA and copies its bytes to user space. */
static int sis8300_copy_piece(struct sis8300_reading *r)
{
	struct sis8300_slot *slot = &r->slots[r->tail % SIS8300_READ_SLOTS];
	u64 begin = ktime_get_ns(), awake, mapped, copied, unmapped, wakeup;
	struct sis8300_stats *stats = &r->f->stats;
	struct sis8300 *sis = r->f->sis;
	unsigned long left;

	if (wait_event_interruptible(sis->dma_wait, sis8300_dma_is_done(sis, &slot->dma)))
		return -ERESTARTSYS;
	if (slot->dma.status)
		return slot->dma.status;
	awake = ktime_get_ns();
	sis8300_buffer_for_cpu(sis, slot->buffer, slot->dma.bytes);
	mapped = ktime_get_ns();
	left = copy_to_user(r->to + r->done, slot->buffer->memory + slot->skip, slot->take);
	copied = ktime_get_ns();
	sis8300_buffer_for_device(sis, slot->buffer, slot->dma.bytes);
	unmapped = ktime_get_ns();
	/* It may have ended while the piece before it was copied. */
	wakeup = awake - max(slot->dma.end_ns, begin);
	spin_lock_irq(&sis->lock);
	stats->wakeup_ns += wakeup;
	stats->wakeup_ns_max = max(stats->wakeup_ns_max, wakeup);
	stats->map_ns += mapped - awake + unmapped - copied;
	stats->copy_ns += copied - mapped;
	stats->user_bytes += left ? 0 : slot->take;
	spin_unlock_irq(&sis->lock);
	if (left)
		return -EFAULT;
	r->done += slot->take;
	r->tail++;
	return 0;
}

/* The engine uses no buffer of this reader when this returns. */
static void sis8300_drain(struct sis8300_reading *r)
{
	struct sis8300 *sis = r->f->sis;
	unsigned int i;

	spin_lock_irq(&sis->lock);
	for (i = r->tail; i != r->head; i++)
		sis8300_dma_cancel_locked(sis, &r->slots[i % SIS8300_READ_SLOTS].dma);
	spin_unlock_irq(&sis->lock);
	for (; r->tail != r->head; r->tail++)
		sis8300_dma_finish(sis, &r->slots[r->tail % SIS8300_READ_SLOTS].dma);
}

/* Reads until all is done, or until it is another reader's turn. */
static int sis8300_read_turn(struct sis8300_reading *r)
{
	struct sis8300 *sis = r->f->sis;
	unsigned int begin = r->head;
	int ret;

	for (;;) {
		while (r->head - r->tail < r->depth && r->next < r->end &&
		       (r->head - begin < SIS8300_TURN_PIECES || atomic_read(&sis->readers) == 1)) {
			ret = sis8300_submit_piece(r);
			if (ret)
				return ret;
		}
		if (r->head == r->tail)
			return 0;
		ret = sis8300_copy_piece(r);
		if (ret)
			return ret;
		if (signal_pending(current))
			return -ERESTARTSYS;
	}
}

static bool sis8300_is_aligned(loff_t position, size_t count)
{
	return !((position | count) & (SIS8300_ALIGN - 1));
}

/**
 * sis8300_read_card() - copy card memory to user space
 * @file: the file
 * @to: destination
 * @count: bytes, a multiple of SIS8300_ALIGN
 * @position: address in the card's memory, a multiple of SIS8300_ALIGN; moves behind what was read
 *
 * Return: the bytes that were read, fewer after an error or a signal; 0 at the end
 * of the memory; -EBUSY, -EFAULT, -EINVAL, -EIO, -ENODEV, -ERESTARTSYS, -ETIMEDOUT.
 */
ssize_t sis8300_read_card(struct file *file, char __user *to, size_t count, loff_t *position)
{
	struct sis8300_file *f = file->private_data;
	struct sis8300 *sis = f->sis;
	struct sis8300_reading *r;
	u64 card = *position;
	ssize_t done;
	int ret = 0;

	if (!sis8300_is_aligned(*position, count))
		return -EINVAL;
	if (READ_ONCE(sis->gone))
		return -ENODEV;
	if (card >= sis->memory_bytes || !count)
		return 0;
	r = kzalloc(sizeof(*r), GFP_KERNEL);
	if (!r)
		return -ENOMEM;
	r->f = f;
	r->to = to;
	r->next = card;
	r->end = min_t(u64, card + count, sis->memory_bytes);
	r->piece = sis8300_piece(sis, r->end - card);
	r->depth = READ_ONCE(sis8300_serial) ? 1 : SIS8300_READ_SLOTS;
	while (!ret && r->next < r->end) {
		ret = sis8300_reader_lock(sis);
		if (ret)
			break;
		ret = sis8300_read_turn(r);
		sis8300_drain(r);
		sis8300_reader_unlock(sis);
	}
	done = r->done;
	*position += done;
	kfree(r);
	return done ?: ret;
}

struct sis8300_writing {
	struct sis8300_file *f;
	const char __user *from;
	u64 at;
	u64 end;
};

static int sis8300_run_dma(struct sis8300_file *f, struct sis8300_buffer *buffer, u64 card,
			   u32 bytes)
{
	struct sis8300_dma dma = {
		.node = LIST_HEAD_INIT(dma.node),
		.file = f,
		.host = buffer->dma,
		.card = card,
		.bytes = bytes,
		.to_card = buffer->direction == DMA_TO_DEVICE,
	};
	int ret;

	ret = sis8300_dma_submit(f->sis, &dma);
	return ret ?: sis8300_dma_finish(f->sis, &dma);
}

/* Reads a block of which only a part will be written. */
static int sis8300_read_block(struct sis8300_writing *w, u64 block)
{
	struct sis8300 *sis = w->f->sis;
	struct sis8300_buffer *chunk = &sis->chunks[0];
	int ret;

	ret = sis8300_run_dma(w->f, chunk, block, SIS8300_DMA_ALIGN);
	if (ret)
		return ret;
	sis8300_buffer_for_cpu(sis, chunk, SIS8300_DMA_ALIGN);
	memcpy(sis->write_buffer.memory, chunk->memory, SIS8300_DMA_ALIGN);
	sis8300_buffer_for_device(sis, chunk, SIS8300_DMA_ALIGN);
	return 0;
}

/* The engine accepts only powers of two. */
static u32 sis8300_write_piece(u64 bytes)
{
	u32 most = clamp_t(u32, READ_ONCE(sis8300_write_bytes), SIS8300_DMA_ALIGN,
			   SIS8300_WRITE_MAX);

	return rounddown_pow_of_two(min_t(u64, bytes, most));
}

static int sis8300_write_one(struct sis8300_writing *w)
{
	struct sis8300 *sis = w->f->sis;
	struct sis8300_buffer *buffer = &sis->write_buffer;
	u64 block = round_down(w->at, SIS8300_DMA_ALIGN);
	u32 skip = w->at - block, bytes = SIS8300_DMA_ALIGN, take;
	int ret = 0;

	if (skip || w->end - w->at < SIS8300_DMA_ALIGN) {
		take = min_t(u64, bytes - skip, w->end - w->at);
		ret = sis8300_read_block(w, block);
	} else {
		bytes = sis8300_write_piece(w->end - w->at);
		take = bytes;
	}
	if (ret)
		return ret;
	sis8300_buffer_for_cpu(sis, buffer, bytes);
	if (copy_from_user(buffer->memory + skip, w->from, take))
		return -EFAULT;
	sis8300_buffer_for_device(sis, buffer, bytes);
	ret = sis8300_run_dma(w->f, buffer, block, bytes);
	if (ret)
		return ret;
	w->from += take;
	w->at += take;
	guard(spinlock_irq)(&sis->lock);
	w->f->stats.user_bytes += take;
	return 0;
}

static int sis8300_set_test_mode(struct sis8300 *sis, bool open)
{
	guard(spinlock_irq)(&sis->lock);
	if (sis->gone)
		return -ENODEV;
	if (open && sis->acq.owner)
		return -EBUSY;
	sis->is_written = open;
	sis8300_write_test_mode(sis);
	return 0;
}

/* Writes until all is done, or until it is another's turn. */
static int sis8300_write_turn(struct sis8300_writing *w)
{
	u64 end = ktime_get_ns() + SIS8300_WRITE_TURN_NS;
	struct sis8300 *sis = w->f->sis;
	int ret;

	ret = sis8300_set_test_mode(sis, true);
	if (ret)
		return ret;
	while (!ret && w->at < w->end &&
	       (ktime_get_ns() < end || atomic_read(&sis->readers) == 1)) {
		ret = sis8300_write_one(w);
		if (!ret && signal_pending(current))
			ret = -ERESTARTSYS;
	}
	sis8300_set_test_mode(sis, false);
	return ret;
}

/**
 * sis8300_write_card() - copy user space to card memory
 * @file: the file
 * @from: source
 * @count: bytes, a multiple of SIS8300_ALIGN
 * @position: address in the card's memory, a multiple of SIS8300_ALIGN; moves behind what was
 *	written
 *
 * Return: the bytes that were written, fewer after an error or a signal; -ENOSPC
 * at the end of the memory; -EBUSY, -EFAULT, -EINVAL, -EIO, -ENODEV, -ERESTARTSYS,
 * -ETIMEDOUT.
 */
ssize_t sis8300_write_card(struct file *file, const char __user *from, size_t count,
			   loff_t *position)
{
	struct sis8300_writing w = { .f = file->private_data, .from = from, .at = *position };
	struct sis8300 *sis = w.f->sis;
	u64 card = *position;
	int ret = 0;

	if (!sis8300_is_aligned(*position, count))
		return -EINVAL;
	if (READ_ONCE(sis->gone))
		return -ENODEV;
	if (!count)
		return 0;
	if (card >= sis->memory_bytes)
		return -ENOSPC;
	w.end = min_t(u64, card + count, sis->memory_bytes);
	while (!ret && w.at < w.end) {
		ret = sis8300_reader_lock(sis);
		if (ret)
			break;
		ret = sis8300_write_turn(&w);
		sis8300_reader_unlock(sis);
	}
	*position = w.at;
	return w.at - card ?: ret;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * The ESS driver's ioctls: registers, and waiting for the two interrupts. Each file
 * remembers the last event that it has seen, so that it does not lose an event
 * between arming and waiting.
 */
#include "internal.h"

/**
 * sis8300_reg_read() - read a register
 * @f: the file
 * @reg: its number; its value is filled in
 *
 * Return: 0; -EINVAL outside BAR 0; -ENODEV.
 */
int sis8300_reg_read(struct sis8300_file *f, struct sis8300_reg *reg)
{
	struct sis8300 *sis = f->sis;
	int ret;

	if (reg->offset >= sis->words)
		return -EINVAL;
	ret = sis8300_enter(sis);
	if (ret)
		return ret;
	reg->data = sis8300_read(sis, reg->offset);
	if (sis8300_check_dead(sis, reg->data))
		ret = -ENODEV;
	sis8300_leave(sis);
	return ret;
}

/*
 * Registers of the driver. With the DMA registers, or with new firmware, user space
 * could read and write all memory of the machine. With interrupts, the link's clock
 * or a reset it could disturb all other users of the board.
 */
static bool sis8300_is_reserved(u32 word)
{
	switch (word) {
	case SIS8300_REG_JTAG:
	case SIS8300_REG_LINK_CLOCK ... SIS8300_REG_FLASH:
	case SIS8300_REG_RESET:
	case SIS8300_REG_READ_LOW ... SIS8300_REG_READ_CONTROL:
	case SIS8300_REG_WRITE_LOW ... SIS8300_REG_CHAIN:
	case SIS8300_REG_IRQ_ENABLE:
	case SIS8300_REG_IRQ_CLEAR:
		return true;
	default:
		return false;
	}
}

static bool sis8300_may_write_reserved(void)
{
	return sis8300_unsafe_registers && capable(CAP_SYS_RAWIO) &&
	       !security_locked_down(LOCKDOWN_PCI_ACCESS);
}

/* Registers that an acquisition depends on. */
static bool sis8300_is_setup(u32 word)
{
	switch (word) {
	case SIS8300_REG_SAMPLE ... SIS8300_REG_FRONT:
	case SIS8300_REG_CLOCK_MUX ... SIS8300_REG_AD9510:
	case SIS8300_REG_ADC_SPI:
	case SIS8300_REG_START(0) ... SIS8300_REG_PRETRIGGER:
		return true;
	default:
		return false;
	}
}

/* Registers that the DMA of all files depends on. */
static bool sis8300_is_shared(u32 word)
{
	return word == SIS8300_REG_READ_SWAP || word == SIS8300_REG_MEMORY_TEST;
}

/* In sis8300_setup_begin(). */
static int sis8300_write_checked(struct sis8300_file *f, u32 word, u32 value)
{
	bool is_shared = sis8300_is_shared(word), is_setup = sis8300_is_setup(word);
	struct sis8300 *sis = f->sis;

	if (word == SIS8300_REG_CONTROL)
		return sis8300_arm_raw(f, value);
	guard(spinlock_irq)(&sis->lock);
	if (sis->gone)
		return -ENODEV;
	if (((is_shared || is_setup) && sis8300_acq_is_others(f)) ||
	    (is_shared && (sis->is_written || sis->ring || atomic_read(&sis->readers))))
		return -EBUSY;
	sis8300_write(sis, word, value);
	if (is_setup)
		sis->is_set = false;
	if (word >= SIS8300_REG_CLOCK_MUX && word <= SIS8300_REG_AD9510)
		sis->clock = SIS8300_CLOCK_KEEP;
	return 0;
}

/**
 * sis8300_reg_write() - write a register
 * @f: the file
 * @reg: its number and the value
 *
 * Return: 0; -EINVAL outside BAR 0; -EPERM for registers of the driver; -EBUSY
 * while another file's acquisition or DMA depends on the register; -EINTR, -ENODEV.
 */
int sis8300_reg_write(struct sis8300_file *f, const struct sis8300_reg *reg)
{
	struct sis8300 *sis = f->sis;
	int ret;

	if (reg->offset >= sis->words)
		return -EINVAL;
	if (sis8300_is_reserved(reg->offset) && !sis8300_may_write_reserved())
		return -EPERM;
	ret = sis8300_setup_begin(sis);
	if (ret)
		return ret;
	ret = sis8300_write_checked(f, reg->offset, reg->data);
	sis8300_setup_end(sis);
	return ret;
}

/* Return: false, with SIS8300_WAIT_TIMEOUT, while no event has come. */
static bool sis8300_take_event(struct sis8300_file *f, struct sis8300_wait *wait, u64 releases)
{
	struct sis8300 *sis = f->sis;

	wait->status = SIS8300_WAIT_TIMEOUT;
	guard(spinlock_irq)(&sis->lock);
	if (sis->events[wait->type] != f->events_seen[wait->type]) {
		f->events_seen[wait->type] = sis->events[wait->type];
		wait->status = SIS8300_WAIT_OK;
	} else if (sis->releases[wait->type] != releases || sis->gone) {
		wait->status = SIS8300_WAIT_RELEASED;
	}
	return wait->status != SIS8300_WAIT_TIMEOUT;
}

/**
 * sis8300_wait_event() - wait for an interrupt that this file has not seen
 * @f: the file
 * @wait: type and timeout; the status is filled in
 *
 * Return: 0 for every status; -EINVAL, -EINTR; -ENODEV if the board was gone
 * before.
 */
int sis8300_wait_event(struct sis8300_file *f, struct sis8300_wait *wait)
{
	struct sis8300 *sis = f->sis;
	u64 releases;
	long left;

	if (wait->type >= SIS8300_EVENTS)
		return -EINVAL;
	if (READ_ONCE(sis->gone))
		return -ENODEV;
	spin_lock_irq(&sis->lock);
	releases = sis->releases[wait->type];
	spin_unlock_irq(&sis->lock);
	left = wait->timeout_ms ? msecs_to_jiffies(wait->timeout_ms) : MAX_SCHEDULE_TIMEOUT;
	left = wait_event_interruptible_timeout(sis->wait, sis8300_take_event(f, wait, releases),
						left);
	return left < 0 ? -EINTR : 0;
}

/**
 * sis8300_release_event() - wake all tasks that wait for an interrupt
 * @f: the file
 * @wait: its type
 *
 * Return: 0; -EINVAL, -ENODEV.
 */
int sis8300_release_event(struct sis8300_file *f, const struct sis8300_wait *wait)
{
	struct sis8300 *sis = f->sis;

	if (wait->type >= SIS8300_EVENTS)
		return -EINVAL;
	if (READ_ONCE(sis->gone))
		return -ENODEV;
	spin_lock_irq(&sis->lock);
	sis->releases[wait->type]++;
	spin_unlock_irq(&sis->lock);
	wake_up_all(&sis->wait);
	return 0;
}

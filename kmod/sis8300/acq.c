// SPDX-License-Identifier: GPL-2.0-only
/*
 * Acquisitions: setup, arming and end. An acquisition has ended when sampling has
 * stopped and the samples have reached the card's memory. An interrupt alone is not
 * enough.
 */
#include "internal.h"

#define SIS8300_STOP_TIMEOUT_US	100000
#define SIS8300_UNSIGNALLED_MAX	3	/* ends without interrupt: this firmware sends none */
#define SIS8300_BUSY		(SIS8300_STATUS_SAMPLING | SIS8300_STATUS_ARMED | \
				 SIS8300_STATUS_LOGIC_BUSY | SIS8300_STATUS_FIFO)

/**
 * sis8300_block_samples() - the unit of an acquisition's length
 * @sis: the board
 */
u32 sis8300_block_samples(const struct sis8300 *sis)
{
	/* The KU stores pairs of blocks, and only from even ones. */
	return sis->is_ku ? 2 * SIS8300_BLOCK_SAMPLES : SIS8300_BLOCK_SAMPLES;
}

static int sis8300_check_trigger(const struct sis8300 *sis, const struct sis8300_setup *s)
{
	u32 lines = 0;

	switch (s->trigger) {
	case SIS8300_TRIGGER_NOW:
		break;
	case SIS8300_TRIGGER_INTERNAL:
		if (!(sis->options & SIS8300_OPTION_TRIGGER))
			return -EOPNOTSUPP;
		break;
	case SIS8300_TRIGGER_MLVDS:
		lines = GENMASK(7, 0);
		break;
	case SIS8300_TRIGGER_FRONT:
		lines = GENMASK(3, 0);
		break;
	default:
		return -EINVAL;
	}
	if (s->trigger_lines & ~lines || (lines && !s->trigger_lines) ||
	    s->trigger_falling & ~s->trigger_lines)
		return -EINVAL;
	return 0;
}

static int sis8300_check_setup(const struct sis8300 *sis, struct sis8300_setup *s)
{
	u32 block = sis8300_block_samples(sis), bytes = 2 * hweight32(s->channels);
	int ret;

	if (memchr_inv(s->reserved, 0, sizeof(s->reserved)) || !s->channels ||
	    s->channels >> SIS8300_CHANNELS || s->pretrigger > SIS8300_PRETRIGGER_MAX ||
	    s->clock > SIS8300_CLOCK_KEEP || !s->samples || s->samples > SZ_1G)
		return -EINVAL;
	if (s->clock != SIS8300_CLOCK_KEEP &&
	    (s->divider < (s->clock == SIS8300_CLOCK_INTERNAL ? 2 : 1) || s->divider > 32))
		return -EINVAL;
	ret = sis8300_check_trigger(sis, s);
	if (ret)
		return ret;
	if (s->pretrigger && !(sis->options & SIS8300_OPTION_DELAY))
		return -EOPNOTSUPP;
	s->samples = round_up(s->samples, block);
	return s->samples * bytes > sis->memory_bytes ? -EINVAL : 0;
}

static void sis8300_place_channels(struct sis8300_setup *s)
{
	u32 channel, k = 0;

	for (channel = 0; channel < SIS8300_CHANNELS; channel++) {
		if (s->channels & BIT(channel))
			s->start[channel] = k++ * s->samples * 2;
		else
			s->start[channel] = U64_MAX;
	}
}

static void sis8300_write_setup(struct sis8300 *sis, const struct sis8300_setup *s)
{
	u32 sample = ~s->channels & SIS8300_SAMPLE_DISABLE, mlvds, front, channel;
	bool is_mlvds = s->trigger == SIS8300_TRIGGER_MLVDS;
	bool is_front = s->trigger == SIS8300_TRIGGER_FRONT;

	if (s->trigger == SIS8300_TRIGGER_INTERNAL)
		sample |= SIS8300_SAMPLE_INTERNAL;
	else if (is_mlvds || is_front)
		sample |= SIS8300_SAMPLE_EXTERNAL;
	mlvds = sis8300_read(sis, SIS8300_REG_MLVDS) & SIS8300_MLVDS_OUTPUTS;
	front = sis8300_read(sis, SIS8300_REG_FRONT) & SIS8300_FRONT_OUTPUTS;
	if (is_mlvds)
		mlvds |= FIELD_PREP(SIS8300_MLVDS_ENABLE, s->trigger_lines) |
			 FIELD_PREP(SIS8300_MLVDS_FALLING, s->trigger_falling);
	if (is_front)
		front |= FIELD_PREP(SIS8300_FRONT_ENABLE, s->trigger_lines) |
			 FIELD_PREP(SIS8300_FRONT_FALLING, s->trigger_falling);
	sis8300_write(sis, SIS8300_REG_SAMPLE, sample);
	sis8300_write(sis, SIS8300_REG_MLVDS, mlvds);
	sis8300_write(sis, SIS8300_REG_FRONT, front);
	for (channel = 0; channel < SIS8300_CHANNELS; channel++) {
		if (s->channels & BIT(channel))
			sis8300_write(sis, SIS8300_REG_START(channel),
				      s->start[channel] / SIS8300_BLOCK_BYTES);
	}
	sis8300_write(sis, SIS8300_REG_LENGTH, s->samples / SIS8300_BLOCK_SAMPLES - 1);
	sis8300_write(sis, SIS8300_REG_PRETRIGGER, s->pretrigger);
}

static int sis8300_write_chips(struct sis8300 *sis, const struct sis8300_setup *s)
{
	int ret;

	if (!sis->has_adc) {
		ret = sis8300_init_adcs(sis);
		if (ret)
			return ret;
		sis->has_adc = true;
	}
	if (s->clock != SIS8300_CLOCK_KEEP &&
	    (s->clock != sis->clock || s->divider != sis->divider)) {
		sis->clock = s->clock;
		sis->divider = s->divider;
		sis->has_clock = false;
	}
	if (!sis->has_clock && sis->clock != SIS8300_CLOCK_KEEP) {
		ret = sis8300_set_clock(sis, sis->clock, sis->divider);
		if (ret)
			return ret;
		sis->has_clock = true;
	}
	return 0;
}

/*
 * In sis8300_enter(), with setup_lock held. After a reset the chips need their settings again.
 * SIS8300_CLOCK_KEEP then means the clock that this driver has set last. If somebody else has
 * set it, nobody can set it again.
 */
static int sis8300_apply_setup(struct sis8300 *sis, const struct sis8300_setup *s, bool was_reset)
{
	int ret;

	if (was_reset) {
		sis->has_adc = false;
		sis->has_clock = false;
	}
	if (was_reset && s->clock == SIS8300_CLOCK_KEEP && sis->clock == SIS8300_CLOCK_KEEP)
		ret = -EIO;
	else
		ret = sis8300_write_chips(sis, s);
	if (!ret) {
		sis8300_write_setup(sis, s);
	} else if (was_reset) {
		/* The next SETUP or ARM tries it again. */
		spin_lock_irq(&sis->lock);
		sis->was_reset = true;
		spin_unlock_irq(&sis->lock);
	}
	return ret;
}

/**
 * sis8300_setup() - set up the next acquisitions
 * @f: the file
 * @setup: the wanted setup; what was set is filled in
 *
 * Return: 0; -EINVAL, -EOPNOTSUPP, -EBUSY, -EINTR, -EIO, -ENODEV, -ETIMEDOUT.
 */
int sis8300_setup(struct sis8300_file *f, struct sis8300_setup *setup)
{
	struct sis8300 *sis = f->sis;
	bool was_reset, busy;
	int ret;

	ret = sis8300_check_setup(sis, setup) ?: sis8300_setup_begin(sis);
	if (ret)
		return ret;
	sis8300_place_channels(setup);
	spin_lock_irq(&sis->lock);
	busy = sis->acq.owner;
	was_reset = sis->was_reset;
	if (!busy)
		sis->was_reset = false;
	spin_unlock_irq(&sis->lock);
	if (busy) {
		ret = -EBUSY;
	} else {
		sis->is_set = false;
		ret = sis8300_apply_setup(sis, setup, was_reset);
	}
	if (!ret) {
		sis->setup = *setup;
		sis->is_set = true;
	}
	sis8300_setup_end(sis);
	return ret;
}

/**
 * sis8300_get_setup() - the setup of the next acquisitions
 * @f: the file
 * @setup: to be filled in
 *
 * Return: 0; -EINVAL; -ENODATA if SETUP was not called since the registers were changed
 * otherwise; -EINTR, -ENODEV.
 */
int sis8300_get_setup(struct sis8300_file *f, struct sis8300_setup *setup)
{
	struct sis8300 *sis = f->sis;
	int ret;

	if (memchr_inv(setup->reserved, 0, sizeof(setup->reserved)))
		return -EINVAL;
	if (mutex_lock_interruptible(&sis->setup_lock))
		return -EINTR;
	ret = READ_ONCE(sis->gone) ? -ENODEV : sis->is_set ? 0 : -ENODATA;
	if (!ret)
		*setup = sis->setup;
	mutex_unlock(&sis->setup_lock);
	return ret;
}

/**
 * sis8300_acq_stop() - stop sampling, and wait until the last samples are stored
 * @sis: the board, in sis8300_enter()
 *
 * Return: 0; -ETIMEDOUT, -ENODEV.
 */
int sis8300_acq_stop(struct sis8300 *sis)
{
	ktime_t end = ktime_add_us(ktime_get(), SIS8300_STOP_TIMEOUT_US);
	u32 status;

	sis8300_write(sis, SIS8300_REG_CONTROL, SIS8300_CONTROL_RESET);
	for (;;) {
		status = sis8300_read(sis, SIS8300_REG_CONTROL);
		if (sis8300_check_dead(sis, status))
			return -ENODEV;
		if (!(status & (SIS8300_STATUS_LOGIC_BUSY | SIS8300_STATUS_FIFO)))
			return 0;
		if (ktime_after(ktime_get(), end))
			return -ETIMEDOUT;
		usleep_range(10, 50);
	}
}

/**
 * sis8300_acq_begin() - arm or start
 * @f: the file whose acquisition it is
 * @ring: the ring that reads it, or NULL
 * @command: for SIS8300_REG_CONTROL
 * @now: the time
 *
 * Called with sis->lock held, so that the end is noticed after this, and the board not
 * gone.
 */
void sis8300_acq_begin(struct sis8300_file *f, struct sis8300_ring *ring, u32 command, u64 now)
{
	struct sis8300 *sis = f->sis;
	struct sis8300_acq *acq = &sis->acq;

	lockdep_assert_held(&sis->lock);
	acq->state = SIS8300_ACQ_ARMED;
	acq->owner = f;
	acq->ring = ring;
	acq->sequence++;
	acq->armed_ns = now;
	acq->irq_ns = 0;
	acq->idle_ns = 0;
	f->end.armed = acq->sequence;
	f->end.error = 0;
	f->events_seen[SIS8300_WAIT_DAQ] = sis->events[SIS8300_WAIT_DAQ];
	sis8300_write(sis, SIS8300_REG_IRQ_CLEAR, SIS8300_IRQ_DAQ);
	sis8300_write(sis, SIS8300_REG_CONTROL, command);
	sis8300_tick_soon(sis, sis8300_acq_tick_ms(sis));
}

/**
 * sis8300_arm_command() - the command that arms the board by its setup
 * @sis: the board
 */
u32 sis8300_arm_command(const struct sis8300 *sis)
{
	return sis->setup.trigger == SIS8300_TRIGGER_NOW ? SIS8300_CONTROL_START :
							   SIS8300_CONTROL_ARM;
}

/**
 * sis8300_acq_is_others() - whether another file, or a ring, acquires
 * @f: the file; sis->lock is held
 */
bool sis8300_acq_is_others(const struct sis8300_file *f)
{
	const struct sis8300_acq *acq = &f->sis->acq;

	lockdep_assert_held(&f->sis->lock);
	return acq->ring || (acq->owner && acq->owner != f);
}

/**
 * sis8300_acq_prepare() - prepare the board for arming
 * @f: the file that will arm
 *
 * Called in sis8300_enter(), with setup_lock held.
 *
 * Return: 0; -ENODATA, -EBUSY, -ETIMEDOUT, -ENODEV.
 */
int sis8300_acq_prepare(struct sis8300_file *f)
{
	struct sis8300 *sis = f->sis;
	bool busy, was_reset = false;
	int ret = 0;

	lockdep_assert_held(&sis->setup_lock);
	if (!sis->is_set)
		return -ENODATA;
	spin_lock_irq(&sis->lock);
	busy = sis->is_written || sis8300_acq_is_others(f);
	if (!busy) {
		sis8300_acq_cancel(sis, -ECANCELED);
		was_reset = sis->was_reset;
		sis->was_reset = false;
	}
	spin_unlock_irq(&sis->lock);
	if (busy)
		return -EBUSY;
	if (was_reset)
		ret = sis8300_apply_setup(sis, &sis->setup, true);
	return ret ?: sis8300_acq_stop(sis);
}

/**
 * sis8300_acq_recheck() - whether the prepared acquisition can be armed now
 * @sis: the board; sis->lock is held
 *
 * Return: 0; -EBUSY, -EIO, -ENODEV.
 */
int sis8300_acq_recheck(const struct sis8300 *sis)
{
	lockdep_assert_held(&sis->lock);
	if (sis->gone)
		return -ENODEV;
	if (sis->is_written)
		return -EBUSY;
	/* A reset has changed the registers since sis8300_acq_prepare(). */
	return sis->was_reset ? -EIO : 0;
}

/**
 * sis8300_arm() - arm the board for this file
 * @f: the file
 * @arm: number of the acquisition and time of arming are filled in
 *
 * Return: 0; -EINVAL; -ENODATA without a setup; -EBUSY, -EINTR, -EIO, -ENODEV,
 * -ETIMEDOUT.
 */
int sis8300_arm(struct sis8300_file *f, struct sis8300_arm *arm)
{
	struct sis8300 *sis = f->sis;
	int ret;

	if (arm->reserved)
		return -EINVAL;
	ret = sis8300_setup_begin(sis);
	if (ret)
		return ret;
	ret = sis8300_acq_prepare(f);
	if (ret)
		goto out;
	spin_lock_irq(&sis->lock);
	ret = sis8300_acq_recheck(sis);
	if (!ret) {
		sis8300_acq_begin(f, NULL, sis8300_arm_command(sis), ktime_get_ns());
		arm->sequence = sis->acq.sequence;
		arm->time_ns = sis->acq.armed_ns;
	}
	spin_unlock_irq(&sis->lock);
out:
	sis8300_setup_end(sis);
	return ret;
}

/**
 * sis8300_arm_raw() - a tool of the ESS driver writes the control register
 * @f: the file
 * @value: what it writes
 *
 * Called in sis8300_enter(), with setup_lock held.
 *
 * Return: 0; -EBUSY, -ENODEV.
 */
int sis8300_arm_raw(struct sis8300_file *f, u32 value)
{
	bool is_arming = value & (SIS8300_CONTROL_START | SIS8300_CONTROL_ARM);
	struct sis8300 *sis = f->sis;

	guard(spinlock_irq)(&sis->lock);
	if (sis->gone)
		return -ENODEV;
	if (sis8300_acq_is_others(f) || (sis->is_written && is_arming))
		return -EBUSY;
	if (value & SIS8300_CONTROL_RESET)
		sis8300_acq_cancel(sis, -ECANCELED);
	if (is_arming)
		sis8300_acq_begin(f, NULL, value, ktime_get_ns());
	else
		sis8300_write(sis, SIS8300_REG_CONTROL, value);
	return 0;
}

/**
 * sis8300_acq_cancel() - forget the present acquisition
 * @sis: the board; sis->lock is held
 * @error: the error of tasks that wait for it
 */
void sis8300_acq_cancel(struct sis8300 *sis, int error)
{
	struct sis8300_acq *acq = &sis->acq;

	lockdep_assert_held(&sis->lock);
	if (acq->owner && acq->state == SIS8300_ACQ_ARMED)
		acq->owner->end.error = error;
	acq->state = SIS8300_ACQ_NONE;
	acq->owner = NULL;
	acq->ring = NULL;
	wake_up_all(&sis->wait);
}

/**
 * sis8300_acq_reset() - the board was reset during an acquisition
 * @sis: the board; sis->lock is held
 */
void sis8300_acq_reset(struct sis8300 *sis)
{
	struct sis8300_ring *ring = sis->acq.ring;

	sis->was_reset = true;
	sis8300_acq_cancel(sis, -EIO);
	if (ring)
		sis8300_ring_fail(ring, -ETIMEDOUT);
}

/**
 * sis8300_disarm() - stop the acquisition, free the board
 * @f: the file
 *
 * Return: 0; -EBUSY, -ENODEV.
 */
int sis8300_disarm(struct sis8300_file *f)
{
	struct sis8300 *sis = f->sis;

	guard(spinlock_irq)(&sis->lock);
	if (sis->gone)
		return -ENODEV;
	if (sis8300_acq_is_others(f))
		return -EBUSY;
	if (sis->acq.owner) {
		sis8300_write(sis, SIS8300_REG_CONTROL, SIS8300_CONTROL_RESET);
		sis8300_acq_cancel(sis, -ECANCELED);
	}
	return 0;
}

/* With sis->lock held. */
static void sis8300_acq_end(struct sis8300 *sis, u64 time_ns, bool lost)
{
	struct sis8300_acq *acq = &sis->acq;
	struct sis8300_file *f = acq->owner;

	/* An earlier interrupt may have waited for the lock while this acquisition was armed. */
	time_ns = max(time_ns, acq->armed_ns);
	acq->state = SIS8300_ACQ_ENDED;
	f->end.sequence = acq->sequence;
	f->end.time_ns = time_ns;
	f->end.lost = lost;
	f->stats.acquisitions++;
	f->stats.lost_interrupts += lost && acq->signals;
	sis->events[SIS8300_WAIT_DAQ]++;
	if (!acq->ring)
		acq->owner = NULL;
	else
		sis8300_ring_acq_ended(acq->ring, time_ns);
	wake_up_all(&sis->wait);
}

/* With sis->lock held; may disconnect the board. */
static bool sis8300_acq_is_idle(struct sis8300 *sis)
{
	u32 status = sis8300_read(sis, SIS8300_REG_CONTROL);

	return !sis8300_check_dead_locked(sis, status) && !(status & SIS8300_BUSY);
}

/* The tick found the board idle without an interrupt. Three in a row: none ever comes. */
static void sis8300_acq_end_unsignalled(struct sis8300 *sis, u64 now)
{
	struct sis8300_acq *acq = &sis->acq;

	if (acq->signals)
		sis8300_count_missed(sis, SIS8300_IRQ_DAQ);
	sis8300_acq_end(sis, now, true);
	if (acq->signals && READ_ONCE(sis8300_daq_irq) < 0 &&
	    ++acq->unsignalled >= SIS8300_UNSIGNALLED_MAX)
		acq->signals = false;
}

/**
 * sis8300_acq_interrupt() - the firmware signals the end of an acquisition
 * @sis: the board; sis->lock is held
 * @now: when the interrupt came
 */
void sis8300_acq_interrupt(struct sis8300 *sis, u64 now)
{
	struct sis8300_acq *acq = &sis->acq;

	acq->unsignalled = 0;
	acq->signals = READ_ONCE(sis8300_daq_irq) != 0;
	if (acq->state == SIS8300_ACQ_NONE) {
		/* This driver has armed nothing: the firmware did it by itself. */
		sis->events[SIS8300_WAIT_DAQ]++;
		wake_up_all(&sis->wait);
	}
	if (acq->state != SIS8300_ACQ_ARMED)
		return;
	if (sis8300_acq_is_idle(sis)) {
		sis8300_acq_end(sis, now, false);
	} else if (!sis->gone) {
		acq->irq_ns = now;
		sis8300_tick_soon(sis, 0);
	}
}

/**
 * sis8300_acq_is_flushing() - whether the end was signalled before the last samples are stored
 * @sis: the board
 *
 * Ends the acquisition when they are stored. A signal that the end does not follow
 * was an old one.
 */
bool sis8300_acq_is_flushing(struct sis8300 *sis)
{
	struct sis8300_acq *acq = &sis->acq;
	u64 now = ktime_get_ns();

	guard(spinlock_irq)(&sis->lock);
	if (sis->gone || acq->state != SIS8300_ACQ_ARMED || !acq->irq_ns)
		return false;
	if (sis8300_acq_is_idle(sis))
		sis8300_acq_end(sis, acq->irq_ns, false);
	else if (now > acq->irq_ns + SIS8300_GRACE_NS)
		acq->irq_ns = 0;
	else
		return !sis->gone;
	return false;
}

/**
 * sis8300_acq_tick_ms() - the interval of the tick
 * @sis: the board
 */
u32 sis8300_acq_tick_ms(const struct sis8300 *sis)
{
	if (sis->acq.state == SIS8300_ACQ_ARMED && !sis->acq.signals)
		return 1;
	return SIS8300_TICK_MS;
}

/**
 * sis8300_acq_tick() - find the end of an acquisition without its interrupt
 * @sis: the board; sis->lock is held
 *
 * Return: true while it has to be called again.
 */
bool sis8300_acq_tick(struct sis8300 *sis)
{
	struct sis8300_acq *acq = &sis->acq;
	u64 now = ktime_get_ns();

	if (acq->state != SIS8300_ACQ_ARMED)
		return false;
	if (!sis8300_acq_is_idle(sis))
		acq->idle_ns = 0;
	else if (acq->signals && !acq->idle_ns)
		acq->idle_ns = now;
	else if (!acq->signals || now - acq->idle_ns >= SIS8300_GRACE_NS)
		sis8300_acq_end_unsignalled(sis, now);
	return true;
}

/* With sis->lock held. Return: 0 while it goes on, 1 when it has ended, or an error. */
static int sis8300_acq_result(struct sis8300_file *f, u64 sequence)
{
	if (f->end.sequence >= sequence)
		return 1;
	if (f->sis->gone)
		return -ENODEV;
	return f->end.armed == sequence ? f->end.error : -ECANCELED;
}

/* As sis8300_acq_is_over(), but also reads the status register to find the end. */
static int sis8300_acq_poll(struct sis8300_file *f, u64 sequence, bool is_late)
{
	struct sis8300 *sis = f->sis;
	int ret;

	guard(spinlock_irq)(&sis->lock);
	ret = sis8300_acq_result(f, sequence);
	if (!ret && sis->acq.state == SIS8300_ACQ_ARMED && sis->acq.owner == f &&
	    sis8300_acq_is_idle(sis)) {
		if (is_late)
			sis8300_acq_end_unsignalled(sis, ktime_get_ns());
		else
			sis8300_acq_end(sis, ktime_get_ns(), false);
	}
	ret = sis8300_acq_result(f, sequence);
	return ret;
}

static int sis8300_acq_is_over(struct sis8300_file *f, u64 sequence)
{
	guard(spinlock_irq)(&f->sis->lock);
	return sis8300_acq_result(f, sequence);
}

static void sis8300_pause(u32 us)
{
	if (!us)
		cond_resched_tasks_rcu_qs();
	else if (us < 20000)
		usleep_range(us, us + us / 8 + 1);
	else
		schedule_timeout_interruptible(usecs_to_jiffies(us));
}

static int sis8300_wait_by_polling(struct sis8300_file *f, u64 sequence, u32 timeout_ms, u32 us,
				   u32 *polls)
{
	u64 end = ktime_get_ns() + (u64)timeout_ms * NSEC_PER_MSEC, now;
	int ret;

	for (;;) {
		now = ktime_get_ns();
		ret = sis8300_acq_poll(f, sequence, false);
		(*polls)++;
		if (ret)
			return ret < 0 ? ret : 0;
		if (signal_pending(current))
			return -EINTR;
		if (now >= end)
			return -ETIMEDOUT;
		sis8300_pause(min_t(u64, us, div_u64(end - now, NSEC_PER_USEC) + 1));
	}
}

static int sis8300_wait_by_interrupt(struct sis8300_file *f, u64 sequence, u32 timeout_ms)
{
	long left;
	int ret;

	left = wait_event_interruptible_timeout(f->sis->wait, sis8300_acq_is_over(f, sequence),
						msecs_to_jiffies(timeout_ms));
	if (left < 0)
		return -EINTR;
	ret = left ? sis8300_acq_is_over(f, sequence) : sis8300_acq_poll(f, sequence, true);
	if (!ret)
		return -ETIMEDOUT;
	return ret < 0 ? ret : 0;
}

/**
 * sis8300_wait_end() - wait for the end of this file's acquisition
 * @f: the file
 * @end: how to wait; the end's figures are filled in
 *
 * Return: 0; -EINVAL; -ENODATA if the file armed nothing; -ETIMEDOUT, it stays
 * armed; -ECANCELED if it was disarmed or armed anew meanwhile; -EIO if the board
 * had to be reset; -EINTR, -ENODEV.
 */
int sis8300_wait_end(struct sis8300_file *f, struct sis8300_end *end)
{
	struct sis8300 *sis = f->sis;
	u64 sequence, awake;
	bool signals;
	int ret;

	if (memchr_inv(end->reserved, 0, sizeof(end->reserved)) ||
	    end->flags & ~SIS8300_WAIT_POLL || !end->timeout_ms || end->timeout_ms > 3600000 ||
	    end->poll_us > USEC_PER_SEC || (end->poll_us && !(end->flags & SIS8300_WAIT_POLL)))
		return -EINVAL;
	spin_lock_irq(&sis->lock);
	sequence = f->end.armed;
	signals = sis->acq.signals;
	spin_unlock_irq(&sis->lock);
	if (!sequence)
		return READ_ONCE(sis->gone) ? -ENODEV : -ENODATA;
	end->polls = 0;
	if (end->flags & SIS8300_WAIT_POLL)
		ret = sis8300_wait_by_polling(f, sequence, end->timeout_ms, end->poll_us,
					      &end->polls);
	else if (!signals)
		ret = sis8300_wait_by_polling(f, sequence, end->timeout_ms, 500, &end->polls);
	else
		ret = sis8300_wait_by_interrupt(f, sequence, end->timeout_ms);
	awake = ktime_get_ns();
	if (ret)
		return ret;
	spin_lock_irq(&sis->lock);
	end->sequence = f->end.sequence;
	end->time_ns = f->end.time_ns;
	end->lost_interrupt = f->end.lost;
	spin_unlock_irq(&sis->lock);
	end->wakeup_ns = awake > end->time_ns ? awake - end->time_ns : 0;
	return 0;
}

/**
 * sis8300_acq_release() - the file is closed
 * @f: the file
 */
void sis8300_acq_release(struct sis8300_file *f)
{
	struct sis8300 *sis = f->sis;

	guard(spinlock_irq)(&sis->lock);
	if (sis->acq.owner == f) {
		if (!sis->gone)
			sis8300_write(sis, SIS8300_REG_CONTROL, SIS8300_CONTROL_RESET);
		sis8300_acq_cancel(sis, -ECANCELED);
	}
}

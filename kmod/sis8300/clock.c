// SPDX-License-Identifier: GPL-2.0-only
/*
 * The clocks: multiplexers, the two AD9510, which divide and distribute the sample
 * clock, and the ADCs behind them. The sequences come from the chips' data sheets.
 */
#include "internal.h"

#define SIS8300_SPI_TIMEOUT_US	20000

/* A command to a chip behind SIS8300_REG_AD9510 or SIS8300_REG_ADC_SPI. */
static int sis8300_spi(struct sis8300 *sis, u32 word, u32 command)
{
	u32 value;
	int ret;

	sis8300_write(sis, word, command);
	ret = readl_poll_timeout(sis->regs + 4 * word, value, !(value & SIS8300_SPI_BUSY), 5,
				 SIS8300_SPI_TIMEOUT_US);
	if (ret && value == U32_MAX)
		return -ENODEV;
	return ret;
}

struct sis8300_chip_write {
	u8 chip_register;
	u8 data;
};

static int sis8300_ad9510(struct sis8300 *sis, bool second, u8 chip_register, u8 data)
{
	return sis8300_spi(sis, SIS8300_REG_AD9510,
			   SIS8300_AD9510_RW | (second ? SIS8300_AD9510_SECOND : 0) |
			   FIELD_PREP(SIS8300_AD9510_REGISTER, chip_register) |
			   FIELD_PREP(SIS8300_AD9510_DATA, data));
}

/* Low and high part of a period, each minus one; a divider of 1 is bypassed. */
static int sis8300_ad9510_divide(struct sis8300 *sis, bool second, int output, u32 divider)
{
	u8 low = divider > 1 ? divider / 2 - 1 : 0;
	u8 high = divider > 1 ? divider - divider / 2 - 1 : 0;

	return sis8300_ad9510(sis, second, AD9510_DIVIDER(output), low << 4 | high) ?:
	       sis8300_ad9510(sis, second, AD9510_DIVIDER_MODE(output),
			      divider > 1 ? 0 : AD9510_DIVIDER_BYPASS);
}

static int sis8300_ad9510_setup(struct sis8300 *sis, bool second, u32 divider)
{
	u8 serial = AD9510_SERIAL_LONG | (sis->is_first ? AD9510_SERIAL_ONE_LINE : 0);
	const struct sis8300_chip_write begin[] = {
		{ AD9510_SERIAL, serial | AD9510_SERIAL_RESET },
		{ AD9510_SERIAL, serial },
		{ AD9510_PLL, AD9510_PLL_OFF },
		{ AD9510_CLOCKS, AD9510_CLOCKS_FROM_CLK1 },
	};
	int ret = 0, i;

	for (i = 0; i < ARRAY_SIZE(begin) && !ret; i++)
		ret = sis8300_ad9510(sis, second, begin[i].chip_register, begin[i].data);
	for (i = 0; i < AD9510_OUTPUTS && !ret; i++) {
		ret = sis8300_ad9510(sis, second, AD9510_OUTPUT(i),
				     i < AD9510_USED ? AD9510_OUTPUT_OFF : AD9510_OUTPUT_LVDS);
		if (!ret && i >= AD9510_USED)
			ret = sis8300_ad9510_divide(sis, second, i, divider);
	}
	return ret ?: sis8300_ad9510(sis, second, AD9510_UPDATE, 1);
}

/* Starts the periods of all dividers of both chips together. */
static int sis8300_ad9510_sync(struct sis8300 *sis)
{
	int ret = 0, i;

	for (i = 0; i < 2 && !ret; i++)
		ret = sis8300_ad9510(sis, i, AD9510_FUNCTION, AD9510_FUNCTION_SYNC) ?:
		      sis8300_ad9510(sis, i, AD9510_UPDATE, 1);
	return ret ?: sis8300_spi(sis, SIS8300_REG_AD9510, SIS8300_AD9510_SYNC_CLOCK) ?:
	       sis8300_spi(sis, SIS8300_REG_AD9510,
			   SIS8300_AD9510_PULSE | SIS8300_AD9510_SYNC_CLOCK);
}

/* A and B select crystal or backplane; D and E select A, B or the front panel. */
static u32 sis8300_clock_mux(u32 clock)
{
	static const struct { u8 ab, de; } inputs[] = {
		[SIS8300_CLOCK_INTERNAL] = { 3, 0 },
		[SIS8300_CLOCK_RTM] = { 0, 0 },
		[SIS8300_CLOCK_SMA] = { 3, 3 },
		[SIS8300_CLOCK_HARLINK] = { 3, 2 },
		[SIS8300_CLOCK_TCLKA] = { 2, 0 },
		[SIS8300_CLOCK_TCLKB] = { 1, 0 },
	};

	return FIELD_PREP(SIS8300_MUX_A, inputs[clock].ab) |
	       FIELD_PREP(SIS8300_MUX_B, inputs[clock].ab) |
	       FIELD_PREP(SIS8300_MUX_D, inputs[clock].de) |
	       FIELD_PREP(SIS8300_MUX_E, inputs[clock].de);
}

/**
 * sis8300_set_clock() - choose the sample clock
 * @sis: the board, in sis8300_enter(), with setup_lock held
 * @clock: enum sis8300_clock, but not SIS8300_CLOCK_KEEP
 * @divider: 1 to 32
 *
 * Return: 0; -ETIMEDOUT, -ENODEV: a chip does not answer.
 */
int sis8300_set_clock(struct sis8300 *sis, u32 clock, u32 divider)
{
	const u32 ours = SIS8300_MUX_A | SIS8300_MUX_B | SIS8300_MUX_D | SIS8300_MUX_E;
	u32 mux = sis8300_read(sis, SIS8300_REG_CLOCK_MUX);

	lockdep_assert_held(&sis->setup_lock);
	sis8300_write(sis, SIS8300_REG_CLOCK_MUX, (mux & ~ours) | sis8300_clock_mux(clock));
	return sis8300_ad9510_setup(sis, false, divider) ?:
	       sis8300_ad9510_setup(sis, true, divider) ?: sis8300_ad9510_sync(sis);
}

/**
 * sis8300_init_adcs() - LVDS outputs, offset binary, no delay
 * @sis: the board, in sis8300_enter(), with setup_lock held
 *
 * Return: 0; -ETIMEDOUT, -ENODEV: a chip does not answer.
 */
int sis8300_init_adcs(struct sis8300 *sis)
{
	/* Of an AD9268, by its data sheet: output mode, clock phase, delay, transfer. */
	static const struct sis8300_chip_write writes[] = {
		{ 0x14, 0x40 }, { 0x16, 0x00 }, { 0x17, 0x00 }, { 0xff, 0x01 },
	};
	int adc, i, ret = 0;

	lockdep_assert_held(&sis->setup_lock);
	for (adc = 0; adc < SIS8300_CHANNELS / 2; adc++) {
		for (i = 0; i < ARRAY_SIZE(writes) && !ret; i++) {
			const struct sis8300_chip_write *w = &writes[i];

			ret = sis8300_spi(sis, SIS8300_REG_ADC_SPI,
					  FIELD_PREP(SIS8300_ADC_SELECT, adc) |
					  FIELD_PREP(SIS8300_ADC_REGISTER, w->chip_register) |
					  FIELD_PREP(SIS8300_ADC_DATA, w->data));
		}
	}
	return ret;
}

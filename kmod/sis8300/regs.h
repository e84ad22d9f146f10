/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Registers of the SIS8300 family, as word numbers of BAR 0: the manuals count
 * so, and so do the ESS ioctls. The byte offset is four times the number.
 */
#ifndef SIS8300_REGS_H
#define SIS8300_REGS_H

#include <linux/bits.h>

#define SIS8300_REG_ID			0x00
#define   SIS8300_ID_BOARD		GENMASK(31, 16)
#define   SIS8300_ID_8300		0x8300
#define   SIS8300_ID_L			0x8301
#define   SIS8300_ID_L2			0x8302
#define   SIS8300_ID_KU			0x8303
#define SIS8300_REG_SERIAL		0x01
#define SIS8300_REG_JTAG		0x02	/* of the first SIS8300 */
#define SIS8300_REG_OPTIONS		0x05
#define   SIS8300_OPTION_TRIGGER	BIT(0)	/* threshold logic of the channels */
#define   SIS8300_OPTION_DELAY		BIT(1)	/* pre-trigger ring buffers */
#define   SIS8300_OPTION_1GIB		BIT(8)	/* of the first SIS8300 */

#define SIS8300_REG_CONTROL		0x10
#define   SIS8300_CONTROL_START		BIT(0)
#define   SIS8300_CONTROL_ARM		BIT(1)
#define   SIS8300_CONTROL_RESET		BIT(2)
/* The same register when read. */
#define   SIS8300_STATUS_SAMPLING	BIT(0)
#define   SIS8300_STATUS_ARMED		BIT(1)
#define   SIS8300_STATUS_LOGIC_BUSY	BIT(4)
#define   SIS8300_STATUS_FIFO		BIT(5)	/* samples on their way to the memory */
#define SIS8300_REG_SAMPLE		0x11
#define   SIS8300_SAMPLE_DISABLE	GENMASK(9, 0)
#define   SIS8300_SAMPLE_INTERNAL	BIT(10)
#define   SIS8300_SAMPLE_EXTERNAL	BIT(11)
#define SIS8300_REG_MLVDS		0x12
#define   SIS8300_MLVDS_OUTPUTS		GENMASK(31, 16)
#define   SIS8300_MLVDS_ENABLE		GENMASK(15, 8)
#define   SIS8300_MLVDS_FALLING		GENMASK(7, 0)
#define SIS8300_REG_FRONT		0x13
#define   SIS8300_FRONT_OUTPUTS		GENMASK(20, 16)
#define   SIS8300_FRONT_FALLING		GENMASK(15, 12)
#define   SIS8300_FRONT_ENABLE		GENMASK(11, 8)

#define SIS8300_REG_CLOCK_MUX		0x40
#define   SIS8300_MUX_A			GENMASK(1, 0)
#define   SIS8300_MUX_B			GENMASK(3, 2)
#define   SIS8300_MUX_D			GENMASK(9, 8)
#define   SIS8300_MUX_E			GENMASK(11, 10)
#define SIS8300_REG_AD9510		0x41
#define   SIS8300_AD9510_RW		BIT(30)
#define   SIS8300_AD9510_PULSE		BIT(31)	/* of the function pin */
#define   SIS8300_AD9510_SYNC_CLOCK	BIT(28)	/* pulse in step with the divided clock */
#define   SIS8300_AD9510_SECOND		BIT(24)	/* the second chip */
#define   SIS8300_AD9510_REGISTER	GENMASK(20, 8)
#define   SIS8300_AD9510_DATA		GENMASK(7, 0)
#define SIS8300_REG_LINK_CLOCK		0x43	/* Si5338A: of the transceivers */
#define SIS8300_REG_FLASH		0x44	/* of the firmware, by SPI */
#define SIS8300_REG_ADC_SPI		0x48
#define   SIS8300_SPI_BUSY		BIT(31)	/* of both, when read */
#define   SIS8300_ADC_SELECT		GENMASK(26, 24)
#define   SIS8300_ADC_REGISTER		GENMASK(20, 8)
#define   SIS8300_ADC_DATA		GENMASK(7, 0)
#define SIS8300_REG_RESET		0xff
#define   SIS8300_RESET_ALL		BIT(0)

#define SIS8300_REG_START(channel)	(0x120 + (channel))
#define SIS8300_REG_LENGTH		0x12a	/* blocks - 1 */
#define SIS8300_REG_PRETRIGGER		0x12b

#define SIS8300_REG_READ_LOW		0x200
#define SIS8300_REG_READ_HIGH		0x201
#define SIS8300_REG_READ_FROM		0x202
#define SIS8300_REG_READ_BYTES		0x203
#define SIS8300_REG_READ_CONTROL	0x204
#define SIS8300_REG_READ_SWAP		0x205	/* of each sample's bytes */
#define SIS8300_REG_WRITE_LOW		0x210
#define SIS8300_REG_WRITE_HIGH		0x211
#define SIS8300_REG_WRITE_TO		0x212
#define SIS8300_REG_WRITE_BYTES		0x213
#define SIS8300_REG_WRITE_CONTROL	0x214
#define   SIS8300_DMA_START		BIT(0)
#define   SIS8300_DMA_RUNNING		BIT(0)	/* when read */
#define SIS8300_REG_WRITE_REQUESTS	0x215	/* outstanding reads */
#define   SIS8300_REQUESTS_DEFAULT	16
#define   SIS8300_REQUESTS_FEW		2
#define SIS8300_REG_CHAIN		0x216	/* an acquisition's end starts a DMA */

/* Bit n of SIS8300_REG_IRQ_ENABLE sets, bit n + 16 clears. */
#define SIS8300_REG_IRQ_ENABLE		0x220
#define SIS8300_REG_IRQ_STATUS		0x221
#define SIS8300_REG_IRQ_CLEAR		0x222
#define SIS8300_REG_IRQ_REFRESH		0x223	/* any value */
#define   SIS8300_IRQ_READ		BIT(0)
#define   SIS8300_IRQ_WRITE		BIT(1)
#define   SIS8300_IRQ_DAQ		BIT(14)
#define   SIS8300_IRQ_USER		BIT(15)
#define   SIS8300_IRQ_ALL		(SIS8300_IRQ_READ | SIS8300_IRQ_WRITE | \
					 SIS8300_IRQ_DAQ | SIS8300_IRQ_USER)
#define SIS8300_REG_MEMORY_TEST		0x230	/* lets DMA writes reach the memory */
#define   SIS8300_MEMORY_TEST_ON	BIT(0)

/*
 * Of an AD9510, by its data sheet. Outputs 4 to 7 are in use: of the first chip
 * FPGA clock 05 and ADC 3 to 1, of the second FPGA clock 69, ADC 5, ADC 4 and the
 * front panel. The first SIS8300 talks to its chips by one data line.
 */
#define AD9510_SERIAL			0x00
#define   AD9510_SERIAL_LONG		0x10
#define   AD9510_SERIAL_RESET		0x20
#define   AD9510_SERIAL_ONE_LINE	0x80
#define AD9510_PLL			0x0a
#define   AD9510_PLL_OFF		0x01
#define AD9510_OUTPUT(output)		(0x3c + (output))
#define   AD9510_OUTPUT_OFF		0x0b	/* LVPECL, 0 to 3 */
#define   AD9510_OUTPUT_LVDS		0x02	/* 3.5 mA, 4 to 7 */
#define AD9510_CLOCKS			0x45
#define   AD9510_CLOCKS_FROM_CLK1	0x1d	/* REFIN, prescaler and CLK2 off */
#define AD9510_DIVIDER(output)		(0x48 + 2 * (output))
#define AD9510_DIVIDER_MODE(output)	(0x49 + 2 * (output))
#define   AD9510_DIVIDER_BYPASS		0x80
#define AD9510_FUNCTION			0x58
#define   AD9510_FUNCTION_SYNC		0x22
#define AD9510_UPDATE			0x5a
#define AD9510_USED			4	/* the first output in use */
#define AD9510_OUTPUTS			8

#endif /* SIS8300_REGS_H */

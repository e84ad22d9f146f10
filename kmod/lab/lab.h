/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The counter board as its shim sees it. Registers: docs/spec/counter-board.md.
 */
#ifndef PCIESCOPE_LAB_H
#define PCIESCOPE_LAB_H

#include <linux/bitfield.h>
#include <linux/platform_device.h>
#include <linux/property.h>

#include "../common/compat.h"

#define LAB_BAR_DIRECTORY		0
#define LAB_BAR_WINDOWS			2

#define LAB_ID				0x000
#define   LAB_ID_VALUE			0x5c0fc0de
#define LAB_VERSION			0x004
#define   LAB_VERSION_VALUE		1
#define LAB_FUNCTIONS			0x008
#define   LAB_FUNCTIONS_MAX		48
#define LAB_SUBCHANNELS			0x00c
#define   LAB_SUBCHANNELS_MAX		32
#define LAB_LINES			0x010
#define   LAB_LINES_MAX			16
#define LAB_FOREIGN(n)			(0x040 + 4 * (n))
#define   LAB_FOREIGN_ASSERTED		BIT(0)

#define LAB_FUNCTION(n)			(0x100 + 16 * (n))
#define   LAB_FUNCTION_ADDRESS		0x0
#define     LAB_ADDRESS_DOMAIN		GENMASK(31, 16)
#define     LAB_ADDRESS_BUS		GENMASK(15, 8)
#define     LAB_ADDRESS_DEVFN		GENMASK(7, 0)
#define   LAB_FUNCTION_IDS		0x4
#define     LAB_IDS_VENDOR		GENMASK(15, 0)
#define     LAB_IDS_DEVICE		GENMASK(31, 16)
#define   LAB_FUNCTION_FIRST		0x8
#define LAB_PAGE(n)			(0x1000 * ((n) + 1))
#define LAB_PAGE_BYTES			0x1000
/* Link registers, at the beginning of a page: what they show, and which bits of it. */
#define   LAB_EXPRESS(n)		(8 * (n))
#define   LAB_EXPRESS_VALUE		0x0
#define   LAB_EXPRESS_MASK		0x4

#define LAB_SUBCHANNEL(n)		(0x800 + 32 * (n))
#define   LAB_SUBCHANNEL_ADDRESS_LOW	0x00
#define   LAB_SUBCHANNEL_ADDRESS_HIGH	0x04
#define   LAB_SUBCHANNEL_WINDOW		0x08
#define   LAB_SUBCHANNEL_LINE		0x0c
#define   LAB_SUBCHANNEL_NODE		0x10
#define LAB_WINDOW_BYTES		0x1000

struct lab_board;

/**
 * struct lab_line - one interrupt line of the board
 * @board: the board
 * @number: the line
 * @irq: Linux interrupt of the vector that the line's messages come on
 */
struct lab_line {
	struct lab_board *board;
	unsigned int number;
	int irq;
};

/**
 * struct lab_board - a bound counter board
 * @pdev: its PCI function
 * @regs: BAR 0
 * @nlines: interrupt lines
 * @lines: one per interrupt line
 * @nsubchannels: memory controllers
 * @subchannels: their platform devices
 */
struct lab_board {
	struct pci_dev *pdev;
	void __iomem *regs;
	unsigned int nlines;
	struct lab_line lines[LAB_LINES_MAX];
	unsigned int nsubchannels;
	struct platform_device *subchannels[LAB_SUBCHANNELS_MAX];
};

int lab_overlay_attach(struct lab_board *board);
void lab_overlay_detach(struct lab_board *board);
void lab_overlay_exit(void);

int lab_drw_register(struct lab_board *board);
void lab_drw_unregister(struct lab_board *board);

#endif /* PCIESCOPE_LAB_H */

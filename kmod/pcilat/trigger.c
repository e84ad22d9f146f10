// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table of hardware triggers. The register offsets of the Intel families come
 * from the in-tree drivers' headers, edu's from QEMU's docs/specs/edu, and the lab
 * endpoint's from docs/spec/latency-endpoint.md.
 */
#include "internal.h"

static u32 trigger_read(const struct pcilat_device *pl, u32 offset)
{
	return readl(pl->trigger_regs + offset);
}

static void trigger_write(const struct pcilat_device *pl, u32 offset, u32 value)
{
	writel(value, pl->trigger_regs + offset);
}

/* The vectors that both sides have, a bit each. */
static u32 trigger_mask(const struct pcilat_device *pl)
{
	u32 vectors = min(pl->nvectors, pl->trigger->vectors);

	return vectors ? GENMASK(vectors - 1, 0) : 0;
}

static struct pcilat_reg_write trigger_prepare(const struct pcilat_device *pl, u32 offset,
					       u32 value)
{
	return (struct pcilat_reg_write){ pl->trigger_regs + offset, value };
}

/* Interrupts without MSI-X: reading the causes acknowledges. An interrupt line may be shared. */
static void trigger_prepare_cause(const struct pcilat_device *pl, struct pcilat_vector *v,
				  u32 offset)
{
	v->cause = pl->trigger_regs + offset;
	if (pl->irq_type == PCILAT_IRQ_INTX)
		v->cause_mask = v->raise.value;
}

/*
 * Intel e1000 and e1000e: one cause register. Writing ICS sets causes, IMS and
 * IMC unmask and mask them, reading ICR clears all of them. RXSEQ is the cause
 * that the in-tree driver tests MSI with.
 */
#define E1000_ICR			0x0c0
#define   E1000_CAUSE_RXSEQ		BIT(3)
#define E1000_ITR			0x0c4
#define E1000_ICS			0x0c8
#define E1000_IMS			0x0d0
#define E1000_IMC			0x0d8

static void e1000_setup(struct pcilat_device *pl)
{
	trigger_write(pl, E1000_ITR, 0);
}

static void e1000_enable(struct pcilat_device *pl, bool on)
{
	trigger_write(pl, on ? E1000_IMS : E1000_IMC, on ? E1000_CAUSE_RXSEQ : U32_MAX);
	trigger_read(pl, E1000_ICR);
}

static void e1000_prepare(struct pcilat_device *pl, struct pcilat_vector *v)
{
	v->raise = trigger_prepare(pl, E1000_ICS, E1000_CAUSE_RXSEQ);
	trigger_prepare_cause(pl, v, E1000_ICR);
}

/*
 * Intel 82574, the only e1000e with MSI-X. IVAR has a field with a vector for each of
 * the causes 20 to 24 (two receive queues, two transmit queues, other); here these are
 * the vectors 0 to 4. Without MSI-X it works like its family.
 */
#define E1000_82574_EIAC		0x0dc
#define E1000_82574_IVAR		0x0e4
#define E1000_82574_EITR(v)		(0x0e8 + 4 * (v))
#define   E1000_82574_CAUSE(v)		BIT(20 + (v))
#define E1000_82574_VECTORS		5

/* Vector v is valid, and named, in field v. */
static u32 e1000_82574_ivar(u32 v)
{
	return (BIT(3) | v) << (4 * v);
}

static void e1000_82574_setup(struct pcilat_device *pl)
{
	u32 v, ivar = 0;

	e1000_setup(pl);
	if (pl->irq_type != PCILAT_IRQ_MSIX)
		return;
	for (v = 0; v < E1000_82574_VECTORS; v++) {
		if (trigger_mask(pl) & BIT(v))
			ivar |= e1000_82574_ivar(v);
		trigger_write(pl, E1000_82574_EITR(v), 0);
	}
	trigger_write(pl, E1000_82574_EIAC, 0);
	trigger_write(pl, E1000_82574_IVAR, ivar);
}

static void e1000_82574_enable(struct pcilat_device *pl, bool on)
{
	if (pl->irq_type != PCILAT_IRQ_MSIX) {
		e1000_enable(pl, on);
		return;
	}
	trigger_write(pl, E1000_IMC, U32_MAX);
	trigger_read(pl, E1000_ICR);
	if (on)
		trigger_write(pl, E1000_IMS, trigger_mask(pl) << 20);
}

/* With MSI-X a cause is cleared by writing it: reading would clear other vectors' too. */
static void e1000_82574_prepare(struct pcilat_device *pl, struct pcilat_vector *v)
{
	if (pl->irq_type != PCILAT_IRQ_MSIX) {
		e1000_prepare(pl, v);
		return;
	}
	v->raise = trigger_prepare(pl, E1000_ICS, E1000_82574_CAUSE(v->index));
	v->ack = trigger_prepare(pl, E1000_ICR, E1000_82574_CAUSE(v->index));
}

/*
 * Intel igb and igc: with MSI-X, bit v of EICS sends vector v. Otherwise the
 * family's old cause registers, at another place.
 */
#define IGB_ICR				0x1500
#define IGB_ICS				0x1504
#define IGB_IMS				0x1508
#define IGB_IMC				0x150c
#define IGB_GPIE			0x1514
#define   IGB_GPIE_NSICR		BIT(0)
#define   IGB_GPIE_MSIX			BIT(4)
#define   IGB_GPIE_PBA			BIT(31)
#define IGB_EICS			0x1520
#define IGB_EIMS			0x1524
#define IGB_EIMC			0x1528
#define IGB_EIAC			0x152c
#define IGB_EIAM			0x1530
#define IGB_EICR			0x1580
#define IGB_EITR(v)			(0x1680 + 4 * (v))

static void igb_setup(struct pcilat_device *pl)
{
	u32 v;

	if (pl->irq_type != PCILAT_IRQ_MSIX)
		return;
	trigger_write(pl, IGB_GPIE, IGB_GPIE_NSICR | IGB_GPIE_MSIX | IGB_GPIE_PBA);
	trigger_write(pl, IGB_EIAC, 0);
	trigger_write(pl, IGB_EIAM, 0);
	for (v = 0; trigger_mask(pl) >> v; v++)
		trigger_write(pl, IGB_EITR(v), 0);
}

static void igb_enable(struct pcilat_device *pl, bool on)
{
	trigger_write(pl, IGB_IMC, U32_MAX);
	trigger_write(pl, IGB_EIMC, U32_MAX);
	if (pl->irq_type == PCILAT_IRQ_MSIX) {
		trigger_write(pl, IGB_EICR, U32_MAX);
		if (on)
			trigger_write(pl, IGB_EIMS, trigger_mask(pl));
	} else {
		trigger_read(pl, IGB_ICR);
		if (on)
			trigger_write(pl, IGB_IMS, E1000_CAUSE_RXSEQ);
	}
	trigger_read(pl, IGB_EIMS);
}

static void igb_prepare(struct pcilat_device *pl, struct pcilat_vector *v)
{
	if (pl->irq_type == PCILAT_IRQ_MSIX) {
		v->raise = trigger_prepare(pl, IGB_EICS, BIT(v->index));
		v->ack = trigger_prepare(pl, IGB_EICR, BIT(v->index));
	} else {
		v->raise = trigger_prepare(pl, IGB_ICS, E1000_CAUSE_RXSEQ);
		trigger_prepare_cause(pl, v, IGB_ICR);
	}
}

/* QEMU's edu: a write to RAISE sets bits of STATUS, a write to ACK clears them. */
#define EDU_STATUS			0x24
#define EDU_RAISE			0x60
#define EDU_ACK				0x64
#define   EDU_CAUSE			BIT(0)

/* It has no mask: it sends nothing until a bit is raised. */
static void edu_enable(struct pcilat_device *pl, bool on)
{
	trigger_write(pl, EDU_ACK, U32_MAX);
}

static void edu_prepare(struct pcilat_device *pl, struct pcilat_vector *v)
{
	v->raise = trigger_prepare(pl, EDU_RAISE, EDU_CAUSE);
	v->ack = trigger_prepare(pl, EDU_ACK, EDU_CAUSE);
	if (pl->irq_type == PCILAT_IRQ_INTX)
		trigger_prepare_cause(pl, v, EDU_STATUS);
}

/* The lab's latency endpoint. */
#define LAB_IRQ_ENABLE			0x030
#define LAB_IRQ_ACK			0x038
#define LAB_TRIGGER(v)			(0x080 + 4 * (v))
#define LAB_VECTORS			16

static void lab_enable(struct pcilat_device *pl, bool on)
{
	trigger_write(pl, LAB_IRQ_ENABLE, 0);
	trigger_write(pl, LAB_IRQ_ACK, U32_MAX);
	if (on)
		trigger_write(pl, LAB_IRQ_ENABLE, trigger_mask(pl));
}

/* Its interrupt line is not used, so it needs no register of causes. */
static void lab_prepare(struct pcilat_device *pl, struct pcilat_vector *v)
{
	v->raise = trigger_prepare(pl, LAB_TRIGGER(v->index), 1);
	v->ack = trigger_prepare(pl, LAB_IRQ_ACK, BIT(v->index));
}

/*
 * Not a MODULE_DEVICE_TABLE: devices are bound by name only. User space has the same table,
 * and a test that compares both: crates/hw/src/probe/trigger.rs.
 */
static const struct pcilat_trigger triggers[] = {
	{
		.name = "e1000 ICS",
		.vendor = 0x8086,
		.devices = (const u16[]){
			0x100e, 0x1015, 0x1016, 0x1017, 0x101e,		/* e1000: 82540 */
			0x100f, 0x1011, 0x1026, 0x1027, 0x1028,		/* 82545 */
			0x1010, 0x1012, 0x101d, 0x1079, 0x107a, 0x107b,	/* 82546 */
			0x1013, 0x1014, 0x1018, 0x1076, 0x1077, 0x1078, 0x107c,	/* 82541 */
			0x1019, 0x101a, 0x1075,				/* 82547 */
			0x105e, 0x105f, 0x1060, 0x107d, 0x10b9,		/* e1000e: 82571, 82572 */
			0x108b, 0x108c, 0x109a, 0x150c,			/* 82573, 82583 */
			0x1502, 0x1503, 0x153a, 0x153b, 0,		/* 82579, I217 */
		},
		.regs_size = SZ_4K,
		.vectors = 1,
		.has_line = true,
		.setup = e1000_setup,
		.enable = e1000_enable,
		.prepare = e1000_prepare,
	}, {
		.name = "e1000e ICS",
		.vendor = 0x8086,
		.devices = (const u16[]){ 0x10d3, 0x10f6, 0 },	/* 82574L, 82574LA */
		.regs_size = SZ_4K,
		.vectors = E1000_82574_VECTORS,
		.has_line = true,
		.setup = e1000_82574_setup,
		.enable = e1000_82574_enable,
		.prepare = e1000_82574_prepare,
	}, {
		.name = "igb EICS",
		.vendor = 0x8086,
		.devices = (const u16[]){
			0x10c9, 0x10e6, 0x10e7, 0x10e8, 0x150a, 0x150d, 0x1518, 0x1526,	/* 82576 */
			0x150e, 0x150f, 0x1510, 0x1511, 0x1516, 0x1527,	/* 82580 */
			0x1521, 0x1522, 0x1523, 0x1524,			/* I350 */
			0x1533, 0x1534, 0x1535, 0x1536, 0x1537, 0x1538, 0x157b, 0x157c,	/* I210 */
			0x1539, 0,					/* I211 */
		},
		.regs_size = SZ_8K,
		.vectors = 25,
		.has_line = true,
		.setup = igb_setup,
		.enable = igb_enable,
		.prepare = igb_prepare,
	}, {
		.name = "igc EICS",
		.vendor = 0x8086,
		.devices = (const u16[]){
			0x0d9f, 0x15f2, 0x15f3, 0x15f8, 0x3100,		/* I225 */
			0x125b, 0x125c, 0x125d, 0x125e, 0x125f, 0,	/* I226, I221 */
		},
		.regs_size = SZ_8K,
		.vectors = 5,
		.has_line = true,
		.setup = igb_setup,
		.enable = igb_enable,
		.prepare = igb_prepare,
	}, {
		.name = "edu",
		.vendor = 0x1234,
		.devices = (const u16[]){ 0x11e8, 0 },
		.regs_size = SZ_4K,
		.vectors = 1,
		.has_line = true,
		.enable = edu_enable,
		.prepare = edu_prepare,
	}, {
		.name = "lab endpoint",
		.vendor = 0x1234,
		.devices = (const u16[]){ 0x5c0e, 0 },
		.regs_size = SZ_4K,
		.vectors = LAB_VECTORS,
		.enable = lab_enable,
		.prepare = lab_prepare,
	},
};

const struct pcilat_trigger *pcilat_trigger_find(u16 vendor, u16 device)
{
	const u16 *id;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(triggers); i++) {
		for (id = triggers[i].devices; triggers[i].vendor == vendor && *id; id++) {
			if (*id == device)
				return &triggers[i];
		}
	}
	return NULL;
}

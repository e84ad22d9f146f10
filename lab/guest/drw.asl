/*
 * The counter board's sub-channels as ACPI devices of the Yitian 710: BABA5000 and ARMHD700 in turns, each with its
 * window in BAR 2 of the board and with the board's interrupt pin (docs/spec/counter-board.md, "By ACPI"). The firmware
 * has placed the BAR before Linux asks for a device's resources.
 */
DefinitionBlock ("", "SSDT", 2, "PSCOPE", "DRW", 1)
{
    External (\_SB.PCI0, DeviceObj)

    Scope (\_SB.PCI0)
    {
        /* 00:05.0: the first slot that the seed's root ports leave free. */
        Device (BORD)
        {
            Name (_ADR, 0x00050000)
            OperationRegion (CONF, PCI_Config, 0x18, 8)
            Field (CONF, DWordAcc, NoLock, Preserve) { LOWB, 32, HIGH, 32 }
        }
    }

    Scope (\_SB)
    {
        /* The resources of a sub-channel by its number. QEMU's pin A of slot 5 is SPI 4, interrupt 36. */
        Method (WNDW, 1, Serialized)
        {
            Name (RBUF, ResourceTemplate ()
            {
                QWordMemory (ResourceConsumer, PosDecode, MinFixed, MaxFixed, NonCacheable, ReadWrite,
                    0, 0, 0xFFF, 0, 0x1000)
                Interrupt (ResourceConsumer, Level, ActiveHigh, Shared) { 36 }
            })
            CreateQWordField (RBUF, 0x0E, MINA)
            CreateQWordField (RBUF, 0x16, MAXA)
            MINA = (\_SB.PCI0.BORD.LOWB & 0xFFFFFFF0) | (\_SB.PCI0.BORD.HIGH << 32)
            MINA = MINA + (Arg0 << 12)
            MAXA = MINA + 0xFFF
            Return (RBUF)
        }

        Device (DR00)
        {
            Name (_HID, "BABA5000")
            Name (_UID, 0)
            Name (_PXM, 0)
            Method (_CRS) { Return (WNDW (0)) }
        }

        Device (DR01)
        {
            Name (_HID, "ARMHD700")
            Name (_UID, 1)
            Name (_PXM, 0)
            Method (_CRS) { Return (WNDW (1)) }
        }

        Device (DR02)
        {
            Name (_HID, "BABA5000")
            Name (_UID, 2)
            Name (_PXM, 0)
            Method (_CRS) { Return (WNDW (2)) }
        }

        Device (DR03)
        {
            Name (_HID, "ARMHD700")
            Name (_UID, 3)
            Name (_PXM, 0)
            Method (_CRS) { Return (WNDW (3)) }
        }

        Device (DR04)
        {
            Name (_HID, "BABA5000")
            Name (_UID, 4)
            Name (_PXM, 0)
            Method (_CRS) { Return (WNDW (4)) }
        }

        Device (DR05)
        {
            Name (_HID, "ARMHD700")
            Name (_UID, 5)
            Name (_PXM, 0)
            Method (_CRS) { Return (WNDW (5)) }
        }

        Device (DR06)
        {
            Name (_HID, "BABA5000")
            Name (_UID, 6)
            Name (_PXM, 0)
            Method (_CRS) { Return (WNDW (6)) }
        }

        Device (DR07)
        {
            Name (_HID, "ARMHD700")
            Name (_UID, 7)
            Name (_PXM, 0)
            Method (_CRS) { Return (WNDW (7)) }
        }

        Device (DR08)
        {
            Name (_HID, "BABA5000")
            Name (_UID, 8)
            Name (_PXM, 1)
            Method (_CRS) { Return (WNDW (8)) }
        }

        Device (DR09)
        {
            Name (_HID, "ARMHD700")
            Name (_UID, 9)
            Name (_PXM, 1)
            Method (_CRS) { Return (WNDW (9)) }
        }

        Device (DR0A)
        {
            Name (_HID, "BABA5000")
            Name (_UID, 10)
            Name (_PXM, 1)
            Method (_CRS) { Return (WNDW (10)) }
        }

        Device (DR0B)
        {
            Name (_HID, "ARMHD700")
            Name (_UID, 11)
            Name (_PXM, 1)
            Method (_CRS) { Return (WNDW (11)) }
        }

        Device (DR0C)
        {
            Name (_HID, "BABA5000")
            Name (_UID, 12)
            Name (_PXM, 1)
            Method (_CRS) { Return (WNDW (12)) }
        }

        Device (DR0D)
        {
            Name (_HID, "ARMHD700")
            Name (_UID, 13)
            Name (_PXM, 1)
            Method (_CRS) { Return (WNDW (13)) }
        }

        Device (DR0E)
        {
            Name (_HID, "BABA5000")
            Name (_UID, 14)
            Name (_PXM, 1)
            Method (_CRS) { Return (WNDW (14)) }
        }

        Device (DR0F)
        {
            Name (_HID, "ARMHD700")
            Name (_UID, 15)
            Name (_PXM, 1)
            Method (_CRS) { Return (WNDW (15)) }
        }
    }
}

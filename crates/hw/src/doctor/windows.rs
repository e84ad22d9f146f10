//! Addresses: BARs, the windows of bridges, and who decodes.

use pciescope_core::{Bdf, Evidence, Severity};

use super::case::{AS_ROOT, Case, Found, SetUpBy, Unseen, Verdict, fine, found, not_applicable, not_checked, seen};
use super::interrupts::is_message_signalled;
use crate::express::EXT_RESIZABLE_BAR;

// The header (7.5.1).
const COMMAND: usize = 0x04;
const MEMORY_SPACE: u16 = 1 << 1;
const BUS_MASTER: u16 = 1 << 2;
const HEADER_TYPE: usize = 0x0e;
const BAR0: usize = 0x10;
const BAR_IO: u32 = 1;
const BAR_TYPE: u32 = 7;
const BAR_64: u32 = 4;
const PREFETCHABLE: u32 = 8;
const MEMORY_WINDOW: usize = 0x20;
const PREFETCH_WINDOW: usize = 0x24;
const PREFETCH_BASE_HIGH: usize = 0x28;
const PREFETCH_LIMIT_HIGH: usize = 0x2c;

// include/linux/ioport.h; sysfs shows the flags as they are.
const IORESOURCE_MEM: u64 = 0x200;
const IORESOURCE_UNSET: u64 = 0x2000_0000;

/// How many BARs a header has (7.5.1.2 and 7.5.1.3; PCI to CardBus bridges have one): its other registers are none.
fn bar_count(case: &Case) -> u8 {
    match case.config.word(HEADER_TYPE).map_or(0, |word| word & 0x7f) {
        0 => 6,
        1 => 2,
        2 => 1,
        _ => 0,
    }
}

/// The memory BARs of a function in configuration space: number, address, low bits.
fn memory_bars(case: &Case) -> Vec<(u8, u64, u32)> {
    let (mut bars, mut number) = (Vec::new(), 0_u8);
    while number < bar_count(case) {
        let at = BAR0 + 4 * usize::from(number);
        let low = case.config.long(at).unwrap_or(0);
        let is_64 = low & BAR_IO == 0 && low & BAR_TYPE == BAR_64 && number < 5;
        if low & BAR_IO == 0 {
            let high = if is_64 { case.config.long(at + 4).unwrap_or(0) } else { 0 };
            bars.push((number, u64::from(high) << 32 | u64::from(low & !0xf), low & 0xf));
        }
        number += if is_64 { 2 } else { 1 };
    }
    bars
}

/// A line of `resource`: start, end and flags.
fn resource(line: &str) -> Option<(u64, u64, u64)> {
    let mut fields = line.split_whitespace().map(|field| u64::from_str_radix(field.trim_start_matches("0x"), 16).ok());
    Some((fields.next()??, fields.next()??, fields.next()??))
}

fn size_text(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 30 => format!("{} GiB", bytes >> 30),
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} bytes"),
    }
}

/// What gives BARs more room.
fn room(case: &Case) -> &'static str {
    match case.machine.set_up_by() {
        SetUpBy::Guest => {
            "give the guest a larger 64-bit window on the host (QEMU: pref64-reserve of the root port, and the firmware's size for 64-bit BARs)"
        }
        SetUpBy::Board => {
            "the host bridge's window is too small: enlarge it in the device tree (`ranges`), or see whether the SoC can"
        }
        SetUpBy::Computer => {
            "switch on `Above 4G Decoding` and `Resizable BAR` in the firmware setup; or boot with pci=realloc"
        }
    }
}

pub fn unassigned(case: &Case) -> Verdict {
    case.not_a_bridge()?;
    case.not_virtual()?;
    let text = case.file("resource")?;
    let mut all = Vec::new();
    for (number, line) in text.lines().take(bar_count(case).into()).enumerate() {
        let Some((start, end, flags)) = resource(line) else { continue };
        // Either the kernel knows its size and found no room, or it gave the BAR up; then the BAR's type bits are left.
        let kind = case.config.long(BAR0 + 4 * number).map_or(0, |low| low & (BAR_TYPE | PREFETCHABLE));
        let follows_64 =
            number > 0 && case.config.long(BAR0 + 4 * (number - 1)).is_some_and(|low| low & BAR_TYPE == BAR_64);
        let is_unset = flags & IORESOURCE_MEM != 0 && (flags & IORESOURCE_UNSET != 0 || start == 0) && end > start;
        let is_given_up =
            flags == 0 && end == 0 && kind & (BAR_64 | PREFETCHABLE) != 0 && kind & BAR_IO == 0 && !follows_64;
        let size = match (is_unset, is_given_up) {
            (true, _) => format!(" of {}", size_text((end - start).saturating_add(1))),
            (false, true) => String::new(),
            (false, false) => continue,
        };
        let mut evidence = vec![seen(&format!("{}, line {}", case.path("resource").display(), number + 1), line)];
        if let Some(low) = case.config.long(BAR0 + 4 * number) {
            evidence.push(case.register(&format!("BAR{number}"), BAR0 + 4 * number, low));
        }
        all.push(Found {
            severity: Severity::Problem,
            text: format!("BAR{number} of {}{size} has no address", case.bdf),
            evidence,
            consequence: "the driver fails or does without it; nothing can be measured there".to_owned(),
            remedy: room(case).to_owned(),
        });
    }
    Ok(all)
}

/// The memory windows of a bridge: base and limit; an open one has base at most limit.
fn memory_windows(bridge: &Case) -> Vec<(u64, u64)> {
    let config = bridge.config;
    let word = |at| u64::from(config.word(at).unwrap_or(0));
    let long = |at| u64::from(config.long(at).unwrap_or(0));
    let megabytes = |at| (word(at) & 0xfff0) << 16;
    // The low four bits of the prefetchable base say whether the upper halves count.
    let is_64 = word(PREFETCH_WINDOW) & 0xf == 1;
    let high = |at| if is_64 { long(at) << 32 } else { 0 };
    let windows = [
        (megabytes(MEMORY_WINDOW), megabytes(MEMORY_WINDOW + 2) | 0xf_ffff),
        (
            high(PREFETCH_BASE_HIGH) | megabytes(PREFETCH_WINDOW),
            high(PREFETCH_LIMIT_HIGH) | megabytes(PREFETCH_WINDOW + 2) | 0xf_ffff,
        ),
    ];
    windows.into_iter().filter(|(base, limit)| base <= limit).collect()
}

/// A bridge that passes on what no window takes (class 06 04 01).
const SUBTRACTIVE: u32 = 0x06_0401;

pub fn outside(case: &Case) -> Verdict {
    case.not_a_bridge()?;
    case.not_virtual()?;
    let bridge = case.port()?;
    if bridge.function.class == SUBTRACTIVE {
        return not_applicable("the bridge above it passes on all that no window takes");
    }
    case.readable()?;
    bridge.readable()?;
    let mut all = Vec::new();
    // Both sides are bus addresses, which on some machines are not those that `resource` shows.
    let windows = memory_windows(&bridge);
    for (number, address, _) in memory_bars(case) {
        let is_assigned = case.function.bars.iter().any(|bar| bar.number == number && bar.is_memory);
        if !is_assigned || address == 0 || windows.iter().any(|(base, limit)| (*base..=*limit).contains(&address)) {
            continue;
        }
        let open: Vec<String> = windows.iter().map(|(base, limit)| format!("{base:#x}-{limit:#x}")).collect();
        all.push(Found {
            severity: Severity::Problem,
            text: format!("BAR{number} of {} lies outside the windows of the bridge {} above it", case.bdf, bridge.bdf),
            evidence: vec![
                case.register(&format!("BAR{number}"), BAR0 + 4 * usize::from(number), address),
                seen(
                    &format!("memory windows of {}", bridge.bdf),
                    if open.is_empty() { "none".to_owned() } else { open.join(", ") }.as_str(),
                ),
            ],
            consequence: "accesses never reach the device: they read all-ones".to_owned(),
            remedy:
                "boot with pci=realloc, or remove and rescan the bridge (echo 1 > remove, echo 1 > /sys/bus/pci/rescan)"
                    .to_owned(),
        });
    }
    Ok(all)
}

pub fn resizable(case: &Case) -> Verdict {
    // Displays and processing accelerators: what else has the capability seldom gains.
    if !matches!(case.function.class >> 16, 0x03 | 0x12) {
        return not_applicable("it is neither a display nor an accelerator");
    }
    let at = case.extended(EXT_RESIZABLE_BAR, "Resizable BAR")?;
    let mut all = Vec::new();
    // 7.8.6.2 and 7.8.6.3: sizes from bit 4 on are 1 MiB times two to the power of the place.
    let count = case.config.long(at + 8).map_or(0, |control| control >> 5 & 7).min(6);
    for entry in 0..count as usize {
        let (Some(capability), Some(control)) =
            (case.config.long(at + 4 + 8 * entry), case.config.long(at + 8 + 8 * entry))
        else {
            break;
        };
        let (now, sizes) = (control >> 8 & 0x3f, capability >> 4);
        if sizes == 0 || now > 43 {
            continue;
        }
        let most = sizes.ilog2();
        if now >= most {
            continue;
        }
        all.push(Found {
            severity: Severity::Note,
            text: format!(
                "BAR{} of {} is {} large; it can be {}",
                control & 7,
                case.bdf,
                size_text(1 << (20 + now)),
                size_text(1 << (20 + most))
            ),
            evidence: vec![
                case.register("Resizable BAR capability", at + 4 + 8 * entry, capability),
                case.register("Resizable BAR control", at + 8 + 8 * entry, control),
            ],
            consequence: "the CPU, and other devices, see the memory through a small window that is moved about"
                .to_owned(),
            remedy: room(case).to_owned(),
        });
    }
    Ok(all)
}

/// The Command register of a device that is awake: asleep, what it decodes says nothing.
fn command(case: &Case) -> Result<u16, Unseen> {
    if case.config.is_gone() {
        case.readable()?;
    }
    if let Some(state) = case.text("power_state").filter(|state| state != "D0" && state != "unknown") {
        return not_checked(format!("it sleeps in {state}"), "look again while it is in use; see power-state");
    }
    case.config.word(COMMAND).map_or_else(|| not_checked("configuration space cannot be read", AS_ROOT), Ok)
}

/// The bridges above a function that do not pass on what the bit is for, and the function, from the root port down.
fn closed(case: &Case, bit: u16) -> Vec<(Bdf, Evidence)> {
    let all = case.above().chain(Case::of(case.machine, case.bdf));
    let word = |case: &Case| case.config.word(COMMAND).filter(|_| !case.config.is_gone());
    let is_closed = |case: &Case| word(case).is_some_and(|command| command & bit == 0);
    all.filter(is_closed).map(|one| (one.bdf, one.register("Command", COMMAND, word(&one).unwrap_or(0)))).collect()
}

fn commands(case: &Case, bit: u16) -> Vec<Evidence> {
    closed(case, bit).into_iter().map(|(_, register)| register).collect()
}

/// What switches the bit on, at the function and at the bridges above that have it off.
fn switch_on(case: &Case, bit: u16) -> String {
    let closed = closed(case, bit);
    let lines: Vec<String> =
        closed.iter().map(|(bdf, _)| format!("setpci -s {bdf} COMMAND={bit:04x}:{bit:04x}")).collect();
    let above = closed.iter().filter(|(bdf, _)| *bdf != case.bdf).map(|(bdf, _)| bdf.to_string());
    let above = above.collect::<Vec<_>>().join(", ");
    let both = if above.is_empty() { String::new() } else { format!("{above} above has it off too, so first that: ") };
    format!("{both}bind the driver anew; for a measurement {}", lines.join("; "))
}

pub fn memory_off(case: &Case) -> Verdict {
    let has_memory = case.function.bars.iter().any(|bar| bar.is_memory);
    case.not_a_bridge()?;
    case.not_virtual()?;
    if !has_memory {
        return not_applicable("it has no memory BAR");
    }
    let command = command(case)?;
    if command & MEMORY_SPACE != 0 {
        return fine();
    }
    let (severity, who) = match &case.function.driver {
        // These hold a function for others, and need not switch anything on.
        Some(driver) if driver == "vfio-pci" || driver == "pci-stub" => (Severity::Note, format!("{driver} holds it")),
        Some(driver) => (Severity::Problem, format!("although {driver} is bound")),
        None => (Severity::Note, "no driver is bound".to_owned()),
    };
    found(Found {
        severity,
        text: format!("{} does not answer to its memory BARs: decoding is off, {who}", case.bdf),
        evidence: commands(case, MEMORY_SPACE),
        consequence: "reads of its registers give all-ones",
        remedy: switch_on(case, MEMORY_SPACE),
    })
}

pub fn bus_master_off(case: &Case) -> Verdict {
    command(case)?;
    let is_master = |case: &Case| case.config.word(COMMAND).is_some_and(|command| command & BUS_MASTER != 0);
    if is_master(case) {
        return fine();
    }
    if !case.is_bridge() && case.function.driver.is_some() {
        // Whether its interrupts are messages stands in its capabilities.
        case.readable()?;
    }
    let masters: Vec<String> = case
        .children()
        .filter(|child| !child.config.is_gone() && is_master(child))
        .map(|child| child.bdf.to_string())
        .collect();
    let (text, consequence) = if case.is_bridge() && !masters.is_empty() {
        (
            format!("the bridge {} passes no DMA up, and {} below it may do DMA", case.bdf, masters.join(", ")),
            "DMA and message-signalled interrupts from below are lost",
        )
    } else if !case.is_bridge() && case.function.driver.is_some() && is_message_signalled(case) {
        (
            format!("{} has MSI or MSI-X on and bus mastering off", case.bdf),
            "its interrupts, which are writes, never leave it",
        )
    } else {
        return fine();
    };
    found(Found {
        severity: Severity::Problem,
        text,
        evidence: commands(case, BUS_MASTER),
        consequence: consequence.to_owned(),
        remedy: switch_on(case, BUS_MASTER),
    })
}

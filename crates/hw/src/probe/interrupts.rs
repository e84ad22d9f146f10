//! Counts that accompany timed interrupts; the kernel's interrupt numbers, their counts per CPU and their affinity.

use std::path::PathBuf;

use pciescope_core::Metric;

use crate::{Error, Root};

/// The counts of one CPU and vector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Interrupts that were asked for, without the warm-up.
    pub triggers: u64,
    /// Those that arrived in time.
    pub handled: u64,
    /// Those that did not arrive within the time-out.
    pub lost: u64,
    /// Interrupts without a trigger.
    pub extra: u64,
    /// Interrupts that another CPU handled.
    pub wrong_cpu: u64,
    /// At a fixed rate: triggers more than half an interval after their time.
    pub late: u64,
    /// At a fixed rate: times that passed without a trigger.
    pub missed: u64,
    /// At a fixed rate: times at which the last trigger was still unanswered, so no interrupt was raised.
    pub merged: u64,
    /// Interrupts that were asked for after a move of affinity and are not in the counts above.
    pub warmup_triggers: u64,
    /// Those of the warm-up that arrived.
    pub warmup_handled: u64,
}

impl Counts {
    /// The counts by their names in records.
    pub fn metrics(&self) -> impl Iterator<Item = (String, Metric)> + use<> {
        [
            ("triggers", self.triggers),
            ("handled", self.handled),
            ("lost", self.lost),
            ("extra", self.extra),
            ("wrong_cpu", self.wrong_cpu),
            ("late", self.late),
            ("missed", self.missed),
            ("merged", self.merged),
            ("warmup_triggers", self.warmup_triggers),
            ("warmup_handled", self.warmup_handled),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), Metric::count(value)))
    }
}

/// One line of /proc/interrupts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Linux interrupt number.
    pub irq: u32,
    /// CPU and how often it handled the interrupt.
    pub counts: Vec<(u32, u64)>,
}

/// The line of the interrupt that a driver named so; shared interrupts list several names.
pub fn parse_line(text: &str, name: &str) -> Option<Line> {
    let mut lines = text.lines();
    // The head names the online CPUs only.
    let cpus: Vec<u32> = lines.next()?.split_whitespace().filter_map(|c| c.strip_prefix("CPU")?.parse().ok()).collect();
    lines.find_map(|line| {
        let (irq, rest) = line.split_once(':')?;
        let irq = irq.trim().parse().ok()?;
        let is_named = rest.split([' ', ',']).any(|word| word == name);
        let counts: Vec<u64> = rest.split_whitespace().map_while(|word| word.parse().ok()).take(cpus.len()).collect();
        (is_named && counts.len() == cpus.len())
            .then(|| Line { irq, counts: cpus.iter().copied().zip(counts).collect() })
    })
}

/// How many interrupts were handled on `cpu`, and on all others.
pub fn split(before: &Line, after: &Line, cpu: u32) -> (u64, u64) {
    let mut sides = (0, 0);
    for &(number, count) in &after.counts {
        let old = before.counts.iter().find(|(n, _)| *n == number).map_or(0, |(_, count)| *count);
        let side = if number == cpu { &mut sides.0 } else { &mut sides.1 };
        *side += count.saturating_sub(old);
    }
    sides
}

/// An interrupt's affinity, put back when dropped.
#[derive(Debug)]
pub struct Affinity {
    path: PathBuf,
    former: String,
}

impl Affinity {
    /// Remembers the affinity of an interrupt.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn of(root: &Root, irq: u32) -> Result<Self, Error> {
        let place = format!("/proc/irq/{irq}/smp_affinity_list");
        Ok(Affinity { former: root.read(&place)?, path: root.path(&place) })
    }

    /// Moves the interrupt.
    ///
    /// # Errors
    /// [`Error::Write`]: EIO for an interrupt that the kernel manages itself, EINVAL for a CPU that is offline.
    pub fn set(&self, cpu: u32) -> Result<(), Error> {
        let value = cpu.to_string();
        std::fs::write(&self.path, &value).map_err(|source| Error::Write { path: self.path.clone(), value, source })
    }
}

impl Drop for Affinity {
    fn drop(&mut self) {
        // Freed meanwhile, or its CPUs went offline: the kernel has chosen already.
        let _ = std::fs::write(&self.path, &self.former);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::Tree;

    const TEXT: &str = "            CPU0       CPU2       CPU3
   1:          0          9          0   IO-APIC    1-edge      i8042
  24:         10          0          7   PCI-MSIX-0000:01:00.0    0-edge      vfio-msix[0](0000:01:00.0)
  25:          1          2          3   PCI-MSI 524289-edge      vfio-msix[1](0000:01:00.0)
  26:          1          2          3   IO-APIC   16-fasteoi   ehci_hcd:usb1, vfio-intx(0000:02:00.0)
 NMI:          1          2          3   Non-maskable interrupts
 ERR:          0
";

    #[test]
    fn finds_the_interrupt_by_the_name_of_its_vector() {
        let line = parse_line(TEXT, "vfio-msix[0](0000:01:00.0)").unwrap();
        assert_eq!(line, Line { irq: 24, counts: vec![(0, 10), (2, 0), (3, 7)] });
        assert_eq!(parse_line(TEXT, "vfio-msix[1](0000:01:00.0)").unwrap().irq, 25);
        assert_eq!(parse_line(TEXT, "vfio-intx(0000:02:00.0)").unwrap().irq, 26);
        assert_eq!(parse_line(TEXT, "vfio-msix[2](0000:01:00.0)"), None);
        assert_eq!(parse_line("", "x"), None);
    }

    #[test]
    fn what_landed_elsewhere_is_told_apart() {
        let before = parse_line(TEXT, "vfio-msix[0](0000:01:00.0)").unwrap();
        let after = Line { irq: 24, counts: vec![(0, 110), (2, 1), (3, 7)] };
        assert_eq!(split(&before, &after, 0), (100, 1));
    }

    #[test]
    fn an_affinity_is_put_back() {
        let file = "proc/irq/24/smp_affinity_list";
        let root = Tree::of(&[(file, "0-3\n")]);
        {
            let affinity = Affinity::of(&root, 24).unwrap();
            affinity.set(2).unwrap();
            assert_eq!(root.read(file).unwrap(), "2");
        }
        assert_eq!(root.read(file).unwrap(), "0-3");
    }
}

//! The traffic ledger: what the lab's devices moved over each root port's link and on each DRAM sub-channel.
//!
//! Devices enter their transfers; the counter board computes its counters from the sums. docs/spec/counter-board.md,
//! "The traffic ledger", says what is counted. A transfer is cut into TLPs by the rules of the PCI Express Base
//! Specification 6.0: section 2.2.7 (requests do not cross 4 KiB), 2.2.2 (payloads keep to MPS), 2.3.1.1
//! (completions end on address boundaries) and 7.5.3.4 (MPS, MRRS).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pciescope_core::Bdf;
use serde_json::{Map, Value, json};

/// Requests do not cross a boundary of so many bytes.
const PAGE: u128 = 4096;
/// Bytes of one access of the DRAM's host interface, and of a DRAM line.
const LINE: u128 = 64;
/// Largest payload of a link before software sets it, in bytes: the value of Device Control after reset.
pub const MPS_DEFAULT: u32 = 128;
/// Largest read request of a link before software sets it, in bytes: the value of Device Control after reset.
pub const MRRS_DEFAULT: u32 = 512;

/// Everything the devices of one lab process moved. Clones share one ledger.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    shared: Arc<Mutex<Sums>>,
}

#[derive(Debug, Default)]
struct Sums {
    ports: BTreeMap<Bdf, Port>,
    dies: BTreeMap<u8, Vec<SubChannel>>,
    /// Where die 1's memory begins.
    split: Option<u64>,
}

#[derive(Debug)]
struct Port {
    totals: PortTotals,
    mps: u32,
    mrrs: u32,
}

impl Default for Port {
    fn default() -> Self {
        Port { totals: PortTotals::default(), mps: MPS_DEFAULT, mrrs: MRRS_DEFAULT }
    }
}

#[derive(Debug)]
struct SubChannel {
    name: String,
    totals: DramTotals,
}

/// What passed one root port since the lab began, seen from the port: `rx` arrives at it, `tx` leaves it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortTotals {
    /// Payload bytes that arrived.
    pub rx_payload: u64,
    /// Payload bytes that left.
    pub tx_payload: u64,
    /// Memory writes that arrived: DMA to memory.
    pub rx_mwr: u64,
    /// Memory reads that arrived: DMA from memory.
    pub rx_mrd: u64,
    /// Completions with data that arrived: of the CPU's reads, configuration included.
    pub rx_cpld: u64,
    /// Completions without data that arrived: of configuration writes.
    pub rx_cpl: u64,
    /// Memory writes that left: the CPU's.
    pub tx_mwr: u64,
    /// Memory reads that left: the CPU's.
    pub tx_mrd: u64,
    /// Completions with data that left: of the device's DMA reads.
    pub tx_cpld: u64,
    /// Configuration reads that left.
    pub tx_cfgrd: u64,
    /// Configuration writes that left.
    pub tx_cfgwr: u64,
}

impl PortTotals {
    /// The TLPs by kind, with the names of the ledger.
    pub fn tlps(&self) -> [(&'static str, u64); 9] {
        [
            ("rx_mwr", self.rx_mwr),
            ("rx_mrd", self.rx_mrd),
            ("rx_cpld", self.rx_cpld),
            ("rx_cpl", self.rx_cpl),
            ("tx_mwr", self.tx_mwr),
            ("tx_mrd", self.tx_mrd),
            ("tx_cpld", self.tx_cpld),
            ("tx_cfgrd", self.tx_cfgrd),
            ("tx_cfgwr", self.tx_cfgwr),
        ]
    }

    /// TLPs that arrived.
    pub fn rx_tlps(&self) -> u64 {
        self.rx_mwr + self.rx_mrd + self.rx_cpld + self.rx_cpl
    }

    /// TLPs that left.
    pub fn tx_tlps(&self) -> u64 {
        self.tx_mwr + self.tx_mrd + self.tx_cpld + self.tx_cfgrd + self.tx_cfgwr
    }

    /// What came since `before`, which is an earlier state of the same port.
    pub fn since(&self, before: &PortTotals) -> PortTotals {
        self.with(before, u64::wrapping_sub)
    }

    /// Both together.
    pub fn plus(&self, other: &PortTotals) -> PortTotals {
        self.with(other, u64::wrapping_add)
    }

    fn with(&self, other: &PortTotals, join: fn(u64, u64) -> u64) -> PortTotals {
        PortTotals {
            rx_payload: join(self.rx_payload, other.rx_payload),
            tx_payload: join(self.tx_payload, other.tx_payload),
            rx_mwr: join(self.rx_mwr, other.rx_mwr),
            rx_mrd: join(self.rx_mrd, other.rx_mrd),
            rx_cpld: join(self.rx_cpld, other.rx_cpld),
            rx_cpl: join(self.rx_cpl, other.rx_cpl),
            tx_mwr: join(self.tx_mwr, other.tx_mwr),
            tx_mrd: join(self.tx_mrd, other.tx_mrd),
            tx_cpld: join(self.tx_cpld, other.tx_cpld),
            tx_cfgrd: join(self.tx_cfgrd, other.tx_cfgrd),
            tx_cfgwr: join(self.tx_cfgwr, other.tx_cfgwr),
        }
    }

    /// Payload and TLPs as the ledger's JSON shows them.
    pub fn to_json(&self) -> Value {
        let tlps: Map<String, Value> = self.tlps().into_iter().map(|(name, n)| (name.to_owned(), n.into())).collect();
        json!({"rx_payload": self.rx_payload, "tx_payload": self.tx_payload, "tlps": tlps})
    }
}

/// What one sub-channel saw since the lab began, in accesses of 64 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DramTotals {
    /// Reads.
    pub hif_rd: u64,
    /// Writes of whole lines.
    pub hif_wr: u64,
    /// Writes that do not cover their line.
    pub hif_rmw: u64,
}

impl DramTotals {
    /// All accesses.
    pub fn hif_rd_or_wr(&self) -> u64 {
        self.hif_rd + self.hif_wr + self.hif_rmw
    }

    fn add(&mut self, kind: Access, lines: u64) {
        match kind {
            Access::Read => self.hif_rd += lines,
            Access::Write => self.hif_wr += lines,
            Access::ReadModifyWrite => self.hif_rmw += lines,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Access {
    Read,
    Write,
    ReadModifyWrite,
}

impl Traffic {
    /// An empty ledger.
    pub fn new() -> Self {
        Traffic::default()
    }

    /// The account of a root port, made at its first use.
    pub fn port(&self, bdf: Bdf) -> PortTraffic {
        self.lock().port(bdf);
        PortTraffic { traffic: self.clone(), bdf }
    }

    /// The account of a DRAM sub-channel, made at its first use: from then on it takes part in its die's interleave,
    /// after those that were there before. A name stands for one sub-channel of the machine.
    pub fn sub_channel(&self, die: u8, name: &str) -> SubChannelTraffic {
        let mut sums = self.lock();
        let is_known = sums.dies.values().flatten().any(|sub| sub.name == name);
        if !is_known {
            let sub = SubChannel { name: name.to_owned(), totals: DramTotals::default() };
            sums.dies.entry(die).or_default().push(sub);
        }
        SubChannelTraffic { traffic: self.clone(), name: name.to_owned() }
    }

    /// Says where die 1's memory begins; with `None`, all of memory is die 0's. Only what moves later is concerned.
    pub fn set_split(&self, address: Option<u64>) {
        self.lock().split = address;
    }

    /// All accounts: `{"ports":{BDF:{...}},"dram":{NAME:{"hif_rd":N,...}}}`.
    pub fn to_json(&self) -> Value {
        let sums = self.lock();
        let ports: Map<String, Value> =
            sums.ports.iter().map(|(bdf, port)| (bdf.to_string(), port.totals.to_json())).collect();
        let dram: Map<String, Value> = sums
            .dies
            .values()
            .flatten()
            .map(|sub| {
                let DramTotals { hif_rd, hif_wr, hif_rmw } = sub.totals;
                let all = sub.totals.hif_rd_or_wr();
                let value = json!({"hif_rd": hif_rd, "hif_wr": hif_wr, "hif_rmw": hif_rmw, "hif_rd_or_wr": all});
                (sub.name.clone(), value)
            })
            .collect();
        json!({"ports": ports, "dram": dram})
    }

    /// A thread that panicked left at worst one transfer half entered.
    fn lock(&self) -> MutexGuard<'_, Sums> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The account of one root port.
#[derive(Clone, Debug)]
pub struct PortTraffic {
    traffic: Traffic,
    bdf: Bdf,
}

impl PortTraffic {
    /// The root port.
    pub fn bdf(&self) -> Bdf {
        self.bdf
    }

    /// Sets the largest payload and the largest read request of what moves from now on, in bytes; each is raised or
    /// lowered to what the specification knows, 128 to 4096.
    pub fn set_link(&self, mps: u32, mrrs: u32) {
        self.update(|port| (port.mps, port.mrrs) = (known_size(mps), known_size(mrrs)));
    }

    /// Largest payload and largest read request, in bytes.
    pub fn link(&self) -> (u32, u32) {
        let mut sums = self.traffic.lock();
        let port = sums.port(self.bdf);
        (port.mps, port.mrrs)
    }

    /// A device behind the port wrote `len` bytes of memory at `address`.
    pub fn dma_write(&self, address: u64, len: u64) {
        let mut sums = self.traffic.lock();
        let port = sums.port(self.bdf);
        port.totals.rx_mwr += pieces(address, len, port.mps);
        port.totals.rx_payload += len;
        sums.write_dram(address, len);
    }

    /// A device behind the port read `len` bytes of memory at `address`.
    pub fn dma_read(&self, address: u64, len: u64) {
        let mut sums = self.traffic.lock();
        let port = sums.port(self.bdf);
        port.totals.rx_mrd += pieces(address, len, port.mrrs);
        port.totals.tx_cpld += completions(address, len, port.mrrs, port.mps);
        port.totals.tx_payload += len;
        sums.read_dram(address, len);
    }

    /// The CPU read `len` bytes of a BAR behind the port, at most a word of the CPU's.
    pub fn cpu_read(&self, len: u64) {
        self.update(|port| {
            port.totals.tx_mrd += 1;
            port.totals.rx_cpld += 1;
            port.totals.rx_payload += len;
        });
    }

    /// The CPU wrote `len` bytes of a BAR behind the port, at most a word of the CPU's.
    pub fn cpu_write(&self, len: u64) {
        self.update(|port| {
            port.totals.tx_mwr += 1;
            port.totals.tx_payload += len;
        });
    }

    /// Configuration space behind the port was read. The completion's data is not payload of a memory transfer and
    /// stays out of `rx_payload`.
    pub fn config_read(&self) {
        self.update(|port| {
            port.totals.tx_cfgrd += 1;
            port.totals.rx_cpld += 1;
        });
    }

    /// Configuration space behind the port was written.
    pub fn config_write(&self) {
        self.update(|port| {
            port.totals.tx_cfgwr += 1;
            port.totals.rx_cpl += 1;
        });
    }

    /// What passed the port until now.
    pub fn totals(&self) -> PortTotals {
        self.traffic.lock().port(self.bdf).totals
    }

    fn update(&self, change: impl FnOnce(&mut Port)) {
        change(self.traffic.lock().port(self.bdf));
    }
}

/// The account of one DRAM sub-channel.
#[derive(Clone, Debug)]
pub struct SubChannelTraffic {
    traffic: Traffic,
    name: String,
}

impl SubChannelTraffic {
    /// The sub-channel's name, such as `21000`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the sub-channel saw until now.
    pub fn totals(&self) -> DramTotals {
        let sums = self.traffic.lock();
        sums.dies.values().flatten().find(|sub| sub.name == self.name).map(|sub| sub.totals).unwrap_or_default()
    }
}

impl Sums {
    fn port(&mut self, bdf: Bdf) -> &mut Port {
        self.ports.entry(bdf).or_default()
    }

    fn read_dram(&mut self, address: u64, len: u64) {
        let (start, end) = span(address, len);
        if start < end {
            self.add_lines(Access::Read, start / LINE, end.div_ceil(LINE));
        }
    }

    /// Whole lines are written; at the ends of the transfer, a line may be covered in part.
    fn write_dram(&mut self, address: u64, len: u64) {
        let (start, end) = span(address, len);
        if start == end {
            return;
        }
        let (first, last) = (start / LINE, end.div_ceil(LINE));
        let (whole_first, whole_last) = (start.div_ceil(LINE), end / LINE);
        if whole_first > whole_last {
            // Within one line, covering neither of its ends.
            self.add_lines(Access::ReadModifyWrite, first, last);
            return;
        }
        self.add_lines(Access::ReadModifyWrite, first, whole_first);
        self.add_lines(Access::Write, whole_first, whole_last);
        self.add_lines(Access::ReadModifyWrite, whole_last, last);
    }

    /// Enters lines `first` to before `end`.
    fn add_lines(&mut self, kind: Access, first: u128, end: u128) {
        let split = self.split.map_or(u128::MAX, |address| u128::from(address).div_ceil(LINE));
        for (die, first, end) in [(0, first, end.min(split)), (1, first.max(split), end)] {
            let Some(subs) = self.dies.get_mut(&die).filter(|_| first < end) else { continue };
            let count = subs.len() as u128;
            for (index, sub) in subs.iter_mut().enumerate() {
                // How many numbers below n leave the remainder `index`, twice.
                let below = |n: u128| (n + count - 1 - index as u128) / count;
                sub.totals.add(kind, (below(end) - below(first)) as u64);
            }
        }
    }
}

/// First byte and the one after the last. A transfer never passes the end of the address space.
fn span(address: u64, len: u64) -> (u128, u128) {
    (address.into(), (u128::from(address) + u128::from(len)).min(1 << 64))
}

fn known_size(bytes: u32) -> u32 {
    bytes.clamp(128, 4096).next_power_of_two()
}

/// TLPs of requests for a transfer: each has at most `most` bytes, counted from the transfer's start or the last
/// boundary of 4 KiB, which none crosses.
fn pieces(address: u64, len: u64, most: u32) -> u64 {
    by_page(address, len, |start, end| (end - start).div_ceil(most.into()))
}

/// Completions of a read: every request is answered in pieces that end on boundaries of `mps`.
fn completions(address: u64, len: u64, mrrs: u32, mps: u32) -> u64 {
    let (mrrs, mps) = (u128::from(mrrs), u128::from(mps));
    by_page(address, len, |mut start, end| {
        let mut count = 0;
        while start < end {
            let request_end = (start + mrrs).min(end);
            count += request_end.div_ceil(mps) - start / mps;
            start = request_end;
        }
        count
    })
}

/// Sums `count` over the parts of a transfer in each 4 KiB; whole pages are all alike.
fn by_page(address: u64, len: u64, count: impl Fn(u128, u128) -> u128) -> u64 {
    let (start, end) = span(address, len);
    let (head_end, tail_start) = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
    let sum = if head_end > tail_start {
        count(start, end)
    } else {
        count(start, head_end) + (tail_start - head_end) / PAGE * count(0, PAGE) + count(tail_start, end)
    };
    sum as u64
}

#[cfg(test)]
mod tests;

//! What moves on the synthetic machine: each flow is a wave around a mean rate, so that sums over time have a closed form and
//! never fall.

use std::f64::consts::TAU;

/// A rate that goes up and down: per second.
#[derive(Debug, Clone, Copy)]
pub struct Wave {
    /// The mean.
    mean: f64,
    /// How far it goes from the mean, as a part of it, below 1.
    swing: f64,
    /// Seconds from one top to the next.
    period_s: f64,
}

const fn wave(mean: f64, swing: f64, period_s: f64) -> Wave {
    Wave { mean, swing, period_s }
}

impl Wave {
    /// Added up from the beginning.
    pub fn sum(self, seconds: f64) -> f64 {
        let turns = TAU * seconds / self.period_s;
        self.mean * (seconds + self.swing * self.period_s / TAU * (1.0 - turns.cos()))
    }

    fn times(self, factor: f64) -> Wave {
        Wave { mean: self.mean * factor, ..self }
    }
}

/// A device that the kernel counts.
#[derive(Debug)]
pub struct Flow {
    /// `nvme0n1`, `eth0`.
    pub name: &'static str,
    /// The PMU of its root port; empty where there is none.
    port: &'static str,
    /// Bytes from device to host.
    pub rx: Wave,
    /// Bytes from host to device.
    pub tx: Wave,
}

const fn flow(name: &'static str, port: &'static str, rx: Wave, tx: Wave) -> Flow {
    Flow { name, port, rx, tx }
}

/// What the kernel counts.
pub const FLOWS: [Flow; 5] = [
    flow("nvme0n1", "dwc_rootport_10", wave(5.6e9, 0.5, 23.0), wave(0.9e9, 0.8, 17.0)),
    flow("nvme1n1", "dwc_rootport_18", wave(0.35e9, 0.9, 11.0), wave(2.4e9, 0.4, 29.0)),
    flow("eth0", "dwc_rootport_8008", wave(9.1e9, 0.35, 19.0), wave(6.2e9, 0.45, 13.0)),
    flow("eth1", "dwc_rootport_8008", wave(1.3e9, 0.6, 7.0), wave(0.8e9, 0.6, 9.0)),
    flow("sda", "", wave(21e6, 0.9, 5.0), wave(9e6, 0.9, 6.0)),
];
/// What hardware counts on top of it, as a part: descriptors and completions.
const OVERHEAD: f64 = 0.025;
/// A port whose traffic the kernel does not see: device to device.
const UNSEEN: Flow = flow("", "dwc_rootport_8010", wave(21e9, 0.3, 15.0), wave(17e9, 0.35, 21.0));

/// Interrupts of a device.
pub const INTERRUPTS: Wave = wave(42_000.0, 0.4, 12.0);
/// Errors that the link of the second disk repaired, which the kernel was told of.
pub const REPAIRED: Wave = wave(0.4, 0.9, 31.0);
/// Bytes that a channel of memory reads and writes.
const READ: Wave = wave(11e9, 0.4, 25.0);
const WRITE: Wave = wave(6e9, 0.5, 16.0);
/// Clock of a channel, which carries 32 bytes in a cycle.
const CHANNEL_HZ: f64 = 1.1e9;
/// Period of the core clock of a port, in picoseconds.
const CORE_PS: u64 = 1000;

/// What an event of a PMU has counted in a time.
pub fn count(pmu: &str, terms: &str, seconds: f64, is_sick: bool) -> u64 {
    let event = terms.split(',').next().unwrap_or_default();
    let whole = |sum: f64| sum.max(0.0) as u64;
    if pmu.starts_with("ali_drw_") {
        // Channels differ, and the second die has less to do.
        let share = if pmu.starts_with("ali_drw_4") { 0.4 } else { 1.0 } * if pmu.ends_with("80") { 0.8 } else { 1.0 };
        return match event {
            "hif_rd" => whole(READ.times(share / 64.0).sum(seconds)),
            "hif_wr" => whole(WRITE.times(share / 64.0).sum(seconds)),
            "hif_rmw" => whole(WRITE.times(share / 64.0 / 50.0).sum(seconds)),
            "cycle" => whole(CHANNEL_HZ * seconds),
            _ => 0,
        };
    }
    let of_port = |direction: fn(&Flow) -> Wave| {
        let flows = FLOWS.iter().filter(|flow| flow.port == pmu);
        let seen: f64 = flows.map(|flow| direction(flow).times(1.0 + OVERHEAD).sum(seconds)).sum();
        seen + if UNSEEN.port == pmu { direction(&UNSEEN).sum(seconds) } else { 0.0 }
    };
    let is_sick = is_sick && pmu == "dwc_rootport_18";
    match event {
        "rx_pcie_tlp_data_payload" => whole(of_port(|flow| flow.rx)),
        "tx_pcie_tlp_data_payload" => whole(of_port(|flow| flow.tx)),
        "one_cycle" => CORE_PS,
        "L0" => whole(seconds * 0.97 * 1e12 / CORE_PS as f64),
        "L1" => whole(seconds * 0.02 * 1e12 / CORE_PS as f64),
        "CFG_RCVRY" if is_sick => whole(seconds * 0.001 * 1e12 / CORE_PS as f64),
        "lcrc_error" | "bad_tlp" | "retry_tlp" | "tx_nak_dllp" if is_sick => whole(REPAIRED.sum(seconds)),
        "l0_to_recovery" if is_sick => whole(REPAIRED.sum(seconds) / 4.0),
        _ => 0,
    }
}

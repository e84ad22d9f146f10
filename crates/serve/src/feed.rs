//! What `/api/state` and `/api/events` say: the types are the contract between the exporter and the page. docs/serve.md,
//! "JSON", describes them to users.
//!
//! Strings come from devices and users and are hostile: code that shows them must escape them. Unknown fields are left
//! out, never 0. Shares are from 0 to 1; rates are per second.

use std::collections::BTreeMap;

use pciescope_core::record::{Failure, Warning};
use pciescope_core::{Bdf, Below, Device, Link};
use serde::Serialize;
use serde_with::skip_serializing_none;

/// The intervals that are kept as history.
pub const HISTORY: usize = 300;

/// `GET /api/state`: everything that is known, with the history.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Feed {
    /// Version of this shape: 1. Fields may be added within a version.
    pub schema: u32,
    /// The machine's name; of a replay that of the record, empty where it has none.
    pub host: String,
    /// Version of pciescope.
    pub tool: String,
    /// Whether the fake backend made the machine and all figures up.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_synthetic: bool,
    /// What the user calls this run.
    pub label: Option<String>,
    /// The time between two readings, in seconds, as it was asked for.
    pub interval_s: f64,
    /// When this was written, in milliseconds since 1970: it is kept until something changes.
    pub now_ms: u64,
    /// Whether something counts.
    pub status: Status,
    /// What is doubtful about the last reading, each text once.
    pub warnings: Vec<Warning>,
    /// Root ports with counters, in ascending order of their addresses, and functions on a root bus with the kernel's account.
    pub ports: Vec<Port>,
    /// Functions below root ports with the kernel's account, in ascending order of their addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<Port>,
    /// Channels of DRAM with counters, by node and name.
    pub channels: Vec<Channel>,
    /// PMUs that are neither: PCIe stacks, endpoints, fabrics, memory of a socket.
    pub others: Vec<Other>,
    /// All PCI functions with a link, also those without counters.
    pub devices: Vec<Device>,
    /// The bridges above a device, from the root port down, by the device's address, where there are several.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub paths: BTreeMap<String, Vec<Bdf>>,
    /// The last [`HISTORY`] readings, the oldest first.
    pub readings: Vec<Reading>,
}

/// Whether something counts.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Status {
    /// `starting`, `counting`, `replaying`, `ended` (of a replay) or `none` (nothing can be counted).
    pub state: String,
    /// Why nothing is counted.
    pub text: Option<String>,
    /// What the user can do about it.
    pub hint: Option<String>,
}

/// A root port, or a function.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Port {
    /// Its name in readings; opaque, the same for as long as the server runs.
    pub id: String,
    /// Its address.
    pub bdf: Option<Bdf>,
    /// The PMU that counts for it.
    pub pmu: Option<String>,
    /// The source of the counts: `kernel accounting`, for which the bytes are a lower bound; absent if hardware counts.
    pub source: Option<String>,
    /// Vendor and device in words.
    pub name: String,
    /// The bound driver.
    pub driver: Option<String>,
    /// The names that programs use of its devices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// NUMA node.
    pub node: Option<u32>,
    /// The link below it.
    pub link: Option<Link>,
    /// What both ends of the link can do, where it has less.
    pub possible: Option<Possible>,
    /// The payload that the link can carry in one direction, in bytes per second.
    pub ceiling_bytes_per_s: Option<f64>,
    /// The functions below it, bridges left out.
    pub below: Vec<Below>,
    /// Why it no longer counts.
    pub error: Option<Failure>,
    /// Whether its figures are an emulator's or a guest's.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_emulated: bool,
    /// Whether errors of its link are counted: then an error that a reading does not name is 0.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub counts_errors: bool,
    /// Whether the kernel counted what hardware counts too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_second: bool,
}

/// What both ends of a link can do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Possible {
    /// Transfer rate, in GT/s.
    pub speed_gts: f64,
    /// Lanes.
    pub width: u8,
}

/// A channel or sub-channel of DRAM.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Channel {
    /// Its name in readings.
    pub id: String,
    /// The PMU that counts for it.
    pub pmu: String,
    /// NUMA node: one per die.
    pub node: Option<u32>,
    /// The CPU on which it is counted, where that tells it from another instance of its PMU.
    pub cpu: Option<u32>,
    /// Where it sits, by the catalogue: `socket`, `die`, `channel`, `sub_channel`, as far as the PMU's name tells.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub place: BTreeMap<String, u64>,
    /// The most that it can carry, in bytes per second.
    pub peak_bytes_per_s: Option<f64>,
    /// Why it no longer counts.
    pub error: Option<Failure>,
    /// Whether its figures are an emulator's or a guest's.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_emulated: bool,
}

/// A PMU that is neither a port nor a channel.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Other {
    /// Its name in readings.
    pub id: String,
    /// Its name in sysfs.
    pub pmu: String,
    /// NUMA node.
    pub node: Option<u32>,
    /// The CPU on which it is counted, where that tells it from another instance of its PMU.
    pub cpu: Option<u32>,
    /// What it is, by the catalogue.
    pub title: Option<String>,
    /// Why it no longer counts.
    pub error: Option<Failure>,
    /// Whether its figures are an emulator's or a guest's.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_emulated: bool,
}

/// One interval: an entry of [`Feed::readings`], and the data of an event `reading` of `GET /api/events`. An instance that
/// is not in it was not read.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Reading {
    /// Its end, in milliseconds since 1970.
    pub time_ms: u64,
    /// Its length.
    pub seconds: f64,
    /// Ports by [`Port::id`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<String, PortReading>,
    /// Functions by [`Port::id`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub functions: BTreeMap<String, PortReading>,
    /// Channels by [`Channel::id`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub channels: BTreeMap<String, ChannelReading>,
    /// Other PMUs by [`Other::id`]: figures by the names of records, in their units.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<String, BTreeMap<String, f64>>,
}

/// What a port did in an interval.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PortReading {
    /// Payload from device to host, in bytes per second.
    pub rx: Option<f64>,
    /// Payload from host to device, in bytes per second.
    pub tx: Option<f64>,
    /// `rx` divided by what the link can carry.
    pub rx_share: Option<f64>,
    /// `tx` divided by what the link can carry.
    pub tx_share: Option<f64>,
    /// Parts of the time by state of the link: `l0`, `l1`, `recovery`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub states: BTreeMap<String, f64>,
    /// Errors and the like in this interval, by the names of records (`layer2_errors`, `bad_tlp`, `naks`); those that are 0
    /// are left out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, f64>,
    /// The least share of the time in which a counter behind these figures ran, where it was not all.
    pub running: Option<f64>,
    /// Errors of the link in this interval, each event once, where they are counted.
    pub error_count: Option<f64>,
    /// Whether next to nothing passed, and no error came.
    pub is_idle: bool,
    /// Whether a counter reached its end, so that there may have been more errors.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
}

/// What a channel did in an interval.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ChannelReading {
    /// Read from DRAM, in bytes per second.
    pub read: Option<f64>,
    /// Written to DRAM, in bytes per second.
    pub write: Option<f64>,
    /// Both, as a part of the peak.
    pub peak_share: Option<f64>,
    /// The least share of the time in which a counter behind these figures ran, where it was not all.
    pub running: Option<f64>,
}

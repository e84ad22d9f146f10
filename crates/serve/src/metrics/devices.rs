//! The inventory: functions with a link, disks and interfaces.

use std::collections::BTreeMap;

use pciescope_core::change::Cause;
use pciescope_core::{Bdf, Device, DeviceErrors, Link, WatchedLink};

use super::{Writer, label, more};
use crate::series::{Family, Type};
use crate::state::Inner;

/// Every function with a link, and every disk and interface.
pub(super) fn write(writer: &mut Writer, inner: &Inner) {
    let devices = &inner.devices;
    let of = |device: &Device| more("", "device", &device.bdf.to_string());
    let help = "A PCI function with a link: its name, class, driver, NUMA node and the root port above it.";
    writer.all(
        &Family::new("pciescope_device", Type::Info, "", help),
        devices.iter().map(|device| {
            let mut all = of(device);
            label(&mut all, "name", &device.name);
            label(&mut all, "class", &device.class);
            label(&mut all, "driver", device.driver.as_deref().unwrap_or_default());
            label(&mut all, "numa_node", &device.node.map_or_else(String::new, |node| node.to_string()));
            label(&mut all, "port", &device.path.first().map_or_else(String::new, |port| port.to_string()));
            (all, 1.0)
        }),
    );
    names(writer, inner);
    type Value = fn(&Link) -> f64;
    let links: [(&str, &'static str, &str, Value); 4] = [
        (
            "pciescope_device_current_link_transfers_per_second",
            "transfers_per_second",
            "Transfer rate of the link now; 0 where it is down.",
            |link| link.speed_gts * 1e9,
        ),
        (
            "pciescope_device_max_link_transfers_per_second",
            "transfers_per_second",
            "Highest transfer rate of this end of the link.",
            |link| link.max_speed_gts * 1e9,
        ),
        ("pciescope_device_current_link_width", "", "Lanes of the link now; 0 where it is down.", |link| {
            f64::from(link.width)
        }),
        ("pciescope_device_max_link_width", "", "Most lanes of this end of the link.", |link| {
            f64::from(link.max_width)
        }),
    ];
    for (name, unit, help, value) in links {
        // What a nominal link states is no speed.
        let known = devices.iter().filter(|device| !device.link.is_nominal);
        let linked = known.map(|device| (of(device), value(&device.link)));
        writer.all(&Family::new(name, Type::Gauge, unit, help), linked);
    }
    let help = "Whether the link is slower or narrower than both of its ends can do.";
    writer.all(
        &Family::new("pciescope_device_link_downtrained", Type::Gauge, "", help),
        devices.iter().filter_map(|device| Some((of(device), f64::from(u8::from(device.is_downtrained?))))),
    );
    let watched = |value: fn(&WatchedLink) -> Option<f64>| {
        let all = devices.iter().filter_map(move |device| Some((device, value(device.watched.as_ref()?)?)));
        all.map(|(device, value)| (of(device), value)).collect::<Vec<_>>()
    };
    let help = "Changes of the link in the last 7 days, by cause, as the recorder has kept them.";
    let changes = Family::new("pciescope_device_link_week_changes", Type::Gauge, "", help);
    let by_cause = devices.iter().filter_map(|device| Some((of(device), device.watched.as_ref()?)));
    writer.all(
        &changes,
        by_cause.flat_map(|(of, link)| {
            Cause::ALL
                .map(Cause::name)
                .map(|cause| (more(&of, "cause", cause), link.causes.get(cause).copied().unwrap_or_default() as f64))
        }),
    );
    let help = "What the link could have carried more in its best state, in the last 7 days; power saving left out.";
    let lost = Family::new("pciescope_device_link_week_lost_bytes", Type::Gauge, "bytes", help);
    writer.all(&lost, watched(|link| Some(link.lost_bytes)));
    let help = "When the link last changed, in seconds since 1970.";
    let changed = Family::new("pciescope_device_link_last_change_timestamp_seconds", Type::Gauge, "seconds", help);
    writer.all(&changed, watched(|link| link.changed_s.map(|at| at as f64)));
    let reporting = || devices.iter().filter_map(|device| Some((device, device.errors.as_ref()?)));
    let severities = |errors: &DeviceErrors| {
        [("correctable", &errors.correctable), ("nonfatal", &errors.nonfatal), ("fatal", &errors.fatal)]
            .map(|(severity, counts)| (severity, counts.clone()))
    };
    let help = "Errors that the function reported since the kernel found it (AER).";
    writer.all(
        &Family::new("pciescope_device_aer_errors", Type::Counter, "", help),
        reporting().flat_map(|(device, errors)| {
            severities(errors).map(|(severity, counts)| {
                let sum: u64 = counts.values().fold(0, |sum, count| sum.saturating_add(*count));
                (more(&of(device), "severity", severity), sum as f64)
            })
        }),
    );
    let help = "The same by the kernel's names for them, each from its first error on.";
    writer.all(
        &Family::new("pciescope_device_aer_error_kinds", Type::Counter, "", help),
        reporting().flat_map(|(device, errors)| {
            severities(errors).into_iter().flat_map(move |(severity, counts)| {
                let of = more(&of(device), "severity", severity);
                counts
                    .into_iter()
                    .map(move |(name, count)| (more(&of, "error", &name), count as f64))
                    .collect::<Vec<_>>()
            })
        }),
    );
}

/// The disks and interfaces, as node_exporter names them in its label `device`, each with its function and root port.
fn names(writer: &mut Writer, inner: &Inner) {
    let mut all: BTreeMap<(String, Bdf), (Option<Bdf>, String)> = BTreeMap::new();
    let mut add = |names: &[String], bdf: Bdf, port: Option<Bdf>, driver: Option<&str>| {
        for name in names {
            all.insert((name.clone(), bdf), (port, driver.unwrap_or_default().to_owned()));
        }
    };
    for one in inner.instances() {
        let own = one.source.port.as_ref();
        own.into_iter().filter_map(|own| Some((own, own.bdf?))).for_each(|(own, bdf)| {
            add(&own.devices, bdf, own.path.first().copied(), own.driver.as_deref());
        });
        let port = own.filter(|_| one.source.scope == "port").and_then(|port| port.bdf);
        one.source.below.iter().for_each(|below| add(&below.devices, below.bdf, port, below.driver.as_deref()));
    }
    for device in &inner.devices {
        add(&device.devices, device.bdf, device.path.first().copied(), device.driver.as_deref());
    }
    let help = "A disk or interface, named as node_exporter names it, with its function and the root port above it.";
    writer.all(
        &Family::new("pciescope_device_name", Type::Info, "", help),
        all.into_iter().map(|((name, bdf), (port, driver))| {
            let mut all = more("", "device", &name);
            label(&mut all, "function", &bdf.to_string());
            label(&mut all, "driver", &driver);
            label(&mut all, "port", &port.map_or_else(String::new, |port| port.to_string()));
            (all, 1.0)
        }),
    );
}

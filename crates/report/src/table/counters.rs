//! Counters: root ports, functions, DRAM channels with their sums, and everything else by name.

use pciescope_core::{Below, Record};

use super::Page;
use crate::counters::{CHANNEL, ERRORS, PORT, RETRIES, Row, others, rows, states};
use crate::layout::{Left, Right, Rows};
use crate::text::{clean, first_of};

/// The tables of records of counters; several of one instance are its intervals and are joined.
pub(super) fn tables(out: &mut Page, records: &[&Record]) {
    let rows = rows(records);
    let seconds: f64 = rows.iter().map(|row| row.seconds).fold(0.0, f64::max);
    let intervals = rows.iter().map(|row| row.intervals).max().unwrap_or(0);
    let of = if intervals > 1 { format!(" in {intervals} intervals") } else { String::new() };
    out.line(&format!("Time:   {seconds:.6} s{of}"));
    ports(out, &rows);
    functions(out, &rows);
    if let Some(columns) = states(&rows) {
        out.heading("Link states, % of the time");
        out.table(columns);
    }
    channels(out, &rows);
    if let Some(columns) = others(&rows) {
        out.heading("By name");
        out.table(columns);
    }
}

fn ports(out: &mut Page, rows: &[Row]) {
    let is_port = |row: &&Row| {
        row.instance.scope != "function"
            && (row.has_any(&PORT)
                || row.has_any(&ERRORS)
                || (row.instance.scope == "port" && row.record.error.is_some()))
    };
    let mut rows: Vec<&Row> = rows.iter().filter(is_port).collect();
    // Hardware's counters of a port, and then the kernel's account of it.
    rows.sort_by_key(|row| row.record.device.as_ref().and_then(|device| device.bdf));
    let bound = if rows.iter().any(|row| row.instance.is_accounting()) { BOUND } else { "" };
    let title = "PCIe, MB/s of payload (Rx: from the device to the port) and % of the link's ceiling";
    links(out, &format!("{title}{bound}"), "Port", &rows);
}

/// What a heading adds where the kernel counted.
const BOUND: &str = "; kernel accounting is a lower bound";

/// Functions by themselves, as the kernel counted them.
fn functions(out: &mut Page, rows: &[Row]) {
    let is_function = |row: &&Row| row.instance.scope == "function";
    let rows: Vec<&Row> = rows.iter().filter(is_function).collect();
    links(
        out,
        "PCI functions with all below them, MB/s of payload, by kernel accounting: a lower bound",
        "Function",
        &rows,
    );
}

/// A table of ports or functions.
fn links(out: &mut Page, title: &str, what: &str, rows: &[&Row]) {
    if rows.is_empty() {
        return;
    }
    out.heading(title);
    let has_accounts = rows.iter().any(|row| row.instance.is_accounting());
    let columns = Rows::of(rows).columns(&[
        (what, 12, Left, &|row| row.name()),
        ("Source", 6, Left, &|row| {
            match has_accounts {
                true if row.instance.is_accounting() => "kernel",
                true => "hardware",
                false => "-",
            }
            .to_owned()
        }),
        ("Link", 10, Left, &|row| {
            row.record.device.as_ref().and_then(|device| device.link_words()).unwrap_or_else(|| "-".to_owned())
        }),
        ("Rx(MB/s)", 9, Right, &|row| row.mega("rx_bytes_per_s")),
        ("Rx(%)", 5, Right, &|row| row.percent("rx_link_share")),
        ("Tx(MB/s)", 9, Right, &|row| row.mega("tx_bytes_per_s")),
        ("Tx(%)", 5, Right, &|row| row.percent("tx_link_share")),
        ("Run(%)", 6, Right, &|row| row.running_cell(PORT.into_iter())),
        ("Errors", 6, Right, &|row| row.errors()),
        // A NAK is answered by sending again.
        ("Retries", 7, Right, &|row| row.most_of(&RETRIES)),
        ("Recov", 5, Right, &|row| row.most_of(&["recoveries"])),
        ("Irq/s", 5, Right, &|row| row.cell("interrupts_per_s", |value| format!("{value:.0}"))),
        ("Below it", 8, Left, &|row| match &row.record.error {
            Some(error) => format!("error: {}", clean(&error.code)),
            None if row.instance.scope == "function" => row.called(),
            None if row.instance.below.is_empty() => "-".to_owned(),
            None => row.instance.below.iter().map(below).collect::<Vec<_>>().join(", "),
        }),
    ]);
    out.table(columns.without_empty());
}

/// A device in few words: address, and name, driver or what it is.
fn below(below: &Below) -> String {
    let words = first_of(&below.devices).or_else(|| below.driver.as_deref().map(clean));
    format!("{} {}", below.bdf, words.unwrap_or_else(|| clean(&below.name)))
}

fn channels(out: &mut Page, rows: &[Row]) {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.has_any(&CHANNEL)).collect();
    if rows.is_empty() {
        return;
    }
    out.heading("DRAM, MB/s and % of what the channel can carry");
    let columns = Rows::of(rows).columns(&[
        ("Channel", 16, Left, &|row| row.name()),
        ("Node", 4, Right, &|row| row.instance.node.map_or_else(|| "-".to_owned(), |node| node.to_string())),
        ("Read(MB/s)", 10, Right, &|row| row.mega("read_bytes_per_s")),
        ("Write(MB/s)", 11, Right, &|row| row.mega("write_bytes_per_s")),
        ("Total(MB/s)", 11, Right, &|row| row.mega("total_bytes_per_s")),
        ("Peak(%)", 7, Right, &|row| row.percent("peak_share")),
        ("Clock(MHz)", 10, Right, &|row| row.cell("cycles_per_s", |value| format!("{:.1}", value / 1e6))),
        ("Run(%)", 6, Right, &|row| row.running_cell(CHANNEL.into_iter())),
    ]);
    out.table(columns.without_empty());
}

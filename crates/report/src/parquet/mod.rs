//! Records as Parquet files, for DuckDB, polars and pandas: a table of figures, one of runs and one of findings, each a file.
//!
//! docs/record.md says what each column means. An unknown value is null; so is a figure that is not finite. Records are
//! processed one by one and freed with each row group, so a file of any length needs little memory.

mod figures;
mod findings;
mod runs;
mod table;

use std::io::{self, Write};

use pciescope_core::{Record, Sink};

use self::figures::Figures;
use self::findings::Findings;
use self::runs::Runs;
use self::table::{Column, Growing, Rows};

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// One row per histogram, metric and hot spot.
    Figures,
    /// One row per run: its machine and its plan.
    Runs,
    /// One row per finding of `doctor`.
    Findings,
}

/// All tables.
pub const TABLES: [Table; 3] = [Table::Figures, Table::Runs, Table::Findings];

impl Table {
    /// The names of its columns, in order.
    pub fn columns(self) -> Vec<&'static str> {
        fn names<R>(columns: Vec<Column<R>>) -> Vec<&'static str> {
            columns.into_iter().map(|(name, _)| name).collect()
        }
        match self {
            Table::Figures => names(Figures::columns()),
            Table::Runs => names(runs::columns()),
            Table::Findings => names(Findings::columns()),
        }
    }
}

/// A sink that writes a table.
pub struct Writer<W: Write + Send> {
    number: u64,
    /// `None` once it is finished.
    body: Option<Body<W>>,
}

enum Body<W: Write + Send> {
    Figures(Growing<Figures, W>),
    Runs(Runs, W),
    Findings(Growing<Findings, W>),
}

impl<W: Write + Send> Writer<W> {
    /// A sink onto `out`; the file is whole once [`Sink::finish`] has returned.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub fn new(table: Table, out: W) -> io::Result<Self> {
        let body = match table {
            Table::Figures => Body::Figures(Growing::new(out)?),
            Table::Runs => Body::Runs(Runs::default(), out),
            Table::Findings => Body::Findings(Growing::new(out)?),
        };
        Ok(Writer { number: 0, body: Some(body) })
    }
}

impl<W: Write + Send> Sink for Writer<W> {
    /// What is taken is written when its row group is full.
    fn put(&mut self, record: &Record) -> io::Result<()> {
        let number = self.number;
        self.number += 1;
        match &mut self.body {
            Some(Body::Figures(table)) => table.put(number, record),
            Some(Body::Findings(table)) => table.put(number, record),
            Some(Body::Runs(runs, _)) => {
                runs.put(record);
                Ok(())
            }
            None => Err(io::Error::other("the file is finished")),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        match self.body.take() {
            Some(Body::Figures(table)) => table.finish(),
            Some(Body::Findings(table)) => table.finish(),
            Some(Body::Runs(runs, out)) => table::write(out, &runs::columns(), runs.rows()),
            None => Ok(()),
        }
    }
}

/// Writes a table of these records as one file.
///
/// # Errors
/// When `out` cannot be written.
pub fn write(table: Table, records: &[Record], out: impl Write + Send) -> io::Result<()> {
    let mut writer = Writer::new(table, out)?;
    writer.put_all(records)?;
    writer.finish()
}

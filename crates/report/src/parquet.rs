//! Records as Parquet files, for DuckDB, polars, pandas and pciescope-fleet; [`columns`](crate::columns) has the tables.
//!
//! An unknown value is null; so is a figure that is not finite. Records are freed with each row group, and groups are
//! encoded on several CPUs, so a file of any length needs the memory of some groups.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{JoinHandle, available_parallelism, spawn};

use ::parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical};
use ::parquet::column::writer::ColumnWriterImpl;
use ::parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, Int32Type,
    Int64Type,
};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::types::Type;
use bytes::Bytes;
use pciescope_core::{Record, Sink};

use crate::columns::{Column, Gathered, Get, Leaf, Row, Table, micros};
use crate::jsonl::name;

/// The most rows of a row group: what a reader takes or leaves at a time, and what the writer holds at a time.
const GROUP_ROWS: usize = 32_768;
/// A row group ends with the record that brings it to this number of buckets.
const GROUP_BUCKETS: usize = 1 << 20;
/// The most row groups that are encoded at a time: each takes about 30 MB.
const MOST_THREADS: usize = 8;

/// A sink that writes a table.
pub struct Writer<W: Write + Send> {
    table: Table,
    /// `None` once the file is finished.
    out: Option<SerializedFileWriter<W>>,
    number: u64,
    /// From which the next records are, and its name.
    path: PathBuf,
    file: Arc<str>,
    /// Records of the next group, with their numbers among all and their files.
    held: Vec<(u64, Record, Arc<str>)>,
    rows: usize,
    buckets: usize,
    runs: Gathered,
    /// Groups that are being encoded, in the order of the file.
    encoding: VecDeque<JoinHandle<Result<Vec<u8>, ParquetError>>>,
}

impl<W: Write + Send> Writer<W> {
    /// A sink onto `out`; the file is whole once [`Sink::finish`] has returned.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub fn new(table: Table, out: W) -> io::Result<Self> {
        let out = Some(begin(table, out).map_err(plain)?);
        let (held, runs, encoding) = (Vec::new(), Gathered::default(), VecDeque::new());
        Ok(Writer {
            table,
            out,
            number: 0,
            path: PathBuf::new(),
            file: "".into(),
            held,
            rows: 0,
            buckets: 0,
            runs,
            encoding,
        })
    }

    /// Gives the group to a thread, and writes the first of those that are encoded where there are many.
    fn end_group(&mut self) -> io::Result<()> {
        let (table, held) = (self.table, std::mem::take(&mut self.held));
        (self.rows, self.buckets) = (0, 0);
        if held.is_empty() {
            return Ok(());
        }
        let most = available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
        if self.encoding.len() >= most {
            self.append()?;
        }
        self.encoding.push_back(spawn(move || {
            let rows = held.iter().flat_map(|(number, record, file)| table.rows(*number, record, file));
            encode(table, &rows.collect::<Vec<_>>())
        }));
        Ok(())
    }

    /// Writes the group that was given to a thread first.
    fn append(&mut self) -> io::Result<()> {
        let Some(thread) = self.encoding.pop_front() else { return Ok(()) };
        let group = thread.join().map_err(|_| io::Error::other("a row group could not be encoded"))?;
        let out = self.out.as_mut().ok_or_else(finished)?;
        group.and_then(|group| splice(out, group)).map_err(plain)
    }
}

fn finished() -> io::Error {
    io::Error::other("the file is finished")
}

impl<W: Write + Send> Sink for Writer<W> {
    fn begin_file(&mut self, path: &Path) {
        if path != self.path {
            path.clone_into(&mut self.path);
            self.file = name(path).into();
        }
    }

    /// What is taken is written when its row group is full.
    fn put(&mut self, record: &Record) -> io::Result<()> {
        if self.out.is_none() {
            return Err(finished());
        }
        let number = self.number;
        self.number += 1;
        if self.table == Table::Runs {
            self.runs.put(number, record, &self.file);
            return Ok(());
        }
        let rows = self.table.rows(number, record, &self.file);
        if rows.is_empty() {
            return Ok(());
        }
        let buckets = rows.iter().filter_map(|row| Some(row.histogram()?.buckets().count())).sum::<usize>();
        let count = rows.len();
        if self.rows + count > GROUP_ROWS {
            self.end_group()?;
        }
        self.rows += count;
        self.buckets += buckets;
        self.held.push((number, record.clone(), Arc::clone(&self.file)));
        if self.buckets >= GROUP_BUCKETS { self.end_group() } else { Ok(()) }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.end_group()?;
        while !self.encoding.is_empty() {
            self.append()?;
        }
        let Some(mut out) = self.out.take() else { return Ok(()) };
        for rows in self.runs.rows().chunks(GROUP_ROWS) {
            encode(self.table, rows).and_then(|group| splice(&mut out, group)).map_err(plain)?;
        }
        out.close().map(|_| ()).map_err(plain)
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

/// An error of the file below comes back as it is.
fn plain(err: ParquetError) -> io::Error {
    match err {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(inner) => *inner,
            Err(inner) => io::Error::other(inner),
        },
        other => io::Error::other(other),
    }
}

/// Begins a file of a table.
fn begin<W: Write + Send>(table: Table, out: W) -> Result<SerializedFileWriter<W>, ParquetError> {
    let by = concat!("pciescope ", env!("CARGO_PKG_VERSION")).to_owned();
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).set_created_by(by).build();
    let fields = table.columns().map(|column| field(column).map(Arc::new)).collect::<Result<_, _>>()?;
    let schema = Type::group_type_builder("pciescope").with_fields(fields).build()?;
    SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))
}

fn unsigned(bits: i8) -> (Physical, Option<LogicalType>) {
    (if bits > 32 { Physical::INT64 } else { Physical::INT32 }, Some(LogicalType::integer(bits, false)))
}

fn field(column: &Column) -> Result<Type, ParquetError> {
    let (physical, logical) = match &column.get {
        Get::Text(_) | Get::Words(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Get::Time(_) => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MICROS))),
        Get::Bool(_) => (Physical::BOOLEAN, None),
        Get::Whole(bits, _) | Get::Hex(bits, _) => unsigned(*bits),
        Get::Number(_) => (Physical::DOUBLE, None),
        Get::Decimal(_) => (Physical::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::decimal(0, 38))),
        Get::List(leaves) => return list(column.name, leaves),
    };
    let field = Type::primitive_type_builder(column.name, physical);
    let field = field.with_repetition(Repetition::OPTIONAL).with_logical_type(logical);
    match column.get {
        Get::Decimal(_) => field.with_length(16).with_precision(38).with_scale(0).build(),
        _ => field.build(),
    }
}

fn list(name: &str, leaves: &[(&'static str, Leaf)]) -> Result<Type, ParquetError> {
    let leaf = |(name, leaf): &(&str, Leaf)| {
        let (physical, logical) = match leaf {
            Leaf::Whole(_) => unsigned(64),
            Leaf::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let field = Type::primitive_type_builder(name, physical).with_repetition(Repetition::REQUIRED);
        field.with_logical_type(logical).build().map(Arc::new)
    };
    let leaves = leaves.iter().map(leaf).collect::<Result<Vec<_>, _>>()?;
    let group = |name| Type::group_type_builder(name);
    let element = group("element").with_repetition(Repetition::REQUIRED).with_fields(leaves).build()?;
    let list = group("list").with_repetition(Repetition::REPEATED).with_fields(vec![Arc::new(element)]).build()?;
    let all = group(name).with_repetition(Repetition::OPTIONAL).with_logical_type(Some(LogicalType::List));
    all.with_fields(vec![Arc::new(list)]).build()
}

/// Rows as a file of one row group.
fn encode(table: Table, rows: &[Row<'_>]) -> Result<Vec<u8>, ParquetError> {
    let mut file = begin(table, Vec::new())?;
    let mut group = file.next_row_group()?;
    let bytes = |text: &str| ByteArray::from(text.as_bytes().to_vec());
    for column in table.columns() {
        match &column.get {
            Get::Text(of) => {
                put::<ByteArrayType, _>(&mut group, rows, |row| of(row).filter(|text| !text.is_empty()).map(bytes))?;
            }
            Get::Words(of) => put::<ByteArrayType, _>(&mut group, rows, |row| {
                of(row).filter(|text| !text.is_empty()).map(|text| text.into_bytes().into())
            })?,
            Get::Time(of) => put::<Int64Type, _>(&mut group, rows, |row| of(row).and_then(micros))?,
            Get::Bool(of) => put::<BoolType, _>(&mut group, rows, |row| of(row))?,
            // The bits of an unsigned number; the column's type says how to read them.
            Get::Whole(33.., of) | Get::Hex(33.., of) => {
                put::<Int64Type, _>(&mut group, rows, |row| of(row).map(|number| number as i64))?;
            }
            Get::Whole(_, of) | Get::Hex(_, of) => {
                put::<Int32Type, _>(&mut group, rows, |row| of(row).map(|number| number as u32 as i32))?;
            }
            Get::Number(of) => put::<DoubleType, _>(&mut group, rows, |row| of(row).filter(|x| x.is_finite()))?,
            Get::Decimal(of) => put::<FixedLenByteArrayType, _>(&mut group, rows, |row| {
                let number = of(row).filter(|number| *number < 10_u128.pow(38))?;
                Some(FixedLenByteArray::from(ByteArray::from(number.to_be_bytes().to_vec())))
            })?,
            Get::List(leaves) => {
                for (_, leaf) in *leaves {
                    match leaf {
                        Leaf::Whole(of) => put_list::<Int64Type, _, _>(&mut group, rows, of, |number| number as i64)?,
                        Leaf::Text(of) => put_list::<ByteArrayType, _, _>(&mut group, rows, of, bytes)?,
                    }
                }
            }
        }
    }
    group.close()?;
    file.into_inner()
}

/// Appends the row groups of an encoded file to another one of the same columns.
fn splice<W: Write + Send>(out: &mut SerializedFileWriter<W>, file: Vec<u8>) -> Result<(), ParquetError> {
    let bytes = Bytes::from(file);
    let reader = SerializedFileReader::new(bytes.clone())?;
    for group in reader.metadata().row_groups() {
        let mut next = out.next_row_group()?;
        for column in group.columns() {
            let closed = ::parquet::column::writer::ColumnCloseResult {
                bytes_written: column.compressed_size() as u64,
                rows_written: group.num_rows() as u64,
                metadata: column.clone(),
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            };
            next.append_column(&bytes, closed)?;
        }
        next.close()?;
    }
    Ok(())
}

/// The next column of a row group, whose values may be missing.
fn put<'r, T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &'r [Row<'r>],
    of: impl Fn(&'r Row<'r>) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let (mut levels, mut values) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
    for row in rows {
        let value = of(row);
        levels.push(i16::from(value.is_some()));
        values.extend(value);
    }
    close::<T, W>(group, |column| column.write_batch(&values, Some(&levels), None).map(|_| ()))
}

/// The next column, a field of a list's structs: null where there is no list, empty where it is.
fn put_list<'r, T: DataType, V, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &'r [Row<'r>],
    of: impl Fn(&'r Row<'r>) -> Option<Vec<V>>,
    into: impl Fn(V) -> T::T,
) -> Result<(), ParquetError> {
    let (mut values, mut defined, mut repeated): (Vec<T::T>, _, _) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let list = of(row);
        let (before, is_there) = (values.len(), list.is_some());
        for value in list.into_iter().flatten() {
            repeated.push(i16::from(values.len() > before));
            defined.push(2);
            values.push(into(value));
        }
        if values.len() == before {
            repeated.push(0);
            defined.push(i16::from(is_there));
        }
    }
    close::<T, W>(group, |column| column.write_batch(&values, Some(&defined), Some(&repeated)).map(|_| ()))
}

fn close<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    write: impl FnOnce(&mut ColumnWriterImpl<'_, T>) -> Result<(), ParquetError>,
) -> Result<(), ParquetError> {
    let missing = || ParquetError::General("the file has fewer columns than are written".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    write(column.typed::<T>())?;
    column.close()
}

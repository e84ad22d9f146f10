//! How a table of rows becomes a Parquet file: its columns, their types, and row groups that are written as they fill.

use std::io::{self, Write};
use std::sync::Arc;

use ::parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical};
use ::parquet::column::writer::ColumnWriterImpl;
use ::parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, Int32Type,
    Int64Type,
};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::types::Type;
use pciescope_core::Record;

/// The most rows of a row group: what a reader takes or leaves at a time, and what the writer holds at a time.
const GROUP_ROWS: usize = 32_768;
/// A row group ends with the record that brings its weight (buckets) to so much.
const GROUP_WEIGHT: usize = 1 << 20;

/// What rows a table has, and what columns.
pub trait Rows {
    /// A row, which may borrow from its record.
    type Row<'r>;

    /// The rows of the record at place `number` among all.
    fn rows(number: u64, record: &Record) -> Vec<Self::Row<'_>>;
    /// How much a row adds to its group beside itself.
    fn weight(row: &Self::Row<'_>) -> usize;
    /// The columns, in order.
    fn columns<'r>() -> Vec<Column<Self::Row<'r>>>;
}

/// A column: its name, and how it gets its values.
pub type Column<R> = (&'static str, Get<R>);

/// How a column gets its values from a row.
pub enum Get<R> {
    /// UTF-8.
    Text(fn(&R) -> Option<String>),
    /// Microseconds since 1970, UTC.
    Time(fn(&R) -> Option<i64>),
    /// True or false.
    Bool(fn(&R) -> Option<bool>),
    /// A whole number that is never negative, of so many bits.
    Whole(i8, fn(&R) -> Option<u64>),
    /// Any number; one that is not finite is null.
    Number(fn(&R) -> Option<f64>),
    /// A decimal number of 38 digits; a larger one is null.
    Decimal(fn(&R) -> Option<u128>),
    /// A list of structs with these fields, as many values of each.
    List(Vec<(&'static str, Leaf<R>)>),
}

/// A field of the structs of a list; `None` where there is no list.
pub enum Leaf<R> {
    /// Whole numbers of 64 bits.
    Whole(fn(&R) -> Option<Vec<u64>>),
    /// UTF-8.
    Text(fn(&R) -> Option<Vec<String>>),
}

/// An empty text is not known.
pub fn text(value: &str) -> Option<String> {
    (!value.is_empty()).then(|| value.to_owned())
}

/// 0 is not known.
pub fn positive(value: u64) -> Option<u64> {
    (value > 0).then_some(value)
}

/// `2026-11-21T09:00:00.125Z` as microseconds since 1970; `None` for anything else.
pub fn micros(time: &str) -> Option<i64> {
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = time.get(from..to).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
        digits.parse().ok()
    };
    let is_at = |at: usize, sign: u8| time.as_bytes().get(at) == Some(&sign);
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    let rest = time.get(19..)?.strip_suffix('Z').filter(|_| marks.iter().all(|(at, sign)| is_at(*at, *sign)))?;
    let fraction = match rest.strip_prefix('.') {
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
            format!("{:0<6}", digits).get(..6)?.parse::<i64>().ok()?
        }
        None if rest.is_empty() => 0,
        _ => return None,
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days from 1970 of the Gregorian calendar, years beginning in March so that the leap day is the last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (153 * month + 2) / 5 + day
            - 719_469;
    Some(((days * 24 + hour) * 60 + minute) * 60_000_000 + second * 1_000_000 + fraction)
}

fn unsigned(bits: i8) -> Option<LogicalType> {
    Some(LogicalType::integer(bits, false))
}

fn field<R>(name: &str, get: &Get<R>) -> Result<Type, ParquetError> {
    let (physical, logical) = match get {
        Get::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Get::Time(_) => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MICROS))),
        Get::Bool(_) => (Physical::BOOLEAN, None),
        Get::Whole(bits, _) => (if *bits > 32 { Physical::INT64 } else { Physical::INT32 }, unsigned(*bits)),
        Get::Number(_) => (Physical::DOUBLE, None),
        Get::Decimal(_) => (Physical::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::decimal(0, 38))),
        Get::List(leaves) => return list(name, leaves),
    };
    let mut field =
        Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL).with_logical_type(logical);
    if matches!(get, Get::Decimal(_)) {
        field = field.with_length(16).with_precision(38).with_scale(0);
    }
    field.build()
}

fn list<R>(name: &str, leaves: &[(&'static str, Leaf<R>)]) -> Result<Type, ParquetError> {
    let leaf = |(name, leaf): &(&str, Leaf<R>)| {
        let (physical, logical) = match leaf {
            Leaf::Whole(_) => (Physical::INT64, unsigned(64)),
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

/// Begins a file with these columns.
fn begin<R, W: Write + Send>(out: W, columns: &[Column<R>]) -> Result<SerializedFileWriter<W>, ParquetError> {
    let by = concat!("pciescope ", env!("CARGO_PKG_VERSION")).to_owned();
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).set_created_by(by).build();
    let fields = columns.iter().map(|(name, get)| field(name, get).map(Arc::new)).collect::<Result<_, _>>()?;
    let schema = Type::group_type_builder("pciescope").with_fields(fields).build()?;
    SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))
}

/// Writes a table whose rows are all there as a file.
///
/// # Errors
/// When `out` cannot be written.
pub fn write<R, W: Write + Send>(out: W, columns: &[Column<R>], rows: &[R]) -> io::Result<()> {
    let mut out = begin(out, columns).map_err(plain)?;
    for rows in rows.chunks(GROUP_ROWS) {
        group(&mut out, rows, columns).map_err(plain)?;
    }
    out.close().map(|_| ()).map_err(plain)
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

/// A file of a table that is being written: records come one by one, and are freed with each row group.
pub struct Growing<T: Rows, W: Write + Send> {
    out: SerializedFileWriter<W>,
    /// Records of the next group, with their places among all.
    held: Vec<(u64, Record)>,
    rows: usize,
    weight: usize,
    table: std::marker::PhantomData<T>,
}

impl<T: Rows, W: Write + Send> Growing<T, W> {
    /// Begins the file.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub fn new(out: W) -> io::Result<Self> {
        let out = begin(out, &T::columns()).map_err(plain)?;
        Ok(Growing { out, held: Vec::new(), rows: 0, weight: 0, table: std::marker::PhantomData })
    }

    /// Takes the record at place `number` among all.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn put(&mut self, number: u64, record: &Record) -> io::Result<()> {
        let rows = T::rows(number, record);
        if rows.is_empty() {
            return Ok(());
        }
        if self.rows + rows.len() > GROUP_ROWS {
            self.group()?;
        }
        self.rows += rows.len();
        self.weight += rows.iter().map(T::weight).sum::<usize>();
        self.held.push((number, record.clone()));
        if self.weight >= GROUP_WEIGHT { self.group() } else { Ok(()) }
    }

    /// Writes what is left and ends the file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        self.group()?;
        self.out.close().map(|_| ()).map_err(plain)
    }

    fn group(&mut self) -> io::Result<()> {
        let held = std::mem::take(&mut self.held);
        (self.rows, self.weight) = (0, 0);
        let rows: Vec<T::Row<'_>> = held.iter().flat_map(|(number, record)| T::rows(*number, record)).collect();
        if rows.is_empty() {
            return Ok(());
        }
        group(&mut self.out, &rows, &T::columns()).map_err(plain)
    }
}

fn group<R, W: Write + Send>(
    out: &mut SerializedFileWriter<W>,
    rows: &[R],
    columns: &[Column<R>],
) -> Result<(), ParquetError> {
    let mut group = out.next_row_group()?;
    for (_, get) in columns {
        match get {
            Get::Text(of) => {
                put::<ByteArrayType, _, _, _>(&mut group, rows, of, |text: String| text.into_bytes().into())?
            }
            Get::Time(of) => put::<Int64Type, _, _, _>(&mut group, rows, of, |time| time)?,
            Get::Bool(of) => put::<BoolType, _, _, _>(&mut group, rows, of, |is| is)?,
            // The bits of an unsigned number; the column's type says how to read them.
            Get::Whole(33.., of) => put::<Int64Type, _, _, _>(&mut group, rows, of, |number: u64| number as i64)?,
            Get::Whole(_, of) => put::<Int32Type, _, _, _>(&mut group, rows, of, |number: u64| number as u32 as i32)?,
            Get::Number(of) => {
                let finite = |row: &R| of(row).filter(|number| number.is_finite());
                put::<DoubleType, _, _, _>(&mut group, rows, finite, |number| number)?;
            }
            Get::Decimal(of) => {
                let fitting = |row: &R| of(row).filter(|number| *number < 10_u128.pow(38));
                put::<FixedLenByteArrayType, _, _, _>(&mut group, rows, fitting, |number: u128| {
                    FixedLenByteArray::from(ByteArray::from(number.to_be_bytes().to_vec()))
                })?;
            }
            Get::List(leaves) => {
                for (_, leaf) in leaves {
                    match leaf {
                        Leaf::Whole(of) => {
                            put_list::<Int64Type, _, _, _>(&mut group, rows, of, |number| number as i64)?
                        }
                        Leaf::Text(of) => {
                            put_list::<ByteArrayType, _, _, _>(&mut group, rows, of, |text: String| {
                                text.into_bytes().into()
                            })?;
                        }
                    }
                }
            }
        }
    }
    group.close().map(|_| ())
}

/// The next column of a row group, whose values may be missing.
fn put<T: DataType, R, V, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &[R],
    of: impl Fn(&R) -> Option<V>,
    into: impl Fn(V) -> T::T,
) -> Result<(), ParquetError> {
    let values: Vec<Option<V>> = rows.iter().map(of).collect();
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = values.into_iter().flatten().map(into).collect();
    column::<T, W>(group, |column| column.write_batch(&values, Some(&levels), None).map(|_| ()))
}

/// The next column, a field of a list's structs: null where there is no list, empty where it is.
fn put_list<T: DataType, R, V, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &[R],
    of: impl Fn(&R) -> Option<Vec<V>>,
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
    column::<T, W>(group, |column| column.write_batch(&values, Some(&defined), Some(&repeated)).map(|_| ()))
}

fn column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    write: impl FnOnce(&mut ColumnWriterImpl<'_, T>) -> Result<(), ParquetError>,
) -> Result<(), ParquetError> {
    let missing = || ParquetError::General("the file has fewer columns than are written".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    write(column.typed::<T>())?;
    column.close()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_microseconds_since_1970() {
        for (time, want) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2026-11-21T09:00:00.125Z", Some(1_795_251_600_125_000)),
            ("2024-02-29T23:59:59.999999999Z", Some(1_709_251_199_999_999)),
            ("2000-03-01T00:00:00Z", Some(951_868_800_000_000)),
            ("1969-12-31T23:59:59Z", Some(-1_000_000)),
            ("2026-11-21T09:00:00+01:00", None),
            ("2026-13-21T09:00:00Z", None),
            ("2026-11-21 09:00:00Z", None),
            ("", None),
            ("9999999999999999999Z", None),
            ("2026-11-21T09:00:00.\u{e9}Z", None),
        ] {
            assert_eq!(micros(time), want, "{time}");
        }
    }
}

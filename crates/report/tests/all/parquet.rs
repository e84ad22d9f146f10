//! Parquet files read back by the crate's own reader. tests/parquet/check.py does the same with DuckDB, polars and pandas.

use std::fs::File;
use std::path::Path;

use ::parquet::basic::{ConvertedType, Type as Physical};
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::{Field, Row};
use pciescope_core::{Evidence, Finding, Histogram, Host, Metric, Plan, Record, Severity, Sink, StatPlan};
use pciescope_report::columns::{COLUMNS, Get, TABLES, Table};
use pciescope_report::{csv, jsonl, parquet};

fn reader(table: Table, records: &[Record]) -> SerializedFileReader<File> {
    let file = tempfile::tempfile().unwrap();
    parquet::write(table, records, &file).unwrap();
    SerializedFileReader::new(file).unwrap()
}

fn rows_of(table: Table, records: &[Record]) -> Vec<Row> {
    reader(table, records).get_row_iter(None).unwrap().map(Result::unwrap).collect()
}

fn rows(records: &[Record]) -> Vec<Row> {
    rows_of(Table::Figures, records)
}

fn field<'r>(row: &'r Row, name: &str) -> &'r Field {
    row.get_column_iter().find(|(column, _)| *column == name).map(|(_, field)| field).unwrap()
}

fn demo() -> Vec<Record> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/records/demo.jsonl");
    jsonl::read_records(&path).unwrap().records
}

fn strange() -> Record {
    let mut record = Record {
        schema: pciescope_core::record::SCHEMA,
        run: "00000000000000f1".to_owned(),
        time: "no time".to_owned(),
        verb: "say \"hi\",\nthen \u{1f600}\u{202e} = 1".to_owned(),
        test: "mmio-read".to_owned(),
        ..Record::default()
    };
    record.target =
        Some(pciescope_core::Target { offset: Some(u64::MAX - 1), irq: Some(u32::MAX), ..Default::default() });
    for (name, value) in [("nan", f64::NAN), ("inf", f64::INFINITY), ("max", f64::MAX), ("zero", -0.0)] {
        record.metrics.insert(name.to_owned(), Metric::of(value, "1"));
    }
    record.histograms.insert("empty".to_owned(), Histogram::default());
    let mut full = Histogram::default();
    full.record_ps(7, u64::MAX - 5).unwrap();
    full.record_ps(1_000_000, 3).unwrap();
    record.histograms.insert("full".to_owned(), full);
    record
}

#[test]
fn every_figure_of_the_csv_is_a_row_with_the_same_values() {
    let records = demo();
    let text = csv::render(&records);
    let mut lines = ::csv::Reader::from_reader(text.as_bytes());
    let headers = lines.headers().unwrap().clone();
    let rows = rows(&records);
    let mut count = 0;
    for (row, line) in rows.iter().zip(lines.records()) {
        let line = line.unwrap();
        for (name, cell) in headers.iter().zip(line.iter()) {
            let got = field(row, name);
            let same = match got {
                Field::Null => cell.is_empty(),
                Field::Str(text) => text == cell,
                Field::Bool(is) => is.to_string() == cell,
                Field::Double(number) => {
                    (number - cell.parse::<f64>().unwrap()).abs() <= 0.0006_f64.max(number.abs() * 1e-9)
                }
                Field::TimestampMicros(time) => *time == 1_795_251_600_000_000,
                Field::Decimal(_) => cell.parse::<u128>().is_ok(),
                other if name == "offset" => format!("{:#x}", whole(other)) == cell,
                other if name.ends_with("_id") => format!("{:04x}", whole(other)) == cell,
                other => whole(other).to_string() == cell,
            };
            assert!(same, "{name}: {got} is not {cell:?} in {line:?}");
        }
        count += 1;
    }
    assert_eq!((rows.len(), text.lines().count() - 1), (count, count));
}

fn whole(field: &Field) -> u64 {
    match field {
        Field::UByte(number) => (*number).into(),
        Field::UShort(number) => (*number).into(),
        Field::UInt(number) => (*number).into(),
        Field::ULong(number) => *number,
        other => panic!("{other:?} is no whole number"),
    }
}

#[test]
fn histograms_are_complete() {
    let records = demo();
    let wanted = records.iter().flat_map(|record| record.histograms.values());
    let rows = rows(&records);
    let got = rows.iter().filter(|row| field(row, "kind").to_string() == "\"histogram\"");
    let mut seen = 0;
    for (histogram, row) in wanted.zip(got) {
        let Field::ListInternal(list) = field(row, "buckets") else { panic!("no list of buckets") };
        let buckets: Vec<[u64; 3]> = list
            .elements()
            .iter()
            .map(|bucket| match bucket {
                Field::Group(bucket) => [0, 1, 2].map(|place| whole(bucket.get_column_iter().nth(place).unwrap().1)),
                other => panic!("{other:?} is no bucket"),
            })
            .collect();
        let want: Vec<[u64; 3]> = histogram.buckets().map(|b| [b.low_ps, b.high_ps, b.count]).collect();
        assert_eq!(buckets, want);
        seen += buckets.len();
    }
    assert!(seen > 7_000, "only {seen} buckets");
}

#[test]
fn what_is_strange_comes_through() {
    let rows = rows(&[strange()]);
    let of = |name: &str| rows.iter().find(|row| *field(row, "name") == Field::Str(name.to_owned())).unwrap();
    assert_eq!(*field(of("nan"), "value"), Field::Null);
    assert_eq!(*field(of("inf"), "value"), Field::Null);
    assert_eq!(*field(of("max"), "value"), Field::Double(f64::MAX));
    assert_eq!(*field(of("zero"), "time"), Field::Null);
    assert_eq!(*field(of("zero"), "verb"), Field::Str(strange().verb));
    assert_eq!(*field(of("zero"), "offset"), Field::ULong(u64::MAX - 1));
    assert_eq!(*field(of("zero"), "irq"), Field::UInt(u32::MAX));
    assert_eq!(*field(of("full"), "count"), Field::ULong(u64::MAX - 2));
    assert_eq!(*field(of("empty"), "count"), Field::ULong(0));
    assert_eq!(*field(of("empty"), "min"), Field::Null);
    assert!(matches!(field(of("empty"), "buckets"), Field::ListInternal(list) if list.elements().is_empty()));
    assert_eq!(*field(of("nan"), "buckets"), Field::Null);
    let Field::Decimal(sum) = field(of("full"), "sum_ps") else { panic!("the sum is no decimal") };
    let mut bytes = [0; 16];
    bytes.copy_from_slice(sum.data());
    assert_eq!(u128::from_be_bytes(bytes), 7 * u128::from(u64::MAX - 5) + 3_000_000);
}

#[test]
fn columns_have_the_types_that_the_page_says() {
    let reader = reader(Table::Figures, &demo());
    let file = reader.metadata().file_metadata();
    assert_eq!(file.num_rows(), rows(&demo()).len() as i64);
    let column =
        |name: &str| file.schema_descr().columns().iter().find(|column| column.path().string() == name).unwrap();
    assert_eq!(column("time").converted_type(), ConvertedType::TIMESTAMP_MICROS);
    assert_eq!(column("run").converted_type(), ConvertedType::UTF8);
    assert_eq!(
        (column("offset").physical_type(), column("offset").converted_type()),
        (Physical::INT64, ConvertedType::UINT_64)
    );
    assert_eq!(column("buckets.list.element.count").converted_type(), ConvertedType::UINT_64);
    let names: Vec<String> = file.schema().get_fields().iter().map(|field| field.name().to_owned()).collect();
    assert_eq!(names, Table::Figures.columns().map(|column| column.name).collect::<Vec<_>>());
}

/// docs/record.md has a row for each column, with its type, its unit and its tables.
#[test]
fn the_page_about_records_explains_every_column() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/record.md")).unwrap();
    let part = page.split("\n## Columns\n").nth(1).and_then(|part| part.split("\n## ").next()).unwrap();
    let mut explained = Vec::new();
    for line in part.lines().filter(|line| line.starts_with("| `")) {
        let [names, kind, tables, meaning] = line.trim_matches('|').split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{line}: not four cells")
        };
        assert!(meaning.len() > 3, "{line}");
        for name in names.split(',') {
            explained.push((name.trim().trim_matches('`').to_owned(), kind.to_owned(), tables.to_owned()));
        }
    }
    let words = |get: &Get| match get {
        Get::Text(_) | Get::Words(_) => "text".to_owned(),
        Get::Time(_) => "time".to_owned(),
        Get::Bool(_) => "bool".to_owned(),
        Get::Whole(bits, _) | Get::Hex(bits, _) => format!("u{bits}"),
        Get::Number(_) => "f64".to_owned(),
        Get::Decimal(_) => "decimal(38)".to_owned(),
        Get::List(leaves) => format!("list of {}", leaves.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")),
    };
    let mut wanted: Vec<_> = COLUMNS
        .iter()
        .map(|column| {
            let unit = if column.unit.is_empty() { String::new() } else { format!(", {}", column.unit) };
            let tables: String =
                TABLES.iter().filter(|table| column.tables.contains(table)).map(|table| letter(*table)).collect();
            (column.name.to_owned(), words(&column.get) + &unit, tables)
        })
        .collect();
    explained.sort();
    wanted.sort();
    assert_eq!(explained, wanted);
}

/// As the page names a table.
fn letter(table: Table) -> char {
    match table {
        Table::Figures => 'F',
        Table::Runs => 'R',
        Table::Findings => 'D',
    }
}

/// A name that two tables have is of one column.
#[test]
fn every_name_stands_once() {
    let mut names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), COLUMNS.len());
}

fn finding(check: &str) -> Finding {
    let evidence = [("/sys/x", "4"), ("LnkSta", "")];
    Finding {
        check: check.to_owned(),
        severity: Severity::Problem,
        bdf: Some("0000:00:1c.0".parse().unwrap()),
        text: "x4 of \"x8\"\n".to_owned(),
        evidence: evidence.map(|(s, v)| Evidence { source: s.to_owned(), value: v.to_owned() }).into(),
        consequence: "half".to_owned(),
        remedy: String::new(),
        silenced: true,
    }
}

#[test]
fn findings_are_rows_with_their_evidence() {
    let mut records = vec![strange(), strange()];
    let bare = Finding { bdf: None, evidence: Vec::new(), silenced: false, ..finding("smt") };
    records[1].findings = vec![finding("link-width"), bare];
    let rows = rows_of(Table::Findings, &records);
    let text = |row: usize, name: &str| field(&rows[row], name).clone();
    let is = |text: &str| Field::Str(text.to_owned());
    assert_eq!(rows.len(), 2);
    assert_eq!((text(0, "check"), text(1, "check")), (is("link-width"), is("smt")));
    assert_eq!((text(0, "record"), text(0, "severity")), (Field::ULong(1), is("problem")));
    assert_eq!((text(0, "device"), text(1, "device")), (is("0000:00:1c.0"), Field::Null));
    assert_eq!((text(0, "silenced"), text(1, "silenced")), (Field::Bool(true), Field::Bool(false)));
    assert_eq!((text(0, "text"), text(0, "remedy")), (is("x4 of \"x8\"\n"), Field::Null));
    assert_eq!(
        text(0, "evidence").to_string(),
        "[{source: \"/sys/x\", value: \"4\"}, {source: \"LnkSta\", value: \"\"}]"
    );
    assert!(matches!(text(1, "evidence"), Field::ListInternal(list) if list.elements().is_empty()));
}

#[test]
fn warnings_and_errors_are_rows_beside_the_findings() {
    let mut record = strange();
    let texts = |code: &str| (code.to_owned(), format!("{code} is on"), format!("turn {code} off"));
    let (code, text, hint) = texts("aspm");
    record.warnings = vec![pciescope_core::Warning { code, text, hint }];
    let (code, text, hint) = texts("removed");
    record.error = Some(pciescope_core::Failure { code, text, hint: Some(hint) });
    record.findings = vec![finding("link-width")];
    let rows = rows_of(Table::Findings, &[record]);
    let of = |name: &str| rows.iter().map(|row| field(row, name).to_string()).collect::<Vec<_>>();
    assert_eq!(of("kind"), ["\"finding\"", "\"warning\"", "\"error\""]);
    assert_eq!(of("check"), ["\"link-width\"", "\"aspm\"", "\"removed\""]);
    assert_eq!(of("severity"), ["\"problem\"", "\"warning\"", "\"problem\""]);
    assert_eq!(of("remedy"), ["null", "\"turn aspm off\"", "\"turn removed off\""]);
    assert_eq!(of("silenced"), ["true", "false", "false"]);
}

/// What hosts are compared by is the same text on each of them.
#[test]
fn a_figure_is_named_by_what_it_measured() {
    let demo = rows(&demo());
    let names: std::collections::BTreeSet<String> = demo.iter().map(|row| field(row, "figure").to_string()).collect();
    for name in ["mmio-read BAR0+0x8/4 latency", "config-read hop 0 latency", "irq-hardware vector 0 entry_to_ack"] {
        assert!(names.contains(&format!("{name:?}")), "{name} is not among {names:?}");
    }
    let stream = pciescope_core::Stream {
        function: "func_sca".to_owned(),
        is_fused: true,
        access: "read".to_owned(),
        samples: 1024,
        devices: 1,
        ..pciescope_core::Stream::default()
    };
    let metrics = [("speed".to_owned(), Metric::of(1e9, "bytes/s"))].into();
    let record = Record { test: "readout".to_owned(), stream: Some(stream), metrics, ..Record::default() };
    let figure = field(&rows(&[record])[0], "figure").clone();
    assert_eq!(figure, Field::Str("readout func_sca+fused read 1024 samples 1 devices speed".to_owned()));
}

#[test]
fn a_run_is_a_row_with_its_machine_and_plan() {
    let mut records = demo();
    let plan = Plan::Stat(StatPlan { events: vec!["a/b/".to_owned()], ..StatPlan::default() });
    records[0].plan = Some(plan.clone());
    let host = Host { name: "n7".to_owned(), id: Some("0f".to_owned()), serial: None };
    records[0].environment.as_mut().unwrap().host = Some(host);
    let (first, environment) = (records[0].run.clone(), records[0].environment.clone().unwrap());
    let rows = rows_of(Table::Runs, &records);
    let runs: std::collections::BTreeSet<&str> = records.iter().map(|record| record.run.as_str()).collect();
    assert_eq!(rows.len(), runs.len());
    let of = |name: &str| field(&rows[0], name).clone();
    let is = |text: &str| Field::Str(text.to_owned());
    assert_eq!((of("run"), of("kernel")), (is(&first), is(&environment.kernel)));
    assert_eq!((of("host"), of("host_id"), of("serial")), (is("n7"), is("0f"), Field::Null));
    assert_eq!((of("cpus"), of("nodes"), of("packages")), (Field::UInt(4), Field::UInt(2), Field::UInt(2)));
    let count = records.iter().filter(|record| record.run == first).count() as u64;
    assert_eq!((of("records"), of("errors")), (Field::ULong(count), Field::ULong(0)));
    assert_eq!(field(rows.last().unwrap(), "errors"), &Field::ULong(1), "the last run failed");
    assert_eq!(field(rows.last().unwrap(), "kernel"), &Field::Null, "and does not describe its machine");
    assert_eq!(of("first_time"), Field::TimestampMicros(1_795_251_600_000_000));
    let Field::Str(json) = of("plan") else { panic!("no plan") };
    assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
    let Field::Str(json) = of("environment") else { panic!("no environment") };
    assert_eq!(serde_json::from_str::<pciescope_core::Environment>(&json).unwrap(), environment);
}

/// What is written record by record is what is written at once.
#[test]
fn records_are_let_go_of_as_groups_fill() {
    let mut records = demo();
    records[3].findings = vec![finding("link-width")];
    for table in TABLES {
        let mut bytes = Vec::new();
        let mut writer = parquet::Writer::new(table, &mut bytes).unwrap();
        for record in &records {
            writer.put(record).unwrap();
        }
        writer.finish().unwrap();
        assert!(writer.put(&strange()).is_err(), "{table:?} is finished");
        drop(writer);
        let mut whole = Vec::new();
        parquet::write(table, &records, &mut whole).unwrap();
        assert!(bytes == whole && bytes.len() > 500, "{table:?}");
    }
}

#[test]
fn no_records_give_a_file_without_rows_and_many_come_in_groups() {
    for table in TABLES {
        assert!(rows_of(table, &[]).is_empty());
    }
    let many: Vec<Record> = std::iter::repeat_with(strange).take(12_000).collect();
    let reader = reader(Table::Figures, &many);
    assert!(reader.num_row_groups() > 1);
    assert_eq!(reader.metadata().file_metadata().num_rows(), 12_000 * 6);
}

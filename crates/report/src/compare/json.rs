//! A judgement as JSON lines: one line that sums up, then one per cell and one per limit.

use serde::Serialize;
use serde_json::{Value, json};

use super::{Cell, CellKey, Judgement, OneSided, tally};

/// The lines, each ending with a newline. They have every cell, also those that a table would not show.
pub fn lines(judgement: &Judgement) -> String {
    let mut text = String::new();
    let mut put = |value: Value| {
        text.push_str(&value.to_string());
        text.push('\n');
    };
    put(summary(judgement));
    for cell in &judgement.cells {
        put(of_cell(cell));
    }
    for (side, keys) in [("A", &judgement.only_a), ("B", &judgement.only_b)] {
        for key in keys {
            put(with_key(json!({"type": "unmatched", "only_in": side}), key));
        }
    }
    for ruling in &judgement.rulings {
        let shift = |&(cell, shift): &(usize, usize)| {
            let cell = &judgement.cells[cell];
            with_key(json!(cell.shifts[shift]), &cell.key)
        };
        let of_b = |figure: &OneSided| {
            let value = json!({"name": figure.name, "b": figure.value, "p": figure.p, "is_proven": figure.is_proven});
            with_key(value, &figure.key)
        };
        put(json!({
            "type": "limit",
            "limit": ruling.limit.text,
            "is_failed": ruling.is_failed(),
            "is_undecided": ruling.is_undecided(),
            "checked": ruling.checked,
            "undecided": ruling.undecided,
            "exceeded": ruling.exceeded.iter().map(shift).collect::<Vec<_>>(),
            "unproven": ruling.unproven.iter().map(shift).collect::<Vec<_>>(),
            "only_in_b": ruling.only_in_b.iter().map(of_b).collect::<Vec<_>>(),
            "not_measured_in_b": ruling.missing.iter().map(|key| with_key(json!({}), key)).collect::<Vec<_>>(),
        }));
    }
    text
}

fn summary(judgement: &Judgement) -> Value {
    let counts = |is_overall| -> Value {
        let counts = tally(judgement.cells.iter().filter(|cell| cell.is_overall == is_overall)).into_iter();
        Value::Object(counts.map(|(verdict, n)| (verdict.word().to_owned(), n.into())).collect())
    };
    json!({
        "type": "summary",
        "runs": of_sides(judgement.runs),
        "records": of_sides(judgement.records),
        "margin": judgement.criteria.margin,
        "run_spread": judgement.criteria.spread,
        "unreal": judgement.unreal,
        "doubts": judgement.doubts,
        "groups": counts(true),
        "cells": counts(false),
        "only_a": judgement.only_a.len(),
        "only_b": judgement.only_b.len(),
        "not_numbers": judgement.not_numbers,
        "unordered": judgement.unordered,
        "is_failed": judgement.is_failed(),
    })
}

fn of_cell(cell: &Cell) -> Value {
    let shape = cell.shape.map(|shape| {
        json!({
            "displaced": shape.displaced,
            "p": shape.p,
            "superiority": shape.superiority,
            "cliffs_delta": shape.cliffs_delta(),
            "is_alarm": shape.is_alarm,
        })
    });
    let value = json!({
        "type": if cell.is_overall { "group" } else { "cell" },
        "verdict": cell.verdict.word(),
        "is_worse": cell.is_worse,
        "merged": cell.merged,
        "runs": of_sides(cell.runs),
        "samples": of_sides(cell.counts),
        "unit": cell.unit,
        "shape": shape,
        "statistics": cell.shifts,
    });
    with_key(value, &cell.key)
}

fn of_sides<T: Serialize>([a, b]: [T; 2]) -> Value {
    json!({"a": a, "b": b})
}

/// `value` with the fields of a key.
fn with_key(mut value: Value, key: &CellKey) -> Value {
    let fields = json!({
        "device": &*key.device,
        "test": &*key.test,
        "target": key.target_name(),
        "figure": &*key.figure,
        "cpu": key.cpu,
    });
    if let (Value::Object(value), Value::Object(fields)) = (&mut value, fields) {
        value.extend(fields);
    }
    value
}

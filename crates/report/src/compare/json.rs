//! A judgement as JSON lines: one line that sums up, then one per cell and one per limit.

use serde_json::{Value, json};

use super::cells::Key;
use super::{Alone, Cell, Judgement};

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
        let named = |places: &[(usize, usize)]| -> Vec<Value> {
            let of = |&(cell, shift): &(usize, usize)| {
                let cell = &judgement.cells[cell];
                with_key(json!(cell.shifts[shift]), &cell.key)
            };
            places.iter().map(of).collect()
        };
        put(json!({
            "type": "limit",
            "limit": ruling.limit.text,
            "is_failed": ruling.is_failed(),
            "is_undecided": ruling.is_undecided(),
            "checked": ruling.checked,
            "undecided": ruling.undecided,
            "exceeded": named(&ruling.exceeded),
            "unproven": named(&ruling.unproven),
            "only_in_b": ruling.alone.iter().map(of_alone).collect::<Vec<_>>(),
            "not_measured_in_b": ruling.missing.iter().map(|key| with_key(json!({}), key)).collect::<Vec<_>>(),
        }));
    }
    text
}

fn summary(judgement: &Judgement) -> Value {
    let counts = |is_overall| -> Value {
        let counts = judgement.counts(is_overall).into_iter().map(|(verdict, n)| (verdict.word().to_owned(), n.into()));
        Value::Object(counts.collect())
    };
    json!({
        "type": "summary",
        "runs": {"a": judgement.runs.0, "b": judgement.runs.1},
        "records": {"a": judgement.records.0, "b": judgement.records.1},
        "margin": judgement.options.margin,
        "run_spread": judgement.options.spread,
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
        "runs": {"a": cell.runs.0, "b": cell.runs.1},
        "samples": {"a": cell.counts.0, "b": cell.counts.1},
        "unit": cell.unit,
        "shape": shape,
        "statistics": &cell.shifts[..],
    });
    with_key(value, &cell.key)
}

fn of_alone(alone: &Alone) -> Value {
    let value = json!({"name": alone.name, "b": alone.value, "p": alone.p, "is_proven": alone.is_proven});
    with_key(value, &alone.key)
}

/// `value` with the fields of a key.
fn with_key(mut value: Value, key: &Key) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.insert("device".to_owned(), key.device.as_str().into());
        fields.insert("test".to_owned(), key.test.as_str().into());
        fields.insert("target".to_owned(), key.target().into());
        fields.insert("figure".to_owned(), key.figure.as_str().into());
        fields.insert("cpu".to_owned(), key.cpu.into());
    }
    value
}

//! Aligned columns: everything to the right, as figures want it, except columns marked as text.
//!
//! Own code, because the table crates draw boxes or pad with one rule for all; here columns keep the widths of
//! the original scripts' tables until a figure needs more.

/// How a column is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Figures.
    Right,
    /// Words and bars.
    Left,
}

/// A table under construction.
pub struct Columns {
    heads: Vec<(String, usize, Align)>,
    rows: Vec<Vec<String>>,
    between: &'static str,
}

impl Columns {
    /// A table with these columns: head, least width, alignment.
    pub fn new(heads: &[(&str, usize, Align)]) -> Self {
        Columns {
            heads: heads.iter().map(|(h, w, a)| ((*h).to_owned(), *w, *a)).collect(),
            rows: Vec::new(),
            between: "  ",
        }
    }
    /// The table with something else than two blanks between its columns.
    pub fn with_between(self, between: &'static str) -> Self {
        Columns { between, ..self }
    }
    /// Adds a row; it has as many cells as there are columns.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.heads.len());
        self.rows.push(cells);
    }
    /// Leaves out the columns in which every row has `-`.
    pub fn drop_empty(&mut self) {
        for column in (0..self.heads.len()).rev() {
            if !self.rows.is_empty() && self.rows.iter().all(|row| row[column] == "-") {
                self.heads.remove(column);
                for row in &mut self.rows {
                    row.remove(column);
                }
            }
        }
    }
    /// The heads with their alignment.
    pub fn heads(&self) -> impl Iterator<Item = (&str, Align)> {
        self.heads.iter().map(|h| (h.0.as_str(), h.2))
    }
    /// The rows.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }
    /// The lines of the table, head first.
    pub fn lines(&self) -> Vec<String> {
        let widths: Vec<usize> = (0..self.heads.len())
            .map(|c| {
                let cells = self.rows.iter().map(|row| row[c].chars().count());
                let widest = cells.chain([self.heads[c].0.chars().count()]).max().unwrap_or(0);
                widest.max(self.heads[c].1)
            })
            .collect();
        let heads: Vec<String> = self.heads.iter().map(|h| h.0.clone()).collect();
        std::iter::once(&heads).chain(&self.rows).map(|row| self.join(row, &widths)).collect()
    }
    fn join(&self, row: &[String], widths: &[usize]) -> String {
        let cells: Vec<String> = row
            .iter()
            .zip(widths)
            .zip(&self.heads)
            .map(|((cell, &width), head)| match head.2 {
                Align::Right => format!("{cell:>width$}"),
                Align::Left => format!("{cell:<width$}"),
            })
            .collect();
        cells.join(self.between).trim_end().to_owned()
    }
}

/// A bar of 28 characters, `#` for the value's share of the largest and `.` for the rest.
pub fn bar(value: f64, largest: f64) -> String {
    const LENGTH: usize = 28;
    let share = if largest > 0.0 { (value / largest).clamp(0.0, 1.0) } else { 0.0 };
    let filled = (share * LENGTH as f64).floor() as usize;
    format!("{}{}", "#".repeat(filled), ".".repeat(LENGTH - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_filled_by_its_share_rounded_down() {
        assert_eq!(bar(1.0, 1.0), "#".repeat(28));
        assert_eq!(bar(0.187, 7.427), ".".repeat(28));
        assert_eq!(bar(6.888, 7.427), format!("{}{}", "#".repeat(25), "..."));
        assert_eq!(bar(0.0, 0.0), ".".repeat(28));
    }

    #[test]
    fn columns_grow_and_empty_ones_go() {
        let mut t = Columns::new(&[("Key", 5, Align::Right), ("P99", 0, Align::Right), ("Name", 0, Align::Left)]);
        t.row(vec!["1".into(), "-".into(), "a".into()]);
        t.row(vec!["1234567".into(), "-".into(), "bc".into()]);
        t.drop_empty();
        assert_eq!(t.lines(), ["    Key  Name", "      1  a", "1234567  bc"]);
    }
}

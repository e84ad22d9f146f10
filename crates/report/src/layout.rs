//! Aligned columns: everything to the right, as figures want it, except columns marked as text.
//!
//! Own code, because the table crates draw boxes or pad with one rule for all; here columns keep the widths of
//! the original scripts' tables until a figure needs more.

pub use Align::{Left, Right};

/// How a column is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Figures.
    Right,
    /// Words and bars.
    Left,
}

/// A column: head, least width, alignment, and the cell of a row.
pub type Column<'c, T> = (&'c str, usize, Align, &'c dyn Fn(&T) -> String);

/// Rows that are to become a table.
pub struct Rows<T>(Vec<T>);

impl<T> Rows<T> {
    /// These, in their order.
    pub fn of(rows: impl IntoIterator<Item = T>) -> Self {
        Rows(rows.into_iter().collect())
    }
    /// The table of them with these columns.
    pub fn columns(&self, columns: &[Column<T>]) -> Columns {
        let heads: Vec<_> = columns.iter().map(|(head, width, align, _)| (*head, *width, *align)).collect();
        let mut table = Columns::new(&heads);
        self.0.iter().for_each(|row| table.row(columns.iter().map(|column| (column.3)(row)).collect()));
        table
    }
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
    /// The table without them.
    pub fn without_empty(mut self) -> Self {
        self.drop_empty();
        self
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
                Right => format!("{cell:>width$}"),
                Left => format!("{cell:<width$}"),
            })
            .collect();
        cells.join(self.between).trim_end().to_owned()
    }
}

/// A bar of so many characters, `#` for the value's share of the largest and `.` for the rest.
pub fn bar_of(value: f64, largest: f64, length: usize) -> String {
    let share = if largest > 0.0 { (value / largest).clamp(0.0, 1.0) } else { 0.0 };
    let filled = (share * length as f64).floor() as usize;
    format!("{}{}", "#".repeat(filled), ".".repeat(length - filled))
}

/// Which rows to show: all, or of a table of more than `most` rows so many of the fastest and of the slowest by `value`.
/// Each end stays in its order.
pub(crate) fn ends<T>(rows: &[T], (most, end): (usize, usize), value: impl Fn(&T) -> f64) -> Vec<usize> {
    let mut places: Vec<usize> = (0..rows.len()).collect();
    if rows.len() > most {
        places.sort_by(|&a, &b| value(&rows[a]).total_cmp(&value(&rows[b])));
        places.drain(end..rows.len() - end);
    }
    places
}

/// Words in lines of at most `width` columns, the first after `first`, the others after `next`. A word that is longer
/// stands on a line of its own.
pub fn wrap(text: &str, width: usize, first: &str, next: &str) -> Vec<String> {
    let mut lines = vec![first.to_owned()];
    let mut used = first.chars().count();
    let mut is_begun = false;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let length = word.chars().count();
        if is_begun && used + 1 + length > width {
            lines.push(next.to_owned());
            (used, is_begun) = (next.chars().count(), false);
        }
        let line = lines.last_mut().expect("there is a first line");
        if is_begun {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += length;
        is_begun = true;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_wrapped_and_long_ones_kept_whole() {
        assert_eq!(wrap("one two three", 11, "a: ", "   "), ["a: one two", "   three"]);
        assert_eq!(wrap("/a/very/long/path x", 8, "", " "), ["/a/very/long/path", " x"]);
        assert_eq!(wrap("", 8, "a", " "), ["a"]);
    }

    #[test]
    fn a_bar_is_filled_by_its_share_rounded_down() {
        assert_eq!(bar_of(1.0, 1.0, 28), "#".repeat(28));
        assert_eq!(bar_of(0.187, 7.427, 28), ".".repeat(28));
        assert_eq!(bar_of(6.888, 7.427, 28), format!("{}{}", "#".repeat(25), "..."));
        assert_eq!(bar_of(0.0, 0.0, 28), ".".repeat(28));
    }

    #[test]
    fn columns_grow_and_empty_ones_go() {
        let mut t = Columns::new(&[("Key", 5, Right), ("P99", 0, Right), ("Name", 0, Left)]);
        t.row(vec!["1".into(), "-".into(), "a".into()]);
        t.row(vec!["1234567".into(), "-".into(), "bc".into()]);
        t.drop_empty();
        assert_eq!(t.lines(), ["    Key  Name", "      1  a", "1234567  bc"]);
    }
}

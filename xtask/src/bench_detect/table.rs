//! Tables in Markdown, aligned so that they read in a terminal too.

use std::fmt;

/// Rows of cells under a header; the first column is text, the others are figures.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Self {
        Self { rows: vec![header.into_iter().map(Into::into).collect()] }
    }

    pub(super) fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (number, row) in self.rows.iter().enumerate() {
            for (column, &width) in widths.iter().enumerate() {
                let cell = row.get(column).map_or("", String::as_str);
                write!(f, "| {cell:<width$} ")?;
            }
            writeln!(f, "|")?;
            if number == 0 {
                widths.iter().try_for_each(|width| write!(f, "|{}", "-".repeat(width + 2)))?;
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

/// A figure with as many decimals as matter; a dash for none.
pub(super) fn figure(value: Option<f64>) -> String {
    match value {
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) if value.is_finite() => format!("{value:.2}"),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(["what", "n"]);
        table.row(["leak", "12"]);
        assert_eq!(table.to_string(), "| what | n  |\n|------|----|\n| leak | 12 |\n");
        assert_eq!([figure(Some(123.4)), figure(Some(0.5)), figure(None)], ["123", "0.50", "-"]);
    }
}

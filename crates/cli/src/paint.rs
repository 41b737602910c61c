// SPDX-License-Identifier: MIT OR Apache-2.0
//! Colours, bars and columns of plain output.

use std::io::IsTerminal as _;

/// Whether to colour, decided once: only on a terminal, and never when `NO_COLOR` is set
/// (no-color.org).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint(bool);

impl Paint {
    /// For standard output.
    pub(crate) fn stdout() -> Self {
        Self(std::io::stdout().is_terminal() && wanted())
    }

    /// For a file.
    pub(crate) fn none() -> Self {
        Self(false)
    }

    /// For standard error.
    pub(crate) fn stderr() -> Self {
        Self(std::io::stderr().is_terminal() && wanted())
    }

    fn code(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Something good, something new.
    pub(crate) fn green(self, text: &str) -> String {
        self.code("32", text)
    }

    /// Something wrong, something removed.
    pub(crate) fn red(self, text: &str) -> String {
        self.code("31", text)
    }

    /// Something to look at, something changed.
    pub(crate) fn yellow(self, text: &str) -> String {
        self.code("33", text)
    }

    /// What is less important.
    pub(crate) fn dim(self, text: &str) -> String {
        self.code("2", text)
    }

    /// A heading.
    pub(crate) fn bold(self, text: &str) -> String {
        self.code("1", text)
    }

    /// A bar.
    pub(crate) fn bar(self, text: &str) -> String {
        self.code("36", text)
    }
}

pub(crate) use crate::settings::colours as wanted;

/// Columns of the terminal that standard output is, if it is one.
pub(crate) fn width() -> Option<usize> {
    let size = || ratatui::crossterm::terminal::size().ok();
    std::io::stdout().is_terminal().then(size).flatten().map(|(columns, _)| columns.into())
}

/// A line for so many columns: what is beyond them is cut off, and a mark says so.
pub(crate) fn cut(line: &str, width: Option<usize>) -> String {
    match width {
        Some(width) if line.chars().count() > width => {
            let kept: String = line.chars().take(width.saturating_sub(1)).collect();
            kept + "…"
        }
        _ => line.to_owned(),
    }
}

/// Words in lines of so many columns, the lines after the first one further in.
pub(crate) fn wrapped(text: &str, width: Option<usize>, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().map_or("", |line| line.as_str());
        let long = line.chars().count() + 1 + word.chars().count();
        if !line.trim().is_empty() && width.is_some_and(|width| long > width) {
            lines.push(format!("{indent}{word}"));
        } else if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

/// `part` of `width` cells in eighths of a cell, always exactly `width` columns wide.
pub(crate) fn bar(part: f64, width: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "between 0 and eight times a terminal's width"
    )]
    let eighths = (part * width as f64 * 8.0).round() as usize;
    let full = eighths / 8;
    let mut bar = "█".repeat(full);
    if full < width {
        bar.push(EIGHTHS[eighths % 8]);
        bar.push_str(&" ".repeat(width - full - 1));
    }
    bar
}

/// `0.256` as ` 25.6%`.
pub(crate) fn percent(part: f64) -> String {
    format!("{:5.1}%", part * 100.0)
}

/// Nanoseconds in a unit that reads well.
pub(crate) fn duration(ns: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "printed with three digits")]
    let value = ns as f64;
    match ns {
        0 => "0".to_owned(),
        1..1_000_000 => format!("{:.0}us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.0}ms", value / 1e6),
        1_000_000_000..100_000_000_000 => format!("{:.2}s", value / 1e9),
        _ => format!("{:.0}s", value / 1e9),
    }
}

/// Service in its unit, as it reads well.
pub(crate) fn amount((value, unit): (u64, &str)) -> String {
    #[expect(clippy::cast_precision_loss, reason = "printed with three digits")]
    let bytes = || scaled(value as f64, &["B", "kB", "MB", "GB", "TB", "PB", "EB"]);
    if unit == "ns" { duration(value) } else { bytes() }
}

/// Service per second in the unit in which people write it: at most 8 characters.
pub(crate) fn rate_in(per_s: f64, unit: &str) -> String {
    match unit {
        "ns" => rate(per_s),
        BITS => scaled(per_s * 8.0, &["bit", "kbit", "mbit", "gbit"]),
        _ => scaled(per_s, &["B/s", "kB/s", "MB/s", "GB/s"]),
    }
}

/// The unit of a link's rates, whose service is counted in bytes.
pub(crate) const BITS: &str = "bits";

/// Three digits, and the unit in which there are at most that many before the point.
fn scaled(mut value: f64, units: &[&str]) -> String {
    let mut units = units.iter().peekable();
    let mut first = true;
    while let Some(unit) = units.next() {
        if value < 999.5 || units.peek().is_none() {
            let digits =
                usize::from(!first && value < 99.95) + usize::from(!first && value < 9.995);
            return format!("{value:.digits$}{unit}");
        }
        (value, first) = (value / 1e3, false);
    }
    String::new()
}

/// CPU time per second as people read it: `1.50cpu`, `250ms/s`.
fn rate(ns_per_s: f64) -> String {
    if ns_per_s >= 999_500_000.0 {
        format!("{:.2}cpu", ns_per_s / 1e9)
    } else {
        format!("{:.0}ms/s", ns_per_s / 1e6)
    }
}

/// Columns, each as wide as its widest cell. `true` aligns to the right. Widths count characters.
pub(crate) fn table(align_right: &[bool], rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..align_right.len()).map(width).collect();
    rows.iter()
        .map(|row| {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
                if column > 0 {
                    line.push_str("  ");
                }
                if align_right[column] {
                    line.push_str(&pad);
                    line.push_str(cell);
                } else {
                    line.push_str(cell);
                    line.push_str(&pad);
                }
            }
            line.trim_end().to_owned()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_their_width_whatever_the_part() {
        for part in [-1.0, 0.0, 0.001, 0.5, 0.999, 1.0, 7.0, f64::NAN, f64::INFINITY] {
            for width in [0, 1, 7, 20] {
                assert_eq!(bar(part, width).chars().count(), width, "{part} of {width}");
            }
        }
        assert_eq!(bar(0.5, 4), "██  ");
        assert_eq!(bar(0.5, 1), "▌");
    }

    #[test]
    fn lines_fit_into_a_width() {
        assert_eq!(cut("four", Some(4)), "four");
        assert_eq!(cut("fives", Some(4)), "fiv…");
        assert_eq!(cut("fives", None), "fives");
        let text = "weights below a/b are rounded";
        assert_eq!(wrapped(text, None, "  "), text);
        assert_eq!(wrapped(text, Some(16), "  "), "weights below\n  a/b are\n  rounded");
        assert_eq!(wrapped("longer-than-that x", Some(5), "  "), "longer-than-that\n  x");
    }

    #[test]
    fn columns_align() {
        let rows = vec![vec!["a".into(), "1".into()], vec!["bcd".into(), "100".into()]];
        assert_eq!(table(&[false, true], &rows), ["a      1", "bcd  100"]);
    }

    #[test]
    fn units_read_well() {
        assert_eq!(duration(0), "0");
        assert_eq!(duration(1_500_000), "2ms");
        assert_eq!(duration(2_340_000_000), "2.34s");
        assert_eq!(rate(250e6), "250ms/s");
        assert_eq!(rate(1.5e9), "1.50cpu");
        for (bytes, disk, link) in [
            (0.0, "0B/s", "0bit"),
            (999.0, "999B/s", "7.99kbit"),
            (1500.0, "1.50kB/s", "12.0kbit"),
            (1_250_000.0, "1.25MB/s", "10.0mbit"),
            (12_500_000.0, "12.5MB/s", "100mbit"),
            (124_999_999.0, "125MB/s", "1.00gbit"),
            (9e10, "90.0GB/s", "720gbit"),
        ] {
            assert_eq!(
                (rate_in(bytes, "bytes").as_str(), rate_in(bytes, BITS).as_str()),
                (disk, link)
            );
            assert!(disk.len() <= 8 && link.len() <= 8, "the column of top is as wide");
        }
        assert_eq!(amount((30_020_908, "bytes")), "30.0MB");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `top`: who is served, measured again and again.
//!
//! A row is a node. Its rate is the difference of two readings of its service counter over the time
//! between them; its bar is the part of everything served, and the mark on it the part it is
//! entitled to.

mod measure;
mod order;
mod processes;

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::{execute, terminal};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use self::measure::{Measured, Meter};
pub(crate) use self::order::{By, Sort, next};
use self::order::{arrange, word};
use self::processes::Processes;
use crate::args::Top;
use crate::error::Error;
use crate::fs::Files;
use crate::paint::{bar, percent, rate_in, table, wanted};

const HEADER: [&str; 8] = ["NODE", "WEIGHT", "SHARE", "RECEIVED", "", "RATE", "RUNNABLE", "NOTES"];

fn label(row: &Measured) -> String {
    if let Some(process) = &row.process {
        return format!("{}{}", "  ".repeat(row.depth), process.label());
    }
    let name =
        if row.depth == 0 { row.path.as_str() } else { row.path.rsplit('/').next().unwrap_or("") };
    let slash = if row.kind == "scheduler" && row.depth > 0 { "/" } else { "" };
    format!("{}{name}{slash}", "  ".repeat(row.depth))
}

/// `top --batch`: plain tables (or one JSON object per line), the first after one interval.
pub(crate) fn batch(files: &dyn Files, args: &Top, by: By, json: bool) -> Result<(), Error> {
    let mut meter = Meter::new(files, args.path.as_deref())?;
    meter.processes = args.processes.then(Processes::default);
    let start = Instant::now();
    meter.measure(files, start)?;
    let mut next = start;
    let mut out = io::stdout().lock();
    let failed = |e: io::Error| Error::io("standard output", &e);
    for n in 0.. {
        if args.batch.is_some_and(|count| count > 0 && n >= count) {
            break;
        }
        next += Duration::from_secs_f64(args.interval);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let now = Instant::now();
        let rows = arrange(meter.measure(files, now)?, by);
        let elapsed = now.duration_since(start).as_secs_f64();
        if json {
            let line = serde_json::json!({ "elapsed_s": elapsed, "nodes": rows });
            writeln!(out, "{line}").map_err(failed)?;
        } else {
            writeln!(out, "# {elapsed:.2}s").map_err(failed)?;
            for line in plain(&rows) {
                writeln!(out, "{line}").map_err(failed)?;
            }
        }
        out.flush().map_err(failed)?;
    }
    Ok(())
}

fn plain(rows: &[Measured]) -> Vec<String> {
    let mut cells: Vec<Vec<String>> = vec![HEADER.map(str::to_owned).to_vec()];
    cells.extend(rows.iter().map(|row| {
        vec![
            label(row),
            row.weight.clone(),
            Column::Share.text(row),
            percent(row.received),
            bar(row.received, 12),
            rate_in(row.rate, &row.unit),
            Column::Runnable.text(row),
            row.notes.clone(),
        ]
    }));
    table(&[false, true, true, true, false, true, true, false], &cells)
}

/// Gives the terminal back whatever happens, a panic included.
pub(crate) struct Screen(pub(crate) Terminal<CrosstermBackend<io::Stdout>>);

impl Screen {
    pub(crate) fn open() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        if let Err(e) = execute!(io::stdout(), terminal::EnterAlternateScreen) {
            let _ = terminal::disable_raw_mode();
            return Err(e);
        }
        match Terminal::new(CrosstermBackend::new(io::stdout())) {
            Ok(terminal) => Ok(Self(terminal)),
            Err(e) => {
                Self::restore();
                Err(e)
            }
        }
    }

    fn restore() {
        let _ = execute!(
            io::stdout(),
            terminal::LeaveAlternateScreen,
            ratatui::crossterm::cursor::Show
        );
        let _ = terminal::disable_raw_mode();
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        Self::restore();
    }
}

/// What is on the screen.
struct View {
    rows: Vec<Measured>,
    by: By,
    /// Whether processes are rows too.
    processes: bool,
    problem: Option<String>,
    interval: Duration,
    paused: bool,
    table: TableState,
    colour: bool,
}

/// The live view. Ends with q, Esc or Ctrl-C.
pub(crate) fn live(files: &dyn Files, args: &Top, by: By) -> Result<(), Error> {
    let failed = |e: io::Error| Error::io("the terminal", &e);
    let mut meter = Meter::new(files, args.path.as_deref())?;
    meter.processes = args.processes.then(Processes::default);
    let rows = arrange(meter.measure(files, Instant::now())?, by);
    let mut view = View {
        rows,
        by,
        processes: args.processes,
        problem: None,
        interval: Duration::from_secs_f64(args.interval),
        paused: false,
        table: TableState::default(),
        colour: wanted(),
    };
    let mut screen = Screen::open().map_err(failed)?;
    // A first rate soon, then the steady interval.
    let mut next = Instant::now() + view.interval.min(Duration::from_millis(250));
    loop {
        screen.0.draw(|frame| draw(frame, &mut view)).map_err(failed)?;
        while Instant::now() < next {
            if !event::poll(next.saturating_duration_since(Instant::now())).map_err(failed)? {
                break;
            }
            match event::read().map_err(failed)? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    let ctrl_c = key.code == KeyCode::Char('c')
                        && key.modifiers.contains(KeyModifiers::CONTROL);
                    if ctrl_c || !view.key(key.code) {
                        return Ok(());
                    }
                }
                _ => {}
            }
            screen.0.draw(|frame| draw(frame, &mut view)).map_err(failed)?;
        }
        next = Instant::now() + view.interval;
        if view.paused {
            continue;
        }
        if view.processes != meter.processes.is_some() {
            meter.processes = view.processes.then(Processes::default);
        }
        match meter.measure(files, Instant::now()) {
            Ok(rows) => {
                view.rows = arrange(rows, view.by);
                view.problem = None;
            }
            Err(error) => view.problem = Some(error.to_string()),
        }
    }
}

impl View {
    /// What a key does; false ends.
    fn key(&mut self, code: KeyCode) -> bool {
        let last = self.rows.len().saturating_sub(1);
        let at = self.table.selected().unwrap_or(0);
        let go = match code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('p' | ' ') => {
                self.paused = !self.paused;
                return true;
            }
            KeyCode::Char('s') => {
                self.by = next(&self.by);
                self.rows = arrange(std::mem::take(&mut self.rows), self.by);
                return true;
            }
            KeyCode::Char('P') => {
                self.processes = !self.processes;
                return true;
            }
            KeyCode::Char('+') => {
                self.interval = (self.interval / 2).max(Duration::from_millis(100));
                return true;
            }
            KeyCode::Char('-') => {
                self.interval = (self.interval * 2).min(Duration::from_secs(60));
                return true;
            }
            KeyCode::Down | KeyCode::Char('j') => at + 1,
            KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
            KeyCode::PageDown => at + 20,
            KeyCode::PageUp => at.saturating_sub(20),
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => return true,
        };
        self.table.select(Some(go.min(last)));
        true
    }

    fn style(&self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }
}

fn draw(frame: &mut ratatui::Frame<'_>, view: &mut View) {
    let [top, body, bottom] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    let served: Vec<String> = view
        .rows
        .iter()
        .filter(|row| row.depth == 0)
        .map(|row| {
            format!(
                "{} served {} runnable {}",
                row.path,
                rate_in(row.rate, &row.unit),
                row.runnable
            )
        })
        .collect();
    let title = Line::from(vec![
        Span::styled(
            " reserv top ",
            Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED),
        ),
        // The longest last, for it is what a narrow terminal cuts off.
        Span::raw(format!(
            " {} {:.1}s  {}",
            if view.paused { "paused, every" } else { "every" },
            view.interval.as_secs_f64(),
            served.join("  "),
        )),
    ]);
    frame.render_widget(Paragraph::new(title), top);

    let name_width =
        view.rows.iter().map(|row| label(row).chars().count()).max().unwrap_or(4).clamp(4, 40);
    let notes = view.rows.iter().map(|row| row.notes.chars().count()).max().unwrap_or(0);
    let columns = columns(usize::from(body.width), name_width, notes);
    let bar_width =
        columns.iter().find(|(column, _)| *column == Column::Bar).map_or(0, |(_, width)| *width);
    let head = columns.iter().map(|(column, _)| {
        let line = Line::from(column.title());
        if column.right() { line.right_aligned() } else { line }
    });
    let header =
        Row::new(head.collect::<Vec<_>>()).style(Style::new().add_modifier(Modifier::BOLD));
    let rows: Vec<Row<'_>> = view
        .rows
        .iter()
        .map(|row| {
            let starved = row.runnable > 0 && row.received + 0.03 < row.entitled && !row.throttled;
            let colour = if row.process.is_some() {
                Color::DarkGray
            } else if row.throttled {
                Color::Yellow
            } else if starved {
                Color::Red
            } else if row.kind == "scheduler" {
                Color::Blue
            } else {
                Color::Cyan
            };
            let cells = columns.iter().map(|(column, _)| {
                let line = match column {
                    Column::Bar => {
                        marked_bar(row, bar_width, view.style(colour), view.style(Color::White))
                    }
                    _ => Line::from(column.text(row)),
                };
                Cell::from(if column.right() { line.right_aligned() } else { line })
            });
            Row::new(cells.collect::<Vec<_>>())
        })
        .collect();
    let widths = columns
        .iter()
        .map(|(_, width)| Constraint::Length(u16::try_from(*width).unwrap_or(u16::MAX)));
    let table = Table::new(rows, widths)
        .header(header)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_stateful_widget(table, body, &mut view.table);

    let foot = match &view.problem {
        Some(problem) => Line::styled(format!(" {problem}"), view.style(Color::Red)),
        None => Line::styled(
            format!(
                " q quit  p pause  s sort ({})  P processes  + - pace  ↑ ↓ scroll  ┃ share",
                word(&view.by)
            ),
            Style::new().add_modifier(Modifier::DIM),
        ),
    };
    frame.render_widget(Paragraph::new(foot), bottom);
}

/// What a column shows, in the order on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Node,
    Weight,
    Share,
    Received,
    Bar,
    Rate,
    Runnable,
    Notes,
}

impl Column {
    fn title(self) -> &'static str {
        HEADER[self as usize]
    }

    fn right(self) -> bool {
        !matches!(self, Self::Node | Self::Bar | Self::Notes)
    }

    fn text(self, row: &Measured) -> String {
        match self {
            Self::Node => label(row),
            Self::Weight => row.weight.clone(),
            // A process has no share of its own.
            Self::Share | Self::Runnable if row.process.is_some() => String::new(),
            Self::Share => percent(row.entitled),
            Self::Received => percent(row.received),
            Self::Bar => String::new(),
            Self::Rate => rate_in(row.rate, &row.unit),
            Self::Runnable => row.runnable.to_string(),
            Self::Notes => row.notes.clone(),
        }
    }
}

/// The columns that fit into a width, and how wide each is: the most important ones first. What is
/// left is for the notes, as long as the longest of them, then for the bar, which says nothing that
/// RECEIVED does not.
fn columns(width: usize, name: usize, notes: usize) -> Vec<(Column, usize)> {
    use Column::{Bar, Node, Notes, Rate, Received, Runnable, Share, Weight};
    const BAR_MIN: usize = 8;
    const NOTES_MIN: usize = 8;
    let mut left = width.saturating_sub(name);
    let mut chosen = vec![(Node, name)];
    for (column, needs) in
        [(Received, 8), (Share, 6), (Rate, 8), (Weight, 7), (Notes, NOTES_MIN), (Runnable, 8)]
    {
        if left > needs {
            left -= needs + 1;
            chosen.push((column, needs));
        }
    }
    if let Some((_, width)) = chosen.iter_mut().find(|(column, _)| *column == Notes) {
        let more = left.min(notes.saturating_sub(NOTES_MIN));
        *width += more;
        left -= more;
    }
    if left > BAR_MIN {
        chosen.push((Bar, (left - 1).min(60)));
    }
    chosen.sort_by_key(|(column, _)| *column as usize);
    chosen
}

/// What was received, with a mark where the entitlement ends.
fn marked_bar(row: &Measured, width: usize, bar_style: Style, mark_style: Style) -> Line<'static> {
    let cells: Vec<char> = bar(row.received, width).chars().collect();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a column of a terminal"
    )]
    let mark =
        ((row.entitled.clamp(0.0, 1.0) * width as f64).ceil() as usize).clamp(1, width.max(1)) - 1;
    let part = |range: &[char]| Span::styled(range.iter().collect::<String>(), bar_style);
    if row.entitled <= 0.0 || width == 0 {
        return Line::from(part(&cells));
    }
    Line::from(vec![part(&cells[..mark]), Span::styled("┃", mark_style), part(&cells[mark + 1..])])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::fake::Fake;
    use ratatui::backend::TestBackend;

    fn two_readings() -> Vec<Measured> {
        let fake = Fake::new();
        fake.put("cpu/q0/share", "1 0");
        fake.node("cpu/a", false);
        fake.put("cpu/a/share", "3 0");
        let serve = |root: u64, a: u64, q0: u64| {
            fake.put("cpu/stat", &format!("weight_share_ppm 1000000\nservice_ns {root}"));
            fake.put(
                "cpu/a/stat",
                &format!("weight_share_ppm 750000\nservice_ns {a}\nrunnable 3\nmembers 3"),
            );
            fake.put(
                "cpu/q0/stat",
                &format!("weight_share_ppm 250000\nservice_ns {q0}\nthrottled 1"),
            );
        };
        serve(0, 0, 0);
        let mut meter = Meter::new(&fake, Some("cpu")).unwrap();
        let start = Instant::now();
        assert!(meter.measure(&fake, start).unwrap().iter().all(|row| row.rate == 0.0));
        serve(2_000_000_000, 1_500_000_000, 500_000_000);
        meter.measure(&fake, start + Duration::from_secs(2)).unwrap()
    }

    #[test]
    fn rates_are_differences_over_time() {
        let rows = two_readings();
        let by_name: Vec<_> = rows.iter().map(|r| (r.path.as_str(), r.rate, r.received)).collect();
        assert_eq!(by_name, [("cpu", 1e9, 1.0), ("cpu/a", 0.75e9, 0.75), ("cpu/q0", 0.25e9, 0.25)]);
        assert_eq!((rows[1].runnable, rows[1].members, rows[2].throttled), (3, 3, true));
    }

    #[test]
    fn plain_output_aligns() {
        let lines = plain(&two_readings());
        assert_eq!(
            lines,
            [
                "NODE  WEIGHT   SHARE  RECEIVED                   RATE  RUNNABLE  NOTES",
                "cpu        1  100.0%    100.0%  ████████████  1.00cpu         0  sfq",
                "  a        3   75.0%     75.0%  █████████     750ms/s         3  ts",
                "  q0       1   25.0%     25.0%  ███           250ms/s         0  ts, throttled",
            ]
        );
    }

    #[test]
    fn the_most_important_columns_stay() {
        for width in 0..300 {
            let chosen = columns(width, 10, width % 50);
            let used: usize = chosen.iter().map(|(_, width)| width + 1).sum::<usize>() - 1;
            assert!(used <= width.max(10), "{used} of {width}");
            assert_eq!(chosen[0].0, Column::Node);
        }
        assert_eq!(columns(120, 10, 30).len(), HEADER.len());
        // In 80 columns weights and notes stand, as long as they are.
        let narrow = columns(80, 14, 25);
        assert!(narrow.iter().any(|(column, _)| *column == Column::Weight), "{narrow:?}");
        assert_eq!(narrow.last(), Some(&(Column::Notes, 23)), "{narrow:?}");
        assert_eq!(
            columns(40, 10, 30).iter().map(|(c, _)| *c).collect::<Vec<_>>(),
            [Column::Node, Column::Share, Column::Received, Column::Rate]
        );
    }

    #[test]
    fn any_size_of_terminal_is_drawn() {
        let mut view = View {
            rows: two_readings(),
            by: By::Name,
            processes: false,
            problem: None,
            interval: Duration::from_secs(1),
            paused: false,
            table: TableState::default(),
            colour: false,
        };
        for (width, height) in [(1, 1), (2, 3), (20, 5), (80, 24), (400, 100)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, &mut view)).unwrap();
            if width >= 80 {
                let text: String = terminal
                    .backend()
                    .buffer()
                    .content()
                    .iter()
                    .map(ratatui::buffer::Cell::symbol)
                    .collect();
                for word in ["reserv top", "750ms/s", "throttled", "┃", "75.0%"] {
                    assert!(text.contains(word), "{word} at {width}x{height}: {text}");
                }
            }
        }
        // At 80 columns nothing that is pressed is cut off, by whatever it is sorted, and the title
        // says first what a title of many resources would lose.
        view.by = By::Runnable;
        view.paused = true;
        view.rows.iter_mut().for_each(|row| row.path = format!("resource-{}", row.path));
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(frame, &mut view)).unwrap();
        let line = |at: u16| -> String {
            let cell = |x| terminal.backend().buffer()[(x, at)].symbol().to_owned();
            (0..80).map(cell).collect()
        };
        assert!(line(0).contains("paused, every 1.0s"), "{}", line(0));
        assert!(line(23).contains("(runnable)") && line(23).contains("┃ share"), "{}", line(23));
        view.by = By::Name;
        view.paused = false;
        view.rows.iter_mut().for_each(|row| row.path = row.path.replacen("resource-", "", 1));
        assert!(view.key(KeyCode::End) && view.table.selected() == Some(2));
        assert!(view.key(KeyCode::PageDown) && view.table.selected() == Some(2));
        assert!(view.key(KeyCode::Char('p')) && view.paused);
        let names = |view: &View| view.rows.iter().map(label).collect::<String>();
        assert_eq!(names(&view), "cpu  a  q0");
        view.rows[2].received = 0.9;
        assert!(
            view.key(KeyCode::Char('s')) && names(&view) == "cpu  q0  a",
            "by what is received"
        );
        for _ in 0..3 {
            assert!(view.key(KeyCode::Char('s')));
        }
        assert_eq!(names(&view), "cpu  a  q0", "by name again");
        assert!(view.key(KeyCode::Char('P')) && view.processes);
        assert!(!view.key(KeyCode::Char('q')));
    }
}

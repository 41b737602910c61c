// SPDX-License-Identifier: MIT OR Apache-2.0
//! `top` of containers: what each uses of CPU, links and disks, again and again.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use crate::args::Top;
use crate::error::Error;
use crate::fs::Files;
use crate::top::{self, Screen};
use crate::usage::{Measured, Meter, Sort, WIDTH, draw, following, sort, top_line};

/// `plain`: tables one after the other, or an object per line.
pub(crate) fn watch(
    files: &dyn Files,
    path: &str,
    args: &Top,
    plain: bool,
    json: bool,
) -> Result<(), Error> {
    if args.processes {
        return Err(Error::usage("processes are rows below queues, and these are containers")
            .hint("reserv top -P cpu/web shows those of web in the CPU's tree"));
    }
    let by = args.sort.map(top::Sort::of_containers).transpose()?.unwrap_or_default();
    let meter = Meter::new(files, path)?;
    if plain { batch(files, meter, (args, by), json) } else { live(files, meter, args, by) }
}

fn batch(
    files: &dyn Files,
    mut meter: Meter,
    (args, by): (&Top, Sort),
    json: bool,
) -> Result<(), Error> {
    let start = Instant::now();
    meter.measure(files)?;
    let (mut last, mut next) = (start, start);
    let mut out = io::stdout().lock();
    let failed = |e: io::Error| Error::io("standard output", &e);
    for n in 0.. {
        if args.batch.is_some_and(|count| count > 0 && n >= count) {
            break;
        }
        next = following(next, args.interval);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let mut measured = meter.measure(files)?;
        let now = Instant::now();
        let seconds = now.duration_since(last).as_secs_f64();
        last = now;
        sort(&mut measured.rows, by);
        let elapsed = now.duration_since(start).as_secs_f64();
        if json {
            writeln!(out, "{}", top_line(&measured, elapsed, seconds)).map_err(failed)?;
        } else {
            writeln!(out, "# {elapsed:.2}s").map_err(failed)?;
            for line in draw(&measured, Some(seconds), WIDTH) {
                writeln!(out, "{line}").map_err(failed)?;
            }
        }
        out.flush().map_err(failed)?;
    }
    Ok(())
}

/// What is on the screen.
struct View {
    measured: Measured,
    /// Of which time.
    seconds: f64,
    problem: Option<String>,
    interval: Duration,
    paused: bool,
    by: Sort,
    /// The first row that is shown.
    first: usize,
}

impl View {
    /// What a key does; false ends.
    fn key(&mut self, code: KeyCode) -> bool {
        let last = self.measured.rows.len().saturating_sub(1);
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('s') => {
                self.by = top::next(&self.by);
                sort(&mut self.measured.rows, self.by);
            }
            KeyCode::Char('+') => {
                self.interval = (self.interval / 2).max(Duration::from_millis(100));
            }
            KeyCode::Char('-') => {
                self.interval = (self.interval * 2).min(Duration::from_secs(60));
            }
            KeyCode::Down | KeyCode::Char('j') => self.first += 1,
            KeyCode::Up | KeyCode::Char('k') => self.first = self.first.saturating_sub(1),
            KeyCode::PageDown => self.first += 20,
            KeyCode::PageUp => self.first = self.first.saturating_sub(20),
            KeyCode::Home => self.first = 0,
            KeyCode::End => self.first = last,
            _ => {}
        }
        self.first = self.first.min(last);
        true
    }
}

fn show(frame: &mut ratatui::Frame<'_>, view: &View) {
    let [top, body, bottom] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    let title = format!(
        " reserv top  {} containers, by {:?}  every {:.1}s{}",
        view.measured.rows.len(),
        view.by,
        view.interval.as_secs_f64(),
        if view.paused { "  paused" } else { "" },
    );
    frame.render_widget(Paragraph::new(title), top);
    let mut lines = draw(&view.measured, Some(view.seconds), usize::from(body.width)).into_iter();
    let head = lines.next().unwrap_or_default();
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut text = vec![Line::styled(head, bold)];
    let room = usize::from(body.height).saturating_sub(1);
    text.extend(lines.skip(view.first).take(room).map(Line::from));
    frame.render_widget(Paragraph::new(text), body);
    let foot = view.problem.as_ref().map_or_else(
        || " q quit   p pause   s sort   + - faster, slower   ↑ ↓ scroll".to_owned(),
        |problem| format!(" {problem}"),
    );
    frame.render_widget(Paragraph::new(foot), bottom);
}

/// Ends with q, Esc or Ctrl-C.
fn live(files: &dyn Files, mut meter: Meter, args: &Top, by: Sort) -> Result<(), Error> {
    let failed = |e: io::Error| Error::io("the terminal", &e);
    let mut measured = meter.measure(files)?;
    sort(&mut measured.rows, by);
    let mut view = View {
        measured,
        seconds: 1.0,
        problem: None,
        interval: Duration::from_secs_f64(args.interval),
        paused: false,
        by,
        first: 0,
    };
    let mut last = Instant::now();
    let mut screen = Screen::open().map_err(failed)?;
    // A first rate soon, then the steady interval.
    let mut next = last + view.interval.min(Duration::from_millis(250));
    loop {
        screen.0.draw(|frame| show(frame, &view)).map_err(failed)?;
        while Instant::now() < next {
            if !event::poll(next.saturating_duration_since(Instant::now())).map_err(failed)? {
                break;
            }
            if let Event::Key(key) = event::read().map_err(failed)?
                && key.kind != KeyEventKind::Release
            {
                let ctrl_c =
                    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if ctrl_c || !view.key(key.code) {
                    return Ok(());
                }
            }
            screen.0.draw(|frame| show(frame, &view)).map_err(failed)?;
        }
        next = Instant::now() + view.interval;
        if view.paused {
            continue;
        }
        match meter.measure(files) {
            Ok(measured) => {
                view.measured = measured;
                let now = Instant::now();
                view.seconds = now.duration_since(last).as_secs_f64();
                last = now;
                sort(&mut view.measured.rows, view.by);
                view.problem = None;
            }
            Err(error) => view.problem = Some(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::fs::fake::Fake;

    #[test]
    fn any_size_of_terminal_is_drawn() {
        let fake = Fake::new();
        fake.node("container", true);
        let tell = |n: u64| {
            let used = n * 1_000_000_000;
            fake.put(
                "container/usage",
                &format!(
                    "resource cpu cpu ns\ncontainer 1.1 containers web cpu 0 {used}\n\
                     container 2.1 threads web/site1 cpu {used} {used}\ncontainer 3.1 threads b\n"
                ),
            );
        };
        let mut meter = Meter::new(&fake, "container").unwrap();
        tell(0);
        meter.measure(&fake).unwrap();
        tell(1);
        let mut view = View {
            measured: meter.measure(&fake).unwrap(),
            seconds: 1.0,
            problem: None,
            interval: Duration::from_secs(1),
            paused: false,
            by: Sort::Name,
            first: 0,
        };
        for (width, height) in [(1, 1), (2, 3), (20, 5), (80, 24), (400, 100)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| show(frame, &view)).unwrap();
            if width >= 80 {
                let cells = terminal.backend().buffer().content();
                let text: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
                for word in ["reserv top", "web/site1", "1.00cpu", "DISK-OWN", "s sort"] {
                    assert!(text.contains(word), "{word} at {width}x{height}: {text}");
                }
            }
        }
        assert!(view.key(KeyCode::Char('s')) && view.by == Sort::Cpu);
        assert_eq!(view.measured.rows[2].path, "b", "who used least is the last");
        assert!(view.key(KeyCode::End) && view.first == 2 && view.key(KeyCode::PageDown));
        assert_eq!(view.first, 2);
        assert!(view.key(KeyCode::Home) && view.first == 0 && !view.key(KeyCode::Esc));
    }
}

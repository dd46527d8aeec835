//! The screen of `pathlab watch`: keys, and the text of [`study::watch::text`] on a terminal.
//!
//! **Price.** What is on the screen is drawn anew for each interval and each key; ratatui sends only what changed. The terminal is
//! put back on every end, also of a panic and of a signal (`docs/decisions/0016-screen.md`).

use super::{TURN, Watching};
use linux::sys::process;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Style;
use ratatui::text::{Line, Text};
use ratatui::widgets::Paragraph;
use record::watch::WatchReport;
use record::{Problem, Result};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use study::watch::text::{View, screen};

/// What the last line says.
const KEYS: &str = "q quit  s sort  / filter  p pause  ↑ ↓ scroll";

/// What is on the screen.
struct Screen {
    view: View,
    colour: bool,
    report: Option<WatchReport>,
    /// The filter while it is typed.
    typed: Option<String>,
    is_paused: bool,
    scroll: u16,
}

/// What a key asks for.
#[derive(PartialEq, Eq)]
enum Asked {
    Nothing,
    Quit,
}

/// Watches until somebody quits.
pub fn run(watching: Watching, view: View, interval: Duration, colour: bool) -> Result<()> {
    let mut terminal = ratatui::try_init().map_err(|error| broken(&error))?;
    let state = Screen { view, colour, report: None, typed: None, is_paused: false, scroll: 0 };
    let done = show(&mut terminal, watching, state, interval);
    // One that has hung up needs nothing any more, and has nowhere to say so, which the library would try.
    if ratatui::try_restore().and(terminal.show_cursor()).is_err() {
        std::mem::forget(terminal);
    }
    process::forget_interrupt();
    done
}

fn broken(error: &std::io::Error) -> Problem {
    Problem::host(format!("the terminal cannot be used: {error}")).help("print text with --plain")
}

fn show(
    terminal: &mut DefaultTerminal,
    mut watching: Watching,
    mut state: Screen,
    interval: Duration,
) -> Result<()> {
    let (mut next, events) = (Instant::now() + interval, events());
    while !process::interrupted() {
        terminal.draw(|frame| state.draw(frame)).map_err(|error| broken(&error))?;
        let event = event_until(next, &events).map_err(|error| broken(&error))?;
        if let Some(Event::Key(key)) = event
            && key.kind == KeyEventKind::Press
            && state.key(key) == Asked::Quit
        {
            return Ok(());
        }
        if Instant::now() >= next {
            next = Instant::now() + interval;
            let report = watching.look()?;
            if !state.is_paused {
                state.report = Some(report);
            }
        }
    }
    Ok(())
}

/// What the terminal says, as it comes. The library waits on through signals, and of a terminal that hung up it reads for ever: so it
/// waits in a thread of its own, which ends with the process.
fn events() -> Receiver<std::io::Result<Event>> {
    let (sender, events) = channel();
    std::thread::spawn(move || {
        loop {
            let event = event::read();
            let is_last = event.is_err();
            if sender.send(event).is_err() || is_last {
                return;
            }
        }
    });
    events
}

/// What the terminal says before the interval is over, or a signal asks for the end.
fn event_until(end: Instant, events: &Receiver<std::io::Result<Event>>) -> std::io::Result<Option<Event>> {
    loop {
        let rest = end.saturating_duration_since(Instant::now());
        match events.recv_timeout(rest.min(TURN)) {
            Ok(event) => return event.map(Some),
            Err(_) if rest.is_zero() || process::interrupted() => return Ok(None),
            Err(_) => {}
        }
    }
}

impl Screen {
    fn draw(&mut self, frame: &mut ratatui::Frame<'_>) {
        let [above, below] =
            Layout::vertical([Constraint::Min(1), Constraint::Length(1)]).areas(frame.area());
        self.view.width = usize::from(above.width);
        let text = match &self.report {
            Some(report) => screen(report, &self.view),
            None => "The first interval is not over.".into(),
        };
        let lines: Vec<Line> = text.lines().map(|line| self.styled(line)).collect();
        let most = (lines.len() as u16).saturating_sub(above.height);
        self.scroll = self.scroll.min(most);
        frame.render_widget(Paragraph::new(Text::from(lines)).scroll((self.scroll, 0)), above);
        frame.render_widget(Paragraph::new(self.last_line()).style(self.style(Style::new().dim())), below);
    }

    fn style(&self, style: Style) -> Style {
        if self.colour { style } else { Style::new() }
    }

    /// Heads of tables and the sentence about losses stand out.
    fn styled(&self, line: &str) -> Line<'static> {
        const HEADS: [&str; 7] =
            ["interface ", "CPU ", "irq ", "queue of ", "socket ", "on the way ", "pathlab watch "];
        let style = match line {
            _ if HEADS.iter().any(|head| line.starts_with(head)) => Style::new().bold(),
            _ if line.starts_with("Most frames") => Style::new().bold().red(),
            _ => Style::new(),
        };
        Line::styled(line.to_owned(), self.style(style))
    }

    fn last_line(&self) -> String {
        match &self.typed {
            Some(typed) => format!("only rows with: {typed}_  (Enter, Esc)"),
            None if self.is_paused => format!("{KEYS}  paused"),
            None => KEYS.to_owned(),
        }
    }

    fn key(&mut self, key: KeyEvent) -> Asked {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Asked::Quit;
        }
        if let Some(typed) = &mut self.typed {
            match key.code {
                KeyCode::Char(one) => typed.push(one),
                KeyCode::Backspace => _ = typed.pop(),
                KeyCode::Enter => self.view.filter = self.typed.take().unwrap_or_default(),
                KeyCode::Esc => self.typed = None,
                _ => {}
            }
            return Asked::Nothing;
        }
        match key.code {
            KeyCode::Char('q') => return Asked::Quit,
            KeyCode::Char('s') => self.view.sort = self.view.sort.next(),
            KeyCode::Char('/') => self.typed = Some(String::new()),
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Esc => self.view.filter.clear(),
            KeyCode::Down | KeyCode::Char('j') => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            _ => {}
        }
        Asked::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use study::watch::text::Sort;

    fn screen_of(report: Option<WatchReport>) -> Screen {
        Screen { view: View::default(), colour: false, report, typed: None, is_paused: false, scroll: 9 }
    }

    fn press(state: &mut Screen, keys: &[KeyCode]) {
        keys.iter().for_each(|key| assert!(state.key(KeyEvent::from(*key)) == Asked::Nothing));
    }

    #[test]
    fn keys_sort_filter_and_quit() {
        let mut state = screen_of(None);
        press(&mut state, &[KeyCode::Char('s'), KeyCode::Char('/'), KeyCode::Char('q'), KeyCode::Char('x')]);
        assert_eq!((state.view.sort, state.view.filter.as_str()), (Sort::Bits, ""));
        press(&mut state, &[KeyCode::Backspace, KeyCode::Enter]);
        assert_eq!(state.view.filter, "q");
        press(&mut state, &[KeyCode::Esc, KeyCode::Char('p')]);
        assert!(state.view.filter.is_empty() && state.is_paused);
        assert!(state.key(KeyEvent::from(KeyCode::Char('q'))) == Asked::Quit);
        assert!(state.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)) == Asked::Quit);
    }

    #[test]
    fn the_last_line_has_the_keys_and_the_text_takes_the_width_of_the_terminal() {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        let mut state = screen_of(None);
        terminal.draw(|frame| state.draw(frame)).unwrap();
        let shown = terminal.backend().to_string();
        assert!(shown.contains("q quit") && shown.contains("first interval"), "{shown}");
        assert_eq!((state.view.width, state.scroll), (80, 0));
    }
}

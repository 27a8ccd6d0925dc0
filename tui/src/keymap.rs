//! Keys as data: what each does, in the words of the help screen.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Leave the dashboard.
    Quit,
    /// The row above.
    Up,
    /// The row below.
    Down,
    /// The first row.
    First,
    /// The last row.
    Last,
    /// The next pane.
    NextPane,
    /// The pane before.
    PreviousPane,
    /// The next GPU, in whatever pane.
    NextGpu,
    /// The GPU before.
    PreviousGpu,
    /// Details of what is selected.
    Open,
    /// Back from an overlay.
    Close,
    /// The next page of an overlay; after the last the first.
    NextPage,
    /// Another order of processes.
    Sort,
    /// A longer span in the chart.
    Longer,
    /// A shorter one.
    Shorter,
    /// The chart fitted to its values, or from zero to capacity.
    Scale,
    /// What the daemon says of itself.
    Notes,
    /// The list of keys.
    Help,
}

/// Keys, what they do, and how that is said.
#[derive(Debug)]
pub struct Binding {
    /// Any of these keys.
    pub keys: &'static [KeyCode],
    /// The keys as people call them.
    pub shown: &'static str,
    /// What they do.
    pub action: Action,
    /// What they do, for the help screen.
    pub help: &'static str,
    /// One word for the footer; empty for keys that it does not mention.
    pub hint: &'static str,
}

const fn binding(
    keys: &'static [KeyCode],
    shown: &'static str,
    action: Action,
    help: &'static str,
    hint: &'static str,
) -> Binding {
    Binding { keys, shown, action, help, hint }
}

/// Every key without a modifier. Ctrl-C quits as well, see [`action`].
#[rustfmt::skip]
pub const BINDINGS: &[Binding] = &[
    binding(&[KeyCode::Char('q')], "q", Action::Quit, "quit (Ctrl-C too)", "quit"),
    binding(&[KeyCode::Char('?'), KeyCode::F(1)], "?", Action::Help, "this list of keys", "help"),
    binding(&[KeyCode::Tab], "Tab", Action::NextPane, "next pane: GPUs, processes, findings", "pane"),
    binding(&[KeyCode::BackTab], "S-Tab", Action::PreviousPane, "the pane before", ""),
    binding(&[KeyCode::Up, KeyCode::Char('k')], "↑ k", Action::Up, "select the row above", ""),
    binding(&[KeyCode::Down, KeyCode::Char('j')], "↓ j", Action::Down, "select the row below", ""),
    binding(&[KeyCode::Home, KeyCode::Char('g')], "Home g", Action::First, "the first row", ""),
    binding(&[KeyCode::End, KeyCode::Char('G')], "End G", Action::Last, "the last row", ""),
    binding(&[KeyCode::Right, KeyCode::Char('l')], "→ l", Action::NextGpu, "next GPU, from any pane", ""),
    binding(&[KeyCode::Left, KeyCode::Char('h')], "← h", Action::PreviousGpu, "the GPU before", ""),
    binding(&[KeyCode::Enter], "Enter", Action::Open, "details of the selected row", "details"),
    binding(&[KeyCode::Esc], "Esc", Action::Close, "back", ""),
    binding(&[KeyCode::PageDown, KeyCode::Char(' ')], "PgDn", Action::NextPage, "the next page of details (Space too)", ""),
    binding(&[KeyCode::Char('s')], "s", Action::Sort, "sort processes by memory, slope, pid, name", "sort"),
    binding(&[KeyCode::Char('+'), KeyCode::Char('=')], "+", Action::Longer, "a longer span in the chart", "longer"),
    binding(&[KeyCode::Char('-')], "-", Action::Shorter, "a shorter span", "shorter"),
    binding(&[KeyCode::Char('z')], "z", Action::Scale, "chart fitted to its values, or from zero to capacity", "scale"),
    binding(&[KeyCode::Char('n')], "n", Action::Notes, "what the daemon says of itself", "notes"),
];

/// What `key` asks for; `None` where it is bound to nothing.
#[must_use]
pub fn action(key: KeyEvent) -> Option<Action> {
    if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
        let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        return interrupt.then_some(Action::Quit);
    }
    BINDINGS.iter().find(|b| b.keys.contains(&key.code)).map(|b| b.action)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_key_is_bound_twice_and_each_does_what_its_row_says() {
        let mut seen = HashSet::new();
        for row in BINDINGS {
            assert!(!row.help.is_empty() && !row.shown.is_empty());
            for &code in row.keys {
                assert!(seen.insert(code), "{code:?} is bound twice");
                assert_eq!(action(KeyEvent::new(code, KeyModifiers::NONE)), Some(row.action));
            }
        }
    }

    #[test]
    fn control_c_quits_and_no_other_control_key_does_anything() {
        let with = |c, modifiers| action(KeyEvent::new(KeyCode::Char(c), modifiers));
        assert_eq!(with('c', KeyModifiers::CONTROL), Some(Action::Quit));
        assert_eq!(with('c', KeyModifiers::NONE), None);
        assert_eq!(with('q', KeyModifiers::CONTROL), None);
        assert_eq!(with('s', KeyModifiers::ALT), None);
        assert_eq!(with('G', KeyModifiers::SHIFT), Some(Action::Last));
    }
}

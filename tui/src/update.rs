//! What an event does to the state: the only place where the state changes.

use std::time::Duration;

use crossterm::event::KeyEvent;
use ebbtide_api::wire::Status;

use crate::event::{Command, Event};
use crate::keymap::{self, Action};
use crate::model::{Link, Model, Overlay, Pane, Scale};
use crate::trace::{Past, SPANS_MS, Trace};

/// Silence that is worth saying even where statuses come every second; a status is late sooner than it is lost.
const SILENCE_MIN: Duration = Duration::from_secs(5);

/// Silence in intervals between statuses: one may be missed, three in a row are not an accident.
const SILENCE_INTERVALS: u32 = 3;

/// Applies `event`, which happened at `now` on a clock that never steps.
#[must_use]
pub fn update(model: &mut Model, now: Duration, event: Event) -> Vec<Command> {
    let mut commands = match event {
        Event::Key(key) => on_key(model, key),
        Event::Resize => vec![Command::Draw],
        Event::Status(status) => on_status(model, now, *status),
        Event::History { query, answer } => match &mut model.trace {
            Some(trace) if trace.asked(&query) => {
                match answer {
                    Ok(history) => trace.absorb(&history),
                    Err(why) => trace.past = Past::Unavailable(why),
                }
                vec![Command::Draw]
            }
            _ => Vec::new(),
        },
        Event::Disconnected(why) => on_link(model, Link::Broken(why)),
        Event::InputLost(why) => vec![Command::Abandon(why)],
        Event::Tick => on_tick(model, now),
    };
    commands.extend(follow(model));
    commands
}

fn on_status(model: &mut Model, now: Duration, status: Status) -> Vec<Command> {
    // What was missed meanwhile is in the daemon's history.
    if matches!(model.link, Link::Broken(_) | Link::Silent(_)) {
        model.trace = None;
    }
    if model.link == Link::Live {
        model.interval = now.saturating_sub(model.received);
    }
    model.link = Link::Live;
    model.received = now;
    model.status = Some(status);
    if let Some(mut trace) = model.trace.take() {
        if let Some((at, value)) = model.newest(&trace.series) {
            trace.observe(at, value.ok());
        }
        model.trace = Some(trace);
    }
    vec![Command::Draw]
}

fn on_tick(model: &mut Model, now: Duration) -> Vec<Command> {
    let silence = now.saturating_sub(model.received);
    let patience = SILENCE_MIN.max(model.interval * SILENCE_INTERVALS);
    match model.link {
        Link::Live | Link::Silent(_) if silence > patience => on_link(model, Link::Silent(silence.as_secs())),
        _ => Vec::new(),
    }
}

fn on_link(model: &mut Model, link: Link) -> Vec<Command> {
    let changed = model.link != link;
    model.link = link;
    if changed { vec![Command::Draw] } else { Vec::new() }
}

fn on_key(model: &mut Model, key: KeyEvent) -> Vec<Command> {
    let Some(action) = keymap::action(key) else { return Vec::new() };
    if action == Action::Quit {
        return vec![Command::Quit];
    }
    if !turn_overlay(model, action) {
        act(model, action);
        pin(model);
    }
    vec![Command::Draw]
}

/// Opens and closes what lies over the panes; whether the key was meant for that.
fn turn_overlay(model: &mut Model, action: Action) -> bool {
    let wanted = match action {
        Action::Help => Some(Overlay::Help),
        Action::Notes => Some(Overlay::Notes),
        Action::Open => Some(Overlay::Detail),
        Action::Close => None,
        _ => return false,
    };
    model.page = 0;
    // The same key again leads back.
    model.overlay = if model.overlay == wanted { None } else { wanted };
    true
}

fn act(model: &mut Model, action: Action) {
    // tidy: table
    match action {
        Action::Up => select(model, |place, _| place.saturating_sub(1)),
        Action::Down => select(model, |place, _| place + 1),
        Action::First => select(model, |_, _| 0),
        Action::Last => select(model, |_, count| count),
        Action::NextPane => model.pane = model.pane.next(),
        Action::PreviousPane => model.pane = model.pane.next().next(),
        Action::NextGpu => select_gpu(model, model.gpu_place() + 1),
        Action::PreviousGpu => select_gpu(model, model.gpu_place().saturating_sub(1)),
        Action::Sort => model.order = model.order.next(),
        Action::NextPage => model.page = model.page.wrapping_add(1),
        Action::Longer => model.span = (model.span + 1).min(SPANS_MS.len() - 1),
        Action::Shorter => model.span = model.span.saturating_sub(1),
        Action::Scale => {
            model.scale = if model.scale == Scale::Fitted { Scale::Whole } else { Scale::Fitted };
        }
        Action::Quit | Action::Open | Action::Close | Action::Notes | Action::Help => {}
    }
}

/// Moves the selection of the pane that has the keys; a place past the end is the last one.
fn select(model: &mut Model, to: impl Fn(usize, usize) -> usize) {
    let within = |place: usize, count: usize| to(place, count).min(count.saturating_sub(1));
    match model.pane {
        Pane::Gpus => select_gpu(model, within(model.gpu_place(), model.gpus().len())),
        Pane::Processes => {
            let rows = model.rows();
            model.row = rows.get(within(model.row_place(&rows), rows.len())).map(|row| row.key);
        }
        Pane::Findings => {
            let place = within(model.finding_place(), model.findings().len());
            model.finding = model.findings().get(place).map(|f| f.key.clone());
        }
    }
}

/// Selects the GPU at `place`, if there is one. Rows belong to a GPU, so the choice among them is dropped.
fn select_gpu(model: &mut Model, place: usize) {
    if let Some(gpu) = model.gpus().get(place) {
        let uuid = gpu.gpu.uuid.clone();
        if model.gpu.as_ref() != Some(&uuid) {
            model.row = None;
        }
        model.gpu = Some(uuid);
    }
}

/// Makes the row under the cursor a choice, so that it stays selected when rows move, and shows the GPU that the
/// selected finding is about.
fn pin(model: &mut Model) {
    match model.pane {
        Pane::Gpus => {}
        Pane::Processes => {
            let rows = model.rows();
            model.row = rows.get(model.row_place(&rows)).map(|row| row.key);
        }
        Pane::Findings => {
            let Some(key) = model.selected_finding().map(|f| f.key.clone()) else { return };
            let about = model.gpus().iter().position(|g| g.gpu.uuid == key.series.gpu);
            model.finding = Some(key);
            if let Some(place) = about {
                select_gpu(model, place);
            }
        }
    }
}

/// Keeps the chart on what is selected, and asks for its past when that has changed.
fn follow(model: &mut Model) -> Option<Command> {
    let series = model.charted()?;
    let span = model.span_ms();
    if model.trace.as_ref().is_some_and(|t| t.series == series && t.span_ms == span) {
        return None;
    }
    let mut trace = Trace::new(series, span);
    let newest = model.newest(&trace.series);
    if let Some((at, value)) = newest {
        trace.observe(at, value.ok());
    }
    let query = trace.query(model.status.as_ref()?.tick.at);
    model.trace = Some(trace);
    Some(Command::Ask(query))
}

impl Pane {
    const fn next(self) -> Self {
        match self {
            Self::Gpus => Self::Processes,
            Self::Processes => Self::Findings,
            Self::Findings => Self::Gpus,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::RowKey;
    use crate::world;
    use crossterm::event::{KeyCode, KeyModifiers};
    use ebbtide_api::wire::{History, Span};
    use ebbtide_core::{Metric, ProcKey, Ts};

    fn press(model: &mut Model, code: KeyCode) -> Vec<Command> {
        update(model, Duration::ZERO, Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    fn shown(status: Status) -> Event {
        Event::Status(Box::new(status))
    }

    fn calm() -> Model {
        let mut model = Model::default();
        let commands = update(&mut model, Duration::ZERO, shown(world::calm(0)));
        assert!(matches!(commands[..], [Command::Draw, Command::Ask(_)]));
        model
    }

    #[test]
    fn keys_lead_where_their_table_says() {
        use KeyCode::{Char, Down, Enter, Esc, Left, Right, Tab, Up};
        type Seen = (Pane, usize, usize, usize, Option<Overlay>);
        let table: [(&[KeyCode], Seen); 14] = [
            (&[], (Pane::Gpus, 0, 0, 3, None)),
            (&[Down], (Pane::Gpus, 1, 0, 3, None)),
            (&[Down, Down, Down], (Pane::Gpus, 1, 0, 3, None)),
            (&[Down, Up, Up], (Pane::Gpus, 0, 0, 3, None)),
            (&[Tab], (Pane::Processes, 0, 0, 3, None)),
            (&[Tab, Char('j')], (Pane::Processes, 0, 1, 3, None)),
            (&[Tab, Char('G')], (Pane::Processes, 0, 3, 3, None)),
            (&[Tab, Char('G'), Char('g')], (Pane::Processes, 0, 0, 3, None)),
            (&[Tab, Down, Right], (Pane::Processes, 1, 0, 3, None)),
            (&[Right, Left, Left], (Pane::Gpus, 0, 0, 3, None)),
            (&[Tab, Tab, Tab], (Pane::Gpus, 0, 0, 3, None)),
            (&[KeyCode::BackTab, Down], (Pane::Findings, 0, 0, 3, None)),
            (&[Char('+'), Enter], (Pane::Gpus, 0, 0, 4, Some(Overlay::Detail))),
            (&[Char('-'), Char('-'), Char('-'), Char('?'), Esc], (Pane::Gpus, 0, 0, 0, None)),
        ];
        for (keys, wanted) in table {
            let mut model = calm();
            for &key in keys {
                assert!(press(&mut model, key).contains(&Command::Draw));
            }
            let row = model.row_place(&model.rows());
            let seen = (model.pane, model.gpu_place(), row, model.span, model.overlay);
            assert_eq!(seen, wanted, "after {keys:?}");
        }
    }

    #[test]
    fn quitting_needs_no_second_key_even_from_an_overlay() {
        let mut model = calm();
        press(&mut model, KeyCode::Char('?'));
        assert_eq!(press(&mut model, KeyCode::Char('q')), [Command::Quit]);
        assert_eq!(press(&mut model, KeyCode::Char('x')), []);
    }

    #[test]
    fn a_selected_process_stays_selected_when_rows_move_and_its_past_is_asked_for_once() {
        let mut model = calm();
        press(&mut model, KeyCode::Tab);
        let commands = press(&mut model, KeyCode::Down);
        let key = ProcKey { pid: 1305, start_ticks: Some(13_050) };
        let asked = |c: &Command| matches!(c, Command::Ask(q) if q.series.proc == Some(key));
        assert!(commands.iter().any(asked));
        press(&mut model, KeyCode::Char('s'));
        press(&mut model, KeyCode::Char('s'));
        press(&mut model, KeyCode::Char('s'));
        assert_eq!(model.row, Some(RowKey::Process(key)));
        assert_eq!(model.row_place(&model.rows()), 0);
        assert_eq!(update(&mut model, Duration::ZERO, shown(world::calm(2))), [Command::Draw]);
        assert_eq!(model.trace.as_ref().map(|t| t.spots().len()), Some(2));
    }

    #[test]
    fn a_selected_finding_shows_its_own_gpu_and_series() {
        let mut model = Model::default();
        let mut status = world::calm(0);
        let process = world::process(2201, "llama-server", 21_500);
        status.findings = vec![world::leak_finding(&status.gpus[1], &process, status.tick.at)];
        let _commands = update(&mut model, Duration::ZERO, shown(status));
        press(&mut model, KeyCode::BackTab);
        assert_eq!(model.gpu_place(), 1);
        let charted = model.charted().unwrap();
        assert_eq!((charted.proc, charted.metric), (Some(process.key), Metric::ProcessBytes));
    }

    #[test]
    fn an_answer_about_what_is_no_longer_shown_is_left_aside() {
        let mut model = calm();
        let trace = model.trace.clone().unwrap();
        let query = trace.query(Ts(world::NOON.0));
        press(&mut model, KeyCode::Char('+'));
        let span = Span { at: Ts(world::NOON.0 - 5000), min: Some(1), max: Some(1), last: Some(1) };
        let answer = Ok(History { series: trace.series, spans: vec![span], gaps: Vec::new() });
        assert_eq!(update(&mut model, Duration::ZERO, Event::History { query, answer }), []);
        assert_eq!(model.trace.as_ref().map(|t| &t.past), Some(&Past::Asked));
    }

    #[test]
    fn silence_and_loss_are_said_once_and_mended_by_the_next_status() {
        let mut model = calm();
        let second = Duration::from_secs;
        assert_eq!(update(&mut model, second(5), Event::Tick), []);
        assert_eq!(update(&mut model, second(6), Event::Tick), [Command::Draw]);
        assert_eq!(model.link, Link::Silent(6));
        assert_eq!(update(&mut model, second(6), Event::Tick), []);
        let lost = || Event::Disconnected("gone".to_owned());
        assert_eq!(update(&mut model, second(7), lost()), [Command::Draw]);
        assert_eq!(update(&mut model, second(8), lost()), []);
        assert_eq!(update(&mut model, second(9), Event::Tick), []);
        let commands = update(&mut model, second(10), shown(world::calm(10)));
        assert!(matches!(commands[..], [Command::Draw, Command::Ask(_)]), "what was missed is asked for");
        assert_eq!(model.link, Link::Live);
    }

    #[test]
    fn slow_sampling_is_not_silence() {
        let mut model = calm();
        let minute = |m: u64| Duration::from_secs(60 * m);
        let _commands = update(&mut model, minute(1), shown(world::calm(60)));
        assert_eq!(update(&mut model, minute(3), Event::Tick), []);
        assert_eq!(update(&mut model, minute(5), Event::Tick), [Command::Draw]);
    }
}

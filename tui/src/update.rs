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
    // What was missed while the daemon was away is in its history.
    if matches!(model.link, Link::Broken(_)) {
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
    // The same key again leads back.
    model.overlay = if model.overlay == wanted { None } else { wanted };
    true
}

fn act(model: &mut Model, action: Action) {
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

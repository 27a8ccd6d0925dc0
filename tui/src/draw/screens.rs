//! Whole screens, as people see them.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ebbtide_api::Client;
use ebbtide_api::wire::{Level, Status};
use ebbtide_core::*;
use jiff::tz::TimeZone;
use proptest::prelude::*;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{Look, screen};
use crate::event::{Command, Event};
use crate::model::Model;
use crate::update::update;
use crate::world;
use crate::{Replay, screen_text, text_of};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (160, 50)];

fn look(ascii: bool, colour: bool) -> Look {
    Look { ascii, colour, zone: TimeZone::UTC }
}

/// The state after `events`; what it asks of the past is answered from the statuses among them.
fn model(events: impl IntoIterator<Item = Event>) -> Model {
    let events: Vec<Event> = events.into_iter().collect();
    let recorded = events.iter().filter_map(|e| match e {
        Event::Status(status) => Some(Status::clone(status)),
        _ => None,
    });
    let replay = Replay::new(recorded.collect(), Duration::ZERO);
    let mut model = Model::default();
    for event in events {
        for command in update(&mut model, Duration::ZERO, event) {
            if let Command::Ask(query) = command {
                let answer = Ok(replay.history(&query).unwrap());
                let _commands = update(&mut model, Duration::ZERO, Event::History { query, answer });
            }
        }
    }
    model
}

fn key(code: KeyCode) -> Event {
    Event::Key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn shown(status: Status) -> Event {
    Event::Status(Box::new(status))
}

fn leak() -> Vec<Event> {
    (0..600).map(|s| shown(world::leaking(s))).collect()
}

fn draw(model: &Model, (width, height): (u16, u16), look: &Look) -> Buffer {
    let area = Rect::new(0, 0, width, height);
    let mut buf = Buffer::empty(area);
    screen(&mut buf, area, model, look);
    buf
}

fn snapshot(name: &str, model: &Model) {
    for size in SIZES {
        let text = text_of(&draw(model, size, &look(false, true)));
        insta::assert_snapshot!(format!("{name}_{}x{}", size.0, size.1), text);
    }
}

#[test]
fn connecting() {
    snapshot("connecting", &model([]));
    let refused = Event::Disconnected("no ebbtide daemon answers at /run/ebbtide/ebbtide.sock".to_owned());
    snapshot("refused", &model([refused]));
}

#[test]
fn two_gpus_with_processes() {
    snapshot("two_gpus", &model((0..120).map(|s| shown(world::calm(s))).chain([key(KeyCode::Right)])));
}

#[test]
fn a_leak_with_its_forecast() {
    snapshot("leak", &model(leak()));
    let chosen = [KeyCode::Tab, KeyCode::Char('z')].map(key);
    snapshot("leak_of_the_process", &model(leak().into_iter().chain(chosen)));
}

#[test]
fn details_of_a_finding_and_of_a_process() {
    let finding = [KeyCode::Tab, KeyCode::Tab, KeyCode::Enter].map(key);
    snapshot("finding", &model(leak().into_iter().chain(finding)));
    let process = [KeyCode::Tab, KeyCode::Enter].map(key);
    snapshot("process", &model(leak().into_iter().chain(process)));
    let turned = [KeyCode::Tab, KeyCode::Enter, KeyCode::PageDown].map(key);
    let small = draw(&model(leak().into_iter().chain(turned)), (80, 24), &look(false, true));
    insta::assert_snapshot!("process_next_page_80x24", text_of(&small));
}

#[test]
fn one_lost_gpu_and_a_daemon_in_need() {
    let mut status = world::calm(0);
    let mut lost = world::lost(1, status.tick);
    lost.judgements.clear();
    status.gpus[1] = lost;
    status.level = Level::Critical;
    status.health.store_error = Some("disk full: free space under /var/lib/ebbtide".to_owned());
    status.health.unstored_ticks = 12;
    let silent = Event::Disconnected("the connection to the daemon broke".to_owned());
    snapshot("lost", &model([shown(status), key(KeyCode::Right), silent]));
}

#[test]
fn a_stale_gpu_and_findings_that_fight_for_room() {
    let mut status = world::leaking(60);
    status.gpus[0].gpu.state = GpuState::Stale;
    let leak = status.findings[0].clone();
    for (kind, tier) in [(FindingKind::Growth, Tier::Early), (FindingKind::Imminent, Tier::Confirmed)] {
        let mut other = leak.clone();
        other.key.kind = kind;
        other.tier = tier;
        other.severity = Severity::Warning;
        status.findings.push(other);
    }
    status.alerts = vec![Alert {
        fingerprint: "leak/GPU-00000000/vllm.service".to_owned(),
        state: AlertState::Firing,
        since: leak.opened_at,
        fired_at: Some(leak.opened_at.plus_ms(60_000)),
        notified_at: Some(leak.opened_at.plus_ms(60_000)),
        finding: leak,
    }];
    snapshot("findings", &model([shown(status.clone())]));
    snapshot("finding_alerted", &model([shown(status), key(KeyCode::BackTab), key(KeyCode::Enter)]));
}

#[test]
fn the_text_of_a_screen_is_what_a_terminal_shows() {
    let statuses: Vec<Status> = (0..600).map(world::leaking).collect();
    let text = screen_text(&statuses, (80, 24), TimeZone::UTC);
    assert_eq!(text, text_of(&draw(&model(leak()), (80, 24), &look(false, false))));
    assert_eq!(text.lines().count(), 24);
    assert!(screen_text(&[], (80, 24), TimeZone::UTC).contains("Waiting for the daemon"));
}

#[test]
fn no_driver_says_why_instead_of_nothing() {
    let mut status = world::status(world::tick(0), Vec::new());
    status.level = Level::Unknown;
    let why = "no driver: libnvidia-ml.so.1 was not found; install the NVIDIA driver, or set probe.library";
    status.health.probe.notes =
        vec![why.to_owned(), "container ids are blind: mount /sys/fs/cgroup".to_owned()];
    snapshot("no_driver", &model([shown(status)]));
}

#[test]
fn host_memory_says_that_it_is_no_gpu() {
    let tick = world::tick(0);
    snapshot("host", &model([shown(world::status(tick, vec![world::host(tick)]))]));
}

#[test]
fn help_and_notes() {
    snapshot("help", &model([shown(world::calm(0)), key(KeyCode::Char('?'))]));
    let mut status = world::calm(0);
    status.health.probe.notes =
        vec!["other users' processes are blind: CAP_SYS_PTRACE opens them".to_owned()];
    snapshot("notes", &model([shown(status), key(KeyCode::Char('n'))]));
}

#[test]
fn without_unicode_every_character_is_ascii() {
    let buf = draw(&model(leak()), (120, 40), &look(true, true));
    assert!(text_of(&buf).is_ascii());
    insta::assert_snapshot!("leak_ascii_120x40", text_of(&buf));
}

#[test]
fn colour_adds_nothing_that_the_characters_do_not_say() {
    let model = model(leak());
    let (with, without) =
        (draw(&model, (80, 24), &look(false, true)), draw(&model, (80, 24), &look(false, false)));
    assert_eq!(text_of(&with), text_of(&without));
    let uncoloured = |buf: &Buffer| buf.content.iter().all(|c| c.fg == ratatui::style::Color::Reset);
    assert!(uncoloured(&without) && !uncoloured(&with));
}

#[test]
fn hostile_names_keep_to_their_column_and_lose_their_escapes() {
    let tick = world::tick(0);
    let names = [
        "\u{1b}[2J\u{202e}evil\n\t",
        "推論サーバー推論サーバー推論サーバー推論サーバー",
        "e\u{301}\u{301}\u{301}x",
    ];
    let processes = (1..).zip(names).map(|(pid, name)| world::process(pid, name, 1000)).collect();
    let buf = draw(
        &model([shown(world::status(tick, vec![world::gpu(0, tick, processes)]))]),
        (80, 24),
        &look(false, true),
    );
    let text = text_of(&buf);
    assert!(!text.chars().any(|c| c != '\n' && (c.is_control() || c == '\u{202e}')));
    let memory: Vec<_> = text
        .lines()
        .filter(|l| l.contains("1000 MiB"))
        .map(|l| unicode_width::UnicodeWidthStr::width(&l[..l.find("1000 MiB").unwrap()]))
        .collect();
    assert_eq!(memory.len(), 3);
    assert!(memory.windows(2).all(|w| w[0] == w[1]), "{memory:?}\n{text}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_world_can_be_drawn_at_any_size(
        width in 10_u16..300, height in 3_u16..100, gpus in 0_u32..20, processes in 0_u32..40,
        keys in prop::collection::vec(prop::sample::select(vec!["tab", "down", "end", "right", "z", "+", "-", "s", "enter", "?", "n"]), 0..8),
        name in ".*", total in any::<u64>(), used in any::<u64>(), at in any::<i64>(), ascii in any::<bool>(),
    ) {
        let mut tick = world::tick(0);
        tick.at = Ts(at);
        let gpus = (0..gpus).map(|index| {
            let mut gpu = world::gpu(index, tick, (0..processes).map(|p| world::process(p, &name, u64::from(p))).collect());
            let memory = DeviceMemory {
                total: Bytes(total), used: Bytes(used), free: Bytes(total), reserved: Ok(Bytes(used)), source: MemorySource::NvmlV1,
            };
            gpu.gpu.memory = Ok(memory);
            let mut gpu = world::with_ledger(gpu.gpu, tick);
            let part = world::series(&gpu, SeriesPart::Device);
            gpu.judgements = vec![world::judgement(part, Diagnosis::Leak, Bytes(used), world::NOON)];
            gpu
        }).collect();
        let keys = keys.into_iter().map(|k| key(match k {
            "tab" => KeyCode::Tab, "down" => KeyCode::Down, "end" => KeyCode::End, "right" => KeyCode::Right,
            "enter" => KeyCode::Enter, other => KeyCode::Char(other.chars().next().unwrap()),
        }));
        let events = [shown(world::status(tick, gpus)), shown(world::leaking(1))].into_iter().chain(keys);
        let buf = draw(&model(events), (width, height), &look(ascii, true));
        prop_assert_eq!(buf.area, Rect::new(0, 0, width, height));
        prop_assert!(!text_of(&buf).chars().any(|c| c != '\n' && c.is_control()));
    }
}

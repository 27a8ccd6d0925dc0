use std::collections::BTreeSet;

use ebbtide_core::Bytes;
use ebbtide_core::units::MIB;
use ebbtide_engine::kv::{Format, Window};
use ebbtide_engine::lab::{
    Capacity, Figure, Judgement, Limit, Outcome, Pace, Point, Row, Scope, Service, Strategy,
};
use ebbtide_engine::load::Lengths;

use super::{page, text};

/// Figures as they might be.
fn outcome() -> Outcome {
    let window = Window { tokens: 512, sinks: 16 };
    let plain = Strategy::plain();
    let strategies = [
        plain,
        Strategy { format: Format::Int8, ..plain },
        Strategy { format: Format::Int8, window: Some(window), ..plain },
    ];
    let mut figure = Figure {
        what: "int8: perplexity over f16".to_owned(),
        reached: 0.125,
        error: Some(0.25),
        unit: "%",
        wanted: Some(Limit::AtMost(0.1)),
        is_kept: Some(false),
    };
    let unasked = Figure { wanted: None, is_kept: None, error: None, ..figure.clone() };
    let last = Figure { unit: "x", wanted: Some(Limit::AtLeast(2.5)), reached: 5.5, ..unasked.clone() };
    figure.what.push_str(" <b>");
    Outcome {
        model: "a <model> & \"more\"".to_owned(),
        scope: Scope::quick(8192),
        memory_bytes: Bytes::from_mib(720),
        token_bytes: Bytes(23_040),
        recorded: Lengths { prompt: 1154.7, answer: 211.1 },
        served: Lengths { prompt: 721.6, answer: 114.1 },
        rows: (1..).zip(strategies).map(|(at, strategy)| row(strategy, at)).collect(),
        figures: vec![figure, unasked, Figure { is_kept: Some(true), ..last }],
    }
}

fn row(strategy: Strategy, at: u64) -> Row {
    let point = |mib| Point { held_bytes: Bytes::from_mib(mib), filled_bytes: Bytes(mib * MIB / 2) };
    Row {
        name: strategy.name(),
        strategy,
        memory_bytes: Bytes::from_mib(720),
        token_bytes: 23_040.0 / at as f64,
        capacity: Capacity { requests: 23.25 * at as f64, least: 18, most: 400 },
        service: Service {
            served: 48,
            steps: 681,
            running: 8.6,
            tokens_per_s: 1234.5,
            peak_bytes: Bytes::from_mib(500 / at),
            mean_bytes: Bytes::from_mib(250 / at),
            waste: 0.0104 * at as f64,
            unequal_steps: 0,
            preempted: 0,
            recomputed_tokens: 6566 * (at - 1),
            found_tokens: 0,
            written_bytes: Bytes::from_mib(240 * (at - 1)),
            read_bytes: Bytes::from_mib(240 * (at - 1)),
            offload_s: 0.777 * (at - 1) as f64,
            course: vec![point(100), point(500 / at), point(20)],
        },
        pace: Pace { prefill_tokens_per_s: 1301.2, decode_tokens_per_s: 138.7 },
        judgement: Judgement {
            tokens: 14_336,
            perplexity: 32.831,
            increase: 0.0002 * (at - 1) as f64,
            standard_error: 0.0008,
            agreement: 0.981,
            held_bytes: [Bytes::from_mib(23), Bytes::from_mib(46)],
        },
    }
}

#[test]
fn the_text_is_tables_and_a_chart() {
    insta::assert_snapshot!("lab_text", text::of(&outcome()));
}

#[test]
fn the_markdown_is_tables() {
    insta::assert_snapshot!("lab_markdown", text::markdown(&outcome()));
}

#[test]
fn lines_fit_a_narrow_terminal() {
    let text = text::of(&outcome());
    let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "{wide:#?}");
}

#[test]
fn the_page_is_well_formed_and_needs_nothing_else() {
    let page = page::of(&outcome());
    let body = page.strip_prefix("<!doctype html>").unwrap();
    let mut open = Vec::new();
    let mut names = BTreeSet::new();
    for tag in body.split('<').skip(1).map(|rest| rest.split_once('>').unwrap().0) {
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        names.insert(name);
        match (tag.starts_with('/'), tag.ends_with('/')) {
            (true, _) => assert_eq!(open.pop(), Some(name), "</{name}> closes what is open"),
            (false, false) => open.push(name),
            (false, true) => {}
        }
    }
    assert!(open.is_empty(), "{open:?} are never closed");
    assert!(!["script", "link", "img", "b", "model"].iter().any(|name| names.contains(name)), "{names:?}");
    assert!(page.contains("a &lt;model&gt; &amp; &quot;more&quot;") && !page.contains("http"), "{page}");
}

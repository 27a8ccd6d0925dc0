//! What is wanted of the strategies, and what is reached.

use serde::Serialize;

use super::{Row, Strategy};
use crate::kv::{Format, Window};

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Of what.
    pub what: String,
    /// As measured; per cent where `unit` says so.
    pub reached: f64,
    /// Its standard error, where it has one.
    pub error: Option<f64>,
    /// In which unit.
    pub unit: &'static str,
    /// What it is held against; a figure without is there to compare with.
    pub wanted: Option<Limit>,
    /// Whether it is kept.
    pub is_kept: Option<bool>,
}

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// So much or less.
    AtMost(f64),
    /// So much or more.
    AtLeast(f64),
}

impl Limit {
    fn keeps(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }
}

impl Figure {
    fn new(what: impl Into<String>, reached: f64, unit: &'static str, wanted: Option<Limit>) -> Self {
        let is_kept = wanted.map(|limit| limit.keeps(reached));
        Self { what: what.into(), reached, error: None, unit, wanted, is_kept }
    }

    fn with_error(self, error: f64) -> Self {
        Self { error: Some(error), ..self }
    }
}

/// The figures of `rows`; those of strategies that were not tried are left out.
pub(super) fn of(rows: &[Row]) -> Vec<Figure> {
    let row = |is_it: &dyn Fn(&Strategy) -> bool| rows.iter().find(|row| is_it(&row.strategy));
    let plain = row(&|strategy| *strategy == Strategy::plain());
    let format = |format| row(&|strategy| *strategy == Strategy { format, ..Strategy::plain() });
    let mut figures = Vec::new();
    if let Some((int8, plain)) = format(Format::Int8).zip(plain) {
        let ratio = int8.token_bytes / plain.token_bytes;
        figures.push(Figure::new("int8: bytes of a token over f16", ratio, "x", Some(Limit::AtMost(0.52))));
        figures.push(perplexity(int8, Some(0.1)));
    }
    figures.extend(format(Format::Fp8).map(|fp8| perplexity(fp8, Some(1.3))));
    figures.extend(rows.iter().filter(|row| is_windowed(&row.strategy)).flat_map(windowed));
    figures.extend(plain.map(|paged| waste(paged, Some(Limit::AtMost(2.0)))));
    let contiguous = row(&|strategy| strategy.is_contiguous() && !strategy.is_static());
    if let Some((contiguous, paged)) = contiguous.zip(plain) {
        figures.push(waste(contiguous, None));
        let ratio = paged.capacity.requests / contiguous.capacity.requests;
        let what = "requests that fit, paged over contiguous";
        figures.push(Figure::new(what, ratio, "x", Some(Limit::AtLeast(2.5))));
    }
    let unequal: usize = rows.iter().map(|row| row.service.unequal_steps).sum();
    let steps: usize = rows.iter().map(|row| row.service.steps).sum();
    let what = format!("kernel and pool disagree, of {steps} steps");
    figures.push(Figure::new(what, unequal as f64, "steps", Some(Limit::AtMost(0.0))));
    figures
}

fn is_windowed(strategy: &Strategy) -> bool {
    strategy.window.is_some() && *strategy == Strategy { window: strategy.window, ..Strategy::plain() }
}

/// A window that keeps the first tokens is held to something; one that does not shows why.
fn windowed(row: &Row) -> Vec<Figure> {
    let has_sinks = row.strategy.window.is_some_and(|Window { sinks, .. }| sinks > 0);
    let perplexity = perplexity(row, has_sinks.then_some(5.0));
    if !has_sinks {
        return vec![perplexity];
    }
    let [middle, end] = row.judgement.held_bytes.map(|bytes| bytes.0 as f64);
    let what = format!("{}: memory, end over middle", row.label());
    vec![Figure::new(what, end / middle, "x", Some(Limit::AtMost(1.0))), perplexity]
}

fn perplexity(row: &Row, limit: Option<f64>) -> Figure {
    let what = format!("{}: perplexity over f16", row.label());
    Figure::new(what, row.judgement.increase * 100.0, "%", limit.map(Limit::AtMost))
        .with_error(row.judgement.standard_error * 100.0)
}

fn waste(row: &Row, limit: Option<Limit>) -> Figure {
    let what = format!("{}: waste of what is held", row.label());
    Figure::new(what, row.service.waste * 100.0, "%", limit)
}

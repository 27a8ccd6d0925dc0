//! The tables that are shown, as text in cells.

use ebbtide_engine::lab::{Figure, Limit, Outcome, Row, Strategy};

/// What is shown of an outcome, whoever draws it.
pub(super) struct Table {
    pub(super) title: &'static str,
    /// What the columns mean.
    pub(super) note: String,
    /// The first is of names.
    pub(super) columns: &'static [&'static str],
    pub(super) rows: Vec<Vec<String>>,
}

pub(super) fn all(outcome: &Outcome) -> [Table; 4] {
    [memory(outcome), time(outcome), text(outcome), figures(outcome)]
}

/// What was tried.
pub(super) fn heading(outcome: &Outcome) -> String {
    let Outcome { model, scope, recorded, served, .. } = outcome;
    format!(
        "{model}: {} requests of the Azure chat trace at once, on average {:.0} tokens of prompt and {:.0} of answer (the whole trace: {:.0} and {:.0}), none longer than {}. Each strategy may hold {}: four times {} tokens of {} in f16.",
        scope.requests,
        served.prompt,
        served.answer,
        recorded.prompt,
        recorded.answer,
        scope.context,
        outcome.memory_bytes,
        scope.context,
        outcome.token_bytes,
    )
}

fn memory(outcome: &Outcome) -> Table {
    let row = |row: &Row| {
        let Row { capacity, service, .. } = row;
        vec![
            row.name.clone(),
            format!("{:.1}", capacity.requests),
            format!("{}-{}", capacity.least, capacity.most),
            service.peak_bytes.to_string(),
            service.mean_bytes.to_string(),
            format!("{:.1} %", service.waste * 100.0),
            format!("{:.1}", service.running),
        ]
    };
    Table {
        title: "Memory",
        note: format!(
            "fit: requests of full length that the memory holds before one is refused, mean of {} draws and its range. peak, mean: held while the load is served, as the kernel accounts for it. waste: what is held and not filled. run: requests that ran in a step.",
            outcome.scope.draws
        ),
        columns: &["strategy", "fit", "range", "peak", "mean", "waste", "run"],
        rows: outcome.rows.iter().map(row).collect(),
    }
}

fn time(outcome: &Outcome) -> Table {
    let row = |row: &Row| {
        let Row { pace, service, .. } = row;
        let moved = service.written_bytes + service.read_bytes;
        vec![
            row.name.clone(),
            format!("{:.0}", pace.prefill_tokens_per_s),
            format!("{:.0}", pace.decode_tokens_per_s),
            format!("{:.0}", service.tokens_per_s),
            service.steps.to_string(),
            service.recomputed_tokens.to_string(),
            if moved.0 == 0 { "–".to_owned() } else { moved.to_string() },
        ]
    };
    let offloaded = outcome.rows.iter().map(|row| &row.service).filter(|service| service.written_bytes.0 > 0);
    let cost = offloaded.map(|service| {
        format!(
            " Offloading wrote {} and read {} in {:.2} s.",
            service.written_bytes, service.read_bytes, service.offload_s
        )
    });
    Table {
        title: "Time",
        note: format!(
            "prompt, answer: tokens a second of one request alone, {} tokens and 32 behind them, the best of {} rounds or more. load: tokens a second of the whole load, in so many steps. again: tokens computed once more. moved: to the host file and back.{}",
            outcome.scope.text_tokens,
            outcome.scope.rounds,
            cost.collect::<String>()
        ),
        columns: &["strategy", "prompt", "answer", "load", "steps", "again", "moved"],
        rows: outcome.rows.iter().map(row).collect(),
    }
}

/// Of each way to keep tokens once: placement changes nothing in what a model says.
fn text(outcome: &Outcome) -> Table {
    let is_own = |row: &&Row| {
        let Strategy { format, window, .. } = row.strategy;
        row.strategy == Strategy { format, window, ..Strategy::plain() }
    };
    let row = |row: &Row| {
        let judgement = &row.judgement;
        vec![
            row.name.clone(),
            format!("{:.0}", row.token_bytes),
            judgement.held_bytes[1].to_string(),
            format!("{:.3}", judgement.perplexity),
            format!("{:+.2} %", judgement.increase * 100.0),
            format!("{:.2} %", judgement.standard_error * 100.0),
            format!("{:.1} %", judgement.agreement * 100.0),
        ]
    };
    let tokens = outcome.rows.first().map_or(0, |row| row.judgement.tokens);
    Table {
        title: "What the model makes of text",
        note: format!(
            "{tokens} tokens that it has not seen, {} at a time. B/token: bytes a token takes, padding included. held: at the end of a text. ppl: e to the mean negative log likelihood of a token. more: than with f16; se: the standard error of that, of the differences token by token. same: tokens whose likeliest successor is the same.",
            outcome.scope.text_tokens
        ),
        columns: &["strategy", "B/token", "held", "ppl", "more", "se", "same"],
        rows: outcome.rows.iter().filter(is_own).map(row).collect(),
    }
}

fn figures(outcome: &Outcome) -> Table {
    let row = |figure: &Figure| {
        let wanted = match figure.wanted {
            Some(Limit::AtMost(limit)) => format!("<= {}", number(limit, figure.unit)),
            Some(Limit::AtLeast(limit)) => format!(">= {}", number(limit, figure.unit)),
            None => "–".to_owned(),
        };
        let error = figure.error.map_or_else(String::new, |error| format!(" ± {error:.3}"));
        let verdict = match figure.is_kept {
            Some(true) => "ok",
            Some(false) => "missed",
            None => "",
        };
        vec![figure.what.clone(), number(figure.reached, figure.unit) + &error, wanted, verdict.to_owned()]
    };
    Table {
        title: "Reached and wanted",
        note: "±: the standard error.".to_owned(),
        columns: &["what", "reached", "wanted", ""],
        rows: outcome.figures.iter().map(row).collect(),
    }
}

/// A value with its unit, and no more digits than it is compared by.
fn number(value: f64, unit: &str) -> String {
    match unit {
        "steps" => format!("{value:.0}"),
        "x" => format!("{value:.3} x"),
        _ => format!("{value:.3} {unit}"),
    }
}

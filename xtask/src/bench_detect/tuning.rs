//! The best setting of each baseline on the seeds that tuning may see.

use std::ops::Range;

use ebbtide_testkit::traces::{Family, Group, Label, Span, families};

use super::baselines::{Input, Rule, grid};
use super::contest::{input, stretches};
use super::minutes::Minutes;
use super::score::{Mark, Tally, Truth};
use super::table::Table;
use super::workers;

/// A history by the minute.
struct History {
    label: Label,
    end_s: u64,
    minutes: Minutes,
}

/// Tries all settings on the ordinary families, on both inputs, and names the one with the best F1 of each.
pub(super) fn run(seeds: Range<u64>) -> Table {
    let ordinary = families().into_iter().filter(|f| matches!(f.group, Group::Clean | Group::Leaking));
    let jobs: Vec<(Family, u64)> =
        ordinary.flat_map(|family| seeds.clone().map(move |seed| (family, seed))).collect();
    let histories = workers::each(&jobs, |(family, seed)| history(family, *seed));
    let settings: Vec<(Rule, Input)> = grid()
        .into_iter()
        .flat_map(|rule| [Input::Raw, Input::Residual].map(|input| (rule, input)))
        .collect();
    let tallies = workers::each(&settings, |(rule, given)| tally(&histories, rule, *given));
    let mut table = Table::new(["baseline", "input", "setting", "precision", "recall", "F1", "false a day"]);
    let mut named: Vec<(&str, Input)> = Vec::new();
    for (rule, given) in &settings {
        if !named.contains(&(rule.name(), *given)) {
            named.push((rule.name(), *given));
        }
    }
    for (name, given) in named {
        let of_kind =
            settings.iter().zip(&tallies).filter(|((rule, i), _)| rule.name() == name && *i == given);
        if let Some(((rule, _), best)) = of_kind.max_by(|a, b| a.1.f1().total_cmp(&b.1.f1())) {
            let share =
                |share: crate::interval::Share| format!("{:.2}", share.hits as f64 / share.of.max(1) as f64);
            table.row([
                name.to_owned(),
                format!("{given:?}").to_lowercase(),
                rule.setting(),
                share(best.precision()),
                share(best.recall()),
                format!("{:.3}", best.f1()),
                format!("{:.2}", best.false_a_day().0),
            ]);
        }
    }
    table
}

fn history(family: &Family, seed: u64) -> History {
    let trace = family.trace(seed, Span::hours(8));
    let label = trace.label().clone();
    let mut minutes = Minutes::new(1);
    let mut end_s = 0;
    for point in trace {
        minutes.take(&label, &point);
        end_s = point.mono_ms / 1000 + 1;
    }
    minutes.close();
    History { label, end_s, minutes }
}

fn tally(histories: &[History], rule: &Rule, given: Input) -> Tally {
    let marks: Vec<Mark> = histories
        .iter()
        .map(|history| {
            let states = rule.alarms(input(&history.minutes, given), history.label.capacity_mib as f64);
            let truth =
                Truth { label: &history.label, end_s: history.end_s, leaked: &history.minutes.leaked };
            Mark::of(truth, &stretches(&states))
        })
        .collect();
    Tally::of(&marks)
}

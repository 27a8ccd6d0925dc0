//! The dial: one false page a week for a fleet of a hundred, a thousand or ten thousand GPUs. What do weeks without a
//! leak bring at each setting, and what do leaks lose?

use std::fmt::Write;
use std::num::NonZeroU32;

use ebbtide_detect::DetectConfig;

use super::contest::Entry;
use super::counts::poisson;
use super::gates::Gates;
use super::play::{Job, Played, play};
use super::score::{Mark, Tally};
use super::table::{Table, figure};
use super::workers;

/// The fleets, of one page a week each.
const FLEETS: [NonZeroU32; 3] = [gpus(100), gpus(1_000), gpus(10_000)];

const fn gpus(count: u32) -> NonZeroU32 {
    // Known at compile time: the fleets above.
    NonZeroU32::new(count).expect("a fleet has a GPU")
}

/// What one setting of the dial comes to.
pub(super) struct Setting {
    pub(super) gpus: u32,
    /// The leak-free weeks.
    weeks: Tally,
    /// The histories with a leak.
    leaks: Tally,
    /// Histories of each family of the weeks in which a false alarm was raised.
    fooled: Vec<(&'static str, usize, usize)>,
}

impl Setting {
    /// Pages a week over the whole fleet, with the interval that holds them at 95 %.
    pub(super) fn pages(&self) -> (f64, f64, f64) {
        let (low, high) = poisson(self.weeks.episodes);
        let scale = 7.0 * f64::from(self.gpus) / self.weeks.clean_days;
        (f64::from(self.weeks.episodes) * scale, low * scale, high * scale)
    }

    /// False alarms in so many days, as text.
    pub(super) fn shown(&self) -> String {
        let (pages, low, high) = self.pages();
        let (count, days) = (self.weeks.episodes, self.weeks.clean_days);
        format!(
            "{} ({}-{}), {count} in {days:.0} days",
            figure(Some(pages)),
            figure(Some(low)),
            figure(Some(high))
        )
    }
}

/// Plays the settings and gives their table. The entries are what the weeks gave at the default setting, one page in ten
/// weeks for a single GPU: every setting here asks for more evidence, so a week that raised nothing there raises nothing
/// here, and only the others are played again.
pub(super) fn measure(weeks: (&[Job], &[Entry]), leaks: &[Job], gates: &mut Gates) -> String {
    let settings = FLEETS.map(|fleet| setting(fleet, weeks, leaks));
    gates.dial(&settings);
    let mut text = "\n### The dial: one false page a week for a whole fleet\n\n".to_owned();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}", totals(&settings));
    let _ = writeln!(text, "{}", by_family(weeks.1, &settings));
    text
}

fn setting(fleet: NonZeroU32, (jobs, entries): (&[Job], &[Entry]), leaks: &[Job]) -> Setting {
    let config =
        DetectConfig { fleet_gpus: Some(fleet), false_pages_per_week: 1.0, ..DetectConfig::default() };
    let suspects: Vec<Job> =
        jobs.iter().zip(entries).filter(|(_, entry)| entry.own.episodes > 0).map(|(job, _)| *job).collect();
    let mut replayed = workers::each(&suspects, |job| mark(&play(job, &config))).into_iter();
    let quiet = |entry: &Entry| entry.own.episodes == 0;
    let marks: Vec<Mark> = entries
        .iter()
        // As many are replayed as are not quiet, in the same order.
        .map(|entry| if quiet(entry) { entry.own } else { replayed.next().unwrap_or(entry.own) })
        .collect();
    let mut fooled = Vec::new();
    let named: Vec<(&'static str, Mark)> =
        entries.iter().zip(&marks).map(|(entry, mark)| (entry.family.name, *mark)).collect();
    for family in named.chunk_by(|a, b| a.0 == b.0) {
        let count = family.iter().filter(|(_, mark)| mark.episodes > 0).count();
        fooled.push((family[0].0, count, family.len()));
    }
    let found = workers::each(leaks, |job| mark(&play(job, &config)));
    Setting { gpus: fleet.get(), weeks: Tally::of(&marks), leaks: Tally::of(&found), fooled }
}

fn mark(played: &Played) -> Mark {
    Mark::of(played.truth(), &played.alarms)
}

fn totals(settings: &[Setting]) -> Table {
    let mut table = Table::new([
        "fleet, GPUs",
        "pages a week, leak-free (95 %)",
        "recall, leaks of 8 h (95 %)",
        "delay, min (median / 90 %)",
    ]);
    for setting in settings {
        let recall = setting.leaks.recall();
        table.row([
            setting.gpus.to_string(),
            setting.shown(),
            format!(
                "{:.3} ({:.3}-{:.3})",
                recall.hits as f64 / recall.of.max(1) as f64,
                recall.low,
                recall.high
            ),
            format!("{} / {}", figure(setting.leaks.delay(0.5)), figure(setting.leaks.delay(0.9))),
        ]);
    }
    table
}

/// Weeks with a false alarm out of all, family by family: where the assumption of the bound holds and where it does not.
fn by_family(entries: &[Entry], settings: &[Setting]) -> Table {
    let mut header = vec!["family".to_owned(), "as shipped".to_owned()];
    header.extend(settings.iter().map(|setting| format!("{} GPUs", setting.gpus)));
    let mut table = Table::new(header);
    for (index, family) in entries.chunk_by(|a, b| a.family.name == b.family.name).enumerate() {
        let fooled = family.iter().filter(|entry| entry.own.episodes > 0).count();
        let mut row = vec![family[0].family.name.to_owned(), format!("{fooled}/{}", family.len())];
        row.extend(settings.iter().map(|setting| {
            let (_, fooled, of) = setting.fooled[index];
            format!("{fooled}/{of}")
        }));
        table.row(row);
    }
    table
}

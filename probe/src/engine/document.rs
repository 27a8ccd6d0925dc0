//! The tables as a page for people: `docs/engines.md`.

use ebbtide_core::KvSemantics;

use super::table::{Across, EngineFile, Field, Place, Table, Tables};

/// What stands before the tables.
const PREFACE: &str = include_str!("tables/preface.md");

/// `tables` as Markdown.
#[must_use]
pub fn document(tables: &Tables) -> String {
    let mut page =
        format!("{PREFACE}\n## At a glance\n\n| engine | name | pages | used means |\n|---|---|---|---|\n");
    for file in tables.files() {
        page.push_str(&overview(file));
    }
    for file in tables.files() {
        page.push_str(&format!("\n## {}\n\nNames read in {}.\n", file.title, file.source));
        if file.companion {
            page.push_str("\nStands on another engine's page, completes its figures, and names the engine only where nothing else does.\n");
        }
        file.table.iter().for_each(|table| page.push_str(&section(table)));
    }
    page
}

fn overview(file: &EngineFile) -> String {
    let pages = [file.pages(false), file.pages(true)].concat();
    let mut meanings: Vec<&str> = file.table.iter().map(|table| meaning(table.semantics)).collect();
    meanings.dedup();
    let pages: Vec<String> = pages.iter().map(|path| format!("`{path}`")).collect();
    format!("| {} | `{}` | {} | {} |\n", file.title, file.engine, pages.join(", "), meanings.join("; "))
}

fn section(table: &Table) -> String {
    let mut text = format!("\n### {}: `{}`\n\n", table.versions, table.path);
    let names =
        |names: &[String]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    text.push_str(&format!("Recognised by {}", names(&table.has)));
    if !table.lacks.is_empty() {
        text.push_str(&format!(", without {}", names(&table.lacks)));
    }
    text.push_str(&format!(". Used means {}.", meaning(table.semantics)));
    if table.fallback {
        text.push_str(
            " Asked only of a target that names this engine, and only where no other page answers.",
        );
    }
    if table.once {
        text.push_str(" Asked once.");
    }
    if let Some(ranks) = &table.ranks {
        text.push_str(&format!(" Added up over `{ranks}`."));
    }
    if !table.replicas.is_empty() {
        text.push_str(&format!(" The largest over {}.", names(&table.replicas)));
    }
    text.push_str("\n\n| quantity | where |\n|---|---|\n");
    for (field, places) in &table.fields {
        let places: Vec<String> = places.all().iter().map(place).collect();
        text.push_str(&format!("| `{}` | {} |\n", field.name(), places.join("; else ")));
    }
    if !table.notes.is_empty() {
        text.push('\n');
        table.notes.iter().for_each(|note| text.push_str(&format!("- {note}\n")));
    }
    text
}

fn place(place: &Place) -> String {
    let name = place.metric.as_deref().or(place.pointer.as_deref()).unwrap_or_default();
    let mut text = format!("`{name}`");
    if let Some(label) = &place.label {
        text.push_str(&format!(", label `{label}`"));
    }
    for (label, values) in &place.conditions {
        text.push_str(&format!(", where `{label}` is {}", values.join(" or ")));
    }
    match place.across {
        Across::Sum => {}
        Across::Mean => text.push_str(", mean"),
        Across::Max => text.push_str(", largest"),
    }
    if (place.scale - 1.0).abs() > f64::EPSILON {
        text.push_str(&format!(", times {}", place.scale));
    }
    if let Some(times) = &place.times {
        text.push_str(&format!(", times {}", self::place(times)));
    }
    text
}

const fn meaning(semantics: KvSemantics) -> &'static str {
    match semantics {
        KvSemantics::Referenced => "referenced",
        KvSemantics::ReferencedAndCached => "referenced and cached",
        KvSemantics::Reserved => "reserved",
        KvSemantics::Unknown => "not told",
    }
}

impl Field {
    /// Its name in a table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        // tidy: table
        match self {
            Self::KvFill => "kv-fill",
            Self::KvUsedBlocks => "kv-used-blocks",
            Self::KvUsedTokens => "kv-used-tokens",
            Self::KvCachedBlocks => "kv-cached-blocks",
            Self::KvCachedTokens => "kv-cached-tokens",
            Self::KvPoolBlocks => "kv-pool-blocks",
            Self::KvPoolTokens => "kv-pool-tokens",
            Self::KvPoolBytes => "kv-pool-bytes",
            Self::TokensPerBlock => "tokens-per-block",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Served => "served",
            Self::ReadTokens => "read-tokens",
            Self::WrittenTokens => "written-tokens",
            Self::ArenaBytes => "arena-bytes",
            Self::ArenaUsedBytes => "arena-used-bytes",
            Self::Asleep => "asleep",
            Self::WeightsBytes => "weights-bytes",
            Self::GraphsBytes => "graphs-bytes",
            Self::DeviceBytes => "device-bytes",
            Self::OffloadedBytes => "offloaded-bytes",
            Self::Share => "share",
            Self::KvType => "kv-type",
            Self::Model => "model",
            Self::Role => "role",
        }
    }
}

//! From what stands on an engine's pages to an [`EngineSample`].

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use ebbtide_core::text::clean;
use ebbtide_core::{
    Absent, Bytes, EngineReport, EngineRole, EngineSample, KvCount, KvSemantics, KvUnit, Reading,
};

use super::page::Page;
use super::table::{EngineFile, Field, Table, Tables};

/// Counts beyond this are no counts: a double holds every whole number below it.
const LARGEST_COUNT: f64 = 9_007_199_254_740_992.0;

/// What was read of one engine, page by page.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantities {
    /// The engine's short name.
    engine: String,
    title: String,
    versions: String,
    companion: bool,
    semantics: KvSemantics,
    null_blocks: u32,
    ranks: u32,
    numbers: BTreeMap<Field, f64>,
    model: Option<String>,
    role: Option<String>,
    kv_type: Option<String>,
}

impl Quantities {
    /// What `page`, found at `path`, says: of the first engine whose table describes it and of the companions beside
    /// it. `None` where no table does.
    #[must_use]
    pub fn of(page: &Page, path: &str, tables: &Tables, hint: Option<&str>) -> Option<Self> {
        let mut described: Vec<_> =
            tables.on(path, hint).filter(|(_, table)| page.is_described_by(table)).collect();
        described.sort_by_key(|(file, _)| file.companion);
        let (first, table) = described.first()?;
        let mut whole = Self::read(page, first, table);
        let mut engines = HashSet::from([first.engine.as_str()]);
        for (file, table) in &described[1..] {
            if file.companion && engines.insert(&file.engine) {
                whole.complete(Self::read(page, file, table));
            }
        }
        Some(whole)
    }

    /// The engine's short name, as targets hint at it.
    #[must_use]
    pub fn engine(&self) -> &str {
        &self.engine
    }

    fn read(page: &Page, file: &EngineFile, table: &Table) -> Self {
        let number = |field: &Field| table.fields[field].all().iter().find_map(|at| page.number(at, table));
        let text = |field| {
            let places = table.fields.get(&field)?;
            places.all().iter().find_map(|at| page.text(at)).map(|text| clean(&text))
        };
        let numbers = table.fields.keys().filter_map(|field| Some((*field, number(field)?))).collect();
        Self {
            engine: file.engine.clone(),
            title: file.title.clone(),
            versions: table.versions.clone(),
            companion: file.companion,
            semantics: table.semantics,
            null_blocks: table.null_blocks,
            ranks: table.ranks.as_ref().map_or(1, |label| page.ranks(label, table.metrics())),
            numbers,
            model: text(Field::Model),
            role: text(Field::Role),
            kv_type: text(Field::KvType),
        }
    }

    /// Takes from `other`, a further page or a companion of the same engine, what is not yet known.
    pub fn complete(&mut self, other: Self) {
        if self.companion && !other.companion {
            let companion = std::mem::replace(self, other);
            self.complete(companion);
            return;
        }
        let used = [Field::KvFill, Field::KvUsedBlocks, Field::KvUsedTokens];
        if !used.iter().any(|field| self.numbers.contains_key(field))
            && self.semantics == KvSemantics::Unknown
        {
            self.semantics = other.semantics;
        }
        if !other.companion {
            self.ranks = self.ranks.max(other.ranks);
            self.null_blocks = self.null_blocks.max(other.null_blocks);
        }
        for (field, value) in other.numbers {
            self.numbers.entry(field).or_insert(value);
        }
        self.model = self.model.take().or(other.model);
        self.role = self.role.take().or(other.role);
        self.kv_type = self.kv_type.take().or(other.kv_type);
    }

    /// The sample of one GPU's process. Counts are the whole engine's, bytes are those of one of its ranks; they are
    /// known where the engine gives them or `bytes_per_token` does: the KV bytes of one token on one GPU.
    #[must_use]
    pub fn sample(&self, address: &str, bytes_per_token: Option<u64>) -> EngineSample {
        let asleep = self.number(Field::Asleep).map(|value| value > 0.0);
        // A sleeping engine has given its pool back and its gauges keep what they said before.
        let kv = if asleep == Ok(true) { KvCount::absent(Absent::NotSupported) } else { self.count() };
        let pool =
            if asleep == Ok(true) { Err(Absent::NotSupported) } else { self.bytes(Field::KvPoolBytes) };
        let unit = self.unit_bytes(&kv, pool, bytes_per_token);
        let bytes = |count: Reading<u64>| {
            let whole = count.and_then(|count| Ok(count as f64 * unit?));
            whole.map(|bytes| Bytes((bytes / f64::from(self.ranks)).round() as u64))
        };
        EngineSample {
            kv_used: bytes(kv.used).or_else(|why| {
                kv.fill.and_then(|fill| Ok(Bytes((fill * pool?.0 as f64).round() as u64))).map_err(|_| why)
            }),
            kv_cached: bytes(kv.cached),
            kv_pool: pool.or_else(|_| bytes(kv.pool)),
            running: self.requests(Field::Running),
            waiting: self.requests(Field::Waiting),
            served: self.whole(Field::Served),
            tokens: self.tokens(),
            arena: self.bytes(Field::ArenaBytes),
            arena_used: self.bytes(Field::ArenaUsedBytes),
            semantics: self.semantics,
            report: Some(Arc::new(self.report(address, asleep, kv))),
        }
    }

    fn report(&self, address: &str, asleep: Reading<bool>, kv: KvCount) -> EngineReport {
        EngineReport {
            engine: self.title.clone(),
            versions: self.versions.clone(),
            address: address.to_owned(),
            model: self.model.clone().ok_or(Absent::NotSupported),
            role: match self.role.as_deref() {
                Some("prefill") => EngineRole::Prefill,
                Some("decode") => EngineRole::Decode,
                Some("both") => EngineRole::Both,
                _ => EngineRole::Unknown,
            },
            asleep,
            ranks: self.ranks,
            kv,
            weights: self.bytes(Field::WeightsBytes),
            graphs: self.bytes(Field::GraphsBytes),
            device: self.number(Field::DeviceBytes).map(|bytes| Bytes(bytes.round() as u64)),
            offloaded: self.number(Field::OffloadedBytes).map(|bytes| Bytes(bytes.round() as u64)),
            share: self.share(Field::Share),
            kv_type: self.kv_type.clone().ok_or(Absent::NotSupported),
            appraisal: None,
        }
    }

    /// Tokens that were read and written, where both are counted.
    fn tokens(&self) -> Reading<u64> {
        Ok(self.whole(Field::ReadTokens)?.saturating_add(self.whole(Field::WrittenTokens)?))
    }

    /// The cache in blocks where the engine counts any, else in tokens.
    fn count(&self) -> KvCount {
        let fill = self.share(Field::KvFill);
        let blocks = (Field::KvUsedBlocks, Field::KvCachedBlocks, Field::KvPoolBlocks);
        let tokens = (Field::KvUsedTokens, Field::KvCachedTokens, Field::KvPoolTokens);
        let counts =
            |(used, _, pool): (Field, Field, Field)| self.whole(pool).is_ok() || self.whole(used).is_ok();
        let (unit, (used, cached, pool)) = match (counts(blocks), counts(tokens)) {
            (true, _) => (KvUnit::Block, blocks),
            (false, true) => (KvUnit::Token, tokens),
            (false, false) => return KvCount { fill, ..KvCount::absent(Absent::NotSupported) },
        };
        let pool = self.whole(pool);
        let usable =
            pool.map(|pool| pool.saturating_sub(u64::from(self.null_blocks) * u64::from(self.ranks)));
        let from_fill = || Ok((fill? * usable? as f64).round() as u64);
        let used = self.whole(used).or_else(|_| from_fill());
        let share = |used: u64, usable: u64| (usable > 0).then(|| used as f64 / usable as f64);
        let from_counts = || share(used?, usable?).filter(|share| *share <= 1.0).ok_or(Absent::NotSupported);
        KvCount {
            unit: Some(unit),
            used,
            cached: self.whole(cached),
            pool,
            tokens_per_unit: if unit == KvUnit::Token { Ok(1) } else { self.whole(Field::TokensPerBlock) },
            fill: fill.or_else(|_: Absent| from_counts()),
        }
    }

    /// The bytes of one unit on the GPUs of one rank.
    fn unit_bytes(&self, kv: &KvCount, pool: Reading<Bytes>, per_token: Option<u64>) -> Reading<f64> {
        let given = per_token.ok_or(Absent::NotSupported);
        let from_model = given.and_then(|bytes| Ok(bytes as f64 * kv.tokens_per_unit? as f64));
        let units =
            kv.pool.and_then(|units| if units > 0 { Ok(units as f64) } else { Err(Absent::NotSupported) });
        // The pool is that of one rank, the units are all ranks'.
        units.and_then(|units| Ok(pool?.0 as f64 * f64::from(self.ranks) / units)).or(from_model)
    }

    fn number(&self, field: Field) -> Reading<f64> {
        self.numbers.get(&field).copied().ok_or(Absent::NotSupported)
    }

    fn share(&self, field: Field) -> Reading<f64> {
        self.number(field).and_then(|share| if share <= 1.0 { Ok(share) } else { Err(Absent::NotSupported) })
    }

    fn whole(&self, field: Field) -> Reading<u64> {
        let number = self.number(field)?;
        if number <= LARGEST_COUNT { Ok(number.round() as u64) } else { Err(Absent::NotSupported) }
    }

    fn requests(&self, field: Field) -> Reading<u32> {
        self.whole(field).and_then(|count| u32::try_from(count).map_err(|_| Absent::NotSupported))
    }

    /// Of one rank.
    fn bytes(&self, field: Field) -> Reading<Bytes> {
        self.number(field).map(|bytes| Bytes((bytes / f64::from(self.ranks)).round() as u64))
    }
}

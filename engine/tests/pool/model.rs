//! A pool as simple as can be: blocks are numbers, everything is searched for.

use std::collections::BTreeMap;

use ebbtide_engine::kv::{BLOCK_TOKENS, Token, Window};

type Key = Vec<Token>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Here(u32),
    Away,
    Gone,
}

#[derive(Debug, Clone)]
pub(crate) struct Sequence {
    pub(crate) tokens: Vec<Token>,
    pub(crate) places: Vec<Place>,
    published: usize,
}

/// A sequence that was swapped out: where its blocks were, and by what each was found.
#[derive(Debug, Clone)]
pub(crate) struct Away {
    sequence: Sequence,
    keys: BTreeMap<usize, Option<Key>>,
}

#[derive(Debug, Clone, Default)]
struct Block {
    references: u32,
    key: Option<Key>,
}

#[derive(Debug, Clone)]
pub(crate) struct Model {
    capacity: usize,
    cached_max: usize,
    next: u32,
    blocks: BTreeMap<u32, Block>,
    index: BTreeMap<Key, u32>,
    lru: Vec<u32>,
    pub(crate) sequences: BTreeMap<usize, Sequence>,
    pub(crate) forgotten: Vec<u32>,
}

impl Model {
    pub(crate) fn new(capacity: usize, cached_max: Option<u32>) -> Self {
        Self {
            capacity,
            cached_max: cached_max.map_or(usize::MAX, |max| max as usize),
            next: 0,
            blocks: BTreeMap::new(),
            index: BTreeMap::new(),
            lru: Vec::new(),
            sequences: BTreeMap::new(),
            forgotten: Vec::new(),
        }
    }

    pub(crate) fn cached(&self) -> usize {
        self.lru.len()
    }

    pub(crate) fn used(&self) -> usize {
        self.blocks.len() - self.lru.len()
    }

    pub(crate) fn available(&self) -> usize {
        self.capacity - self.used()
    }

    pub(crate) fn away(&self) -> usize {
        let places = self.sequences.values().flat_map(|s| &s.places);
        places.filter(|place| **place == Place::Away).count()
    }

    /// Tokens in blocks that sequences refer to, counted block by block.
    pub(crate) fn filled(&self) -> usize {
        let mut filled: BTreeMap<u32, usize> = BTreeMap::new();
        for sequence in self.sequences.values() {
            for position in 0..sequence.tokens.len() {
                if let Place::Here(block) = sequence.places[position / BLOCK_TOKENS] {
                    let here = filled.entry(block).or_default();
                    *here = (*here).max(position % BLOCK_TOKENS + 1);
                }
            }
        }
        filled.values().sum()
    }

    /// How far a prefix can be found block by block.
    pub(crate) fn known(&self, tokens: &[Token]) -> usize {
        let whole = (1..=tokens.len() / BLOCK_TOKENS).map(|n| n * BLOCK_TOKENS);
        whole.take_while(|end| self.index.contains_key(&tokens[..*end])).last().unwrap_or(0)
    }

    fn evict(&mut self) {
        let oldest = self.lru.remove(0);
        let block = self.blocks.remove(&oldest).unwrap();
        self.index.remove(&block.key.unwrap());
    }

    fn allocate(&mut self) -> u32 {
        if self.blocks.len() == self.capacity {
            self.evict();
        }
        self.next += 1;
        self.blocks.insert(self.next, Block { references: 1, key: None });
        self.next
    }

    fn retain(&mut self, block: u32) {
        self.blocks.get_mut(&block).unwrap().references += 1;
        self.lru.retain(|cached| *cached != block);
    }

    fn release(&mut self, block: u32) {
        let state = self.blocks.get_mut(&block).unwrap();
        state.references -= 1;
        if state.references > 0 {
            return;
        }
        if state.key.is_none() {
            self.blocks.remove(&block);
            return;
        }
        self.lru.push(block);
        while self.lru.len() > self.cached_max {
            self.evict();
        }
    }

    pub(crate) fn open(&mut self, id: usize, tokens: &[Token]) {
        let known = self.known(tokens);
        let mut places = Vec::new();
        for end in (1..=known / BLOCK_TOKENS).map(|n| n * BLOCK_TOKENS) {
            let block = self.index[&tokens[..end]];
            self.retain(block);
            places.push(Place::Here(block));
        }
        let published = places.len();
        self.sequences.insert(id, Sequence { tokens: tokens[..known].to_vec(), places, published });
    }

    /// How many blocks an append takes; `None` where one that it writes to is away.
    pub(crate) fn needed(&self, id: usize, more: usize) -> Option<usize> {
        let sequence = &self.sequences[&id];
        let places = &sequence.places;
        let end = (sequence.tokens.len() + more).div_ceil(BLOCK_TOKENS);
        if more == 0 {
            return Some(0);
        }
        let mut needed = end.saturating_sub(places.len());
        for place in &places[sequence.tokens.len() / BLOCK_TOKENS..end.min(places.len())] {
            let Place::Here(block) = place else { return None };
            needed += usize::from(self.blocks[block].references > 1);
        }
        Some(needed)
    }

    /// How many blocks a reservation takes.
    pub(crate) fn reservation(&self, id: usize, tokens: usize) -> usize {
        tokens.div_ceil(BLOCK_TOKENS).saturating_sub(self.sequences[&id].places.len())
    }

    pub(crate) fn reserve(&mut self, id: usize, tokens: usize) {
        let fresh: Vec<u32> = (0..self.reservation(id, tokens)).map(|_| self.allocate()).collect();
        self.sequences.get_mut(&id).unwrap().places.extend(fresh.into_iter().map(Place::Here));
    }

    pub(crate) fn append(&mut self, id: usize, tokens: &[Token]) {
        let needed = self.needed(id, tokens.len()).unwrap();
        let mut fresh: Vec<u32> = (0..needed).map(|_| self.allocate()).collect();
        let sequence = self.sequences.get_mut(&id).unwrap();
        let first = sequence.tokens.len() / BLOCK_TOKENS;
        sequence.tokens.extend(tokens);
        let new = sequence.tokens.len().div_ceil(BLOCK_TOKENS).saturating_sub(sequence.places.len());
        let copy = (needed > new).then(|| fresh.remove(0));
        let shared = copy.map(|copy| std::mem::replace(&mut sequence.places[first], Place::Here(copy)));
        sequence.places.extend(fresh.into_iter().map(Place::Here));
        if let Some(Place::Here(block)) = shared {
            self.release(block);
        }
    }

    pub(crate) fn publish(&mut self, id: usize) {
        let sequence = self.sequences.get_mut(&id).unwrap();
        for at in sequence.published..sequence.tokens.len() / BLOCK_TOKENS {
            let key = &sequence.tokens[..(at + 1) * BLOCK_TOKENS];
            if let Place::Here(block) = sequence.places[at]
                && self.blocks[&block].key.is_none()
                && !self.index.contains_key(key)
            {
                self.index.insert(key.to_vec(), block);
                self.blocks.get_mut(&block).unwrap().key = Some(key.to_vec());
            }
            sequence.published = at + 1;
        }
    }

    pub(crate) fn fork(&mut self, id: usize, child: usize) {
        let mut sequence = self.sequences[&id].clone();
        sequence.places.truncate(sequence.tokens.len().div_ceil(BLOCK_TOKENS));
        here(&sequence).for_each(|(_, block)| self.retain(block));
        self.sequences.insert(child, sequence);
    }

    pub(crate) fn slide(&mut self, id: usize, window: Window) {
        let sequence = self.sequences.get_mut(&id).unwrap();
        let end = sequence.tokens.len().saturating_sub(window.tokens) / BLOCK_TOKENS;
        let mut gone = Vec::new();
        for place in sequence.places.iter_mut().take(end).skip(window.sinks.div_ceil(BLOCK_TOKENS)) {
            if let Place::Here(block) = std::mem::replace(place, Place::Gone) {
                gone.push(block);
            }
        }
        gone.into_iter().for_each(|block| self.release(block));
    }

    pub(crate) fn close(&mut self, id: usize, forget: usize) {
        let sequence = self.sequences.remove(&id).unwrap();
        let blocks: Vec<u32> = here(&sequence).map(|(_, block)| block).collect();
        for (at, block) in blocks.into_iter().rev().enumerate() {
            if at < forget {
                self.forgotten.push(block);
            } else {
                self.release(block);
            }
        }
    }

    pub(crate) fn swap_out(&mut self, id: usize) -> Away {
        let sequence = self.sequences[&id].clone();
        let keys = here(&sequence).map(|(at, block)| (at, self.blocks[&block].key.clone())).collect();
        self.close(id, 0);
        Away { sequence, keys }
    }

    /// Whether there was room.
    pub(crate) fn swap_in(&mut self, away: &Away, id: usize) -> bool {
        let mut sequence = away.sequence.clone();
        sequence.published = 0;
        let mut rest = Vec::new();
        for (at, key) in &away.keys {
            let found = key.as_ref().and_then(|key| self.index.get(key).copied());
            sequence.places[*at] = found.map_or(Place::Gone, Place::Here);
            match found {
                Some(block) => self.retain(block),
                None => rest.push(*at),
            }
        }
        let has_room = rest.len() <= self.available();
        if has_room {
            for at in rest {
                sequence.places[at] = Place::Here(self.allocate());
            }
        }
        self.sequences.insert(id, sequence);
        if !has_room {
            self.close(id, 0);
        }
        has_room
    }

    /// How many blocks went away.
    pub(crate) fn offload(&mut self, id: usize, keep: usize) -> usize {
        let sequence = self.sequences.get_mut(&id).unwrap();
        let mut sent = Vec::new();
        let cold = sequence.places.len().saturating_sub(keep);
        for place in &mut sequence.places[..cold] {
            if let Place::Here(block) = *place
                && self.blocks[&block].references == 1
            {
                *place = Place::Away;
                sent.push(block);
                sequence.published = 0;
            }
        }
        for block in &sent {
            if let Some(key) = self.blocks.remove(block).unwrap().key {
                self.index.remove(&key);
            }
        }
        sent.len()
    }

    pub(crate) fn restore(&mut self, id: usize) {
        let mut sequence = self.sequences.remove(&id).unwrap();
        for place in sequence.places.iter_mut().filter(|place| **place == Place::Away) {
            *place = Place::Here(self.allocate());
        }
        self.sequences.insert(id, sequence);
    }

    pub(crate) fn trim(&mut self) {
        while !self.lru.is_empty() {
            self.evict();
        }
    }
}

fn here(sequence: &Sequence) -> impl Iterator<Item = (usize, u32)> {
    sequence.places.iter().enumerate().filter_map(|(at, place)| match place {
        Place::Here(block) => Some((at, *block)),
        Place::Away | Place::Gone => None,
    })
}

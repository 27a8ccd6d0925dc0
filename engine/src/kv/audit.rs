//! Whether the pool's books balance.

use super::BLOCK_TOKENS;
use super::host_file::HostFile;
use super::layout::BlockId;
use super::pool::Pool;
use super::table::Table;

/// Every block, by who answers for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// All blocks there may be.
    pub pool: usize,
    /// Blocks that tables refer to, each once.
    pub tables: usize,
    /// Blocks kept for their content.
    pub cached: usize,
    /// Blocks that hold nothing.
    pub free: usize,
}

impl Account {
    /// Blocks that nobody answers for: a leak in the pool, which memory seen from outside does not show.
    #[must_use]
    pub const fn unexplained(&self) -> usize {
        self.pool.saturating_sub(self.tables + self.cached + self.free)
    }
}

/// The books do not balance: a defect of the pool itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Discrepancy {
    /// A block has other references than tables and injected leaks hold.
    #[error("block {} has {counted} references and {held} holders", .block.0)]
    References {
        /// Which.
        block: BlockId,
        /// As counted.
        counted: u32,
        /// As found.
        held: u32,
    },
    /// A block is in two states at once, or in none.
    #[error("block {} is in {states} states instead of one", .block.0)]
    States {
        /// Which.
        block: BlockId,
        /// How many of free, used and cached.
        states: usize,
    },
    /// A block is found by a hash that is not its own, or has one that finds another.
    #[error("block {} and the index of prefixes disagree", .block.0)]
    Prefix {
        /// Which.
        block: BlockId,
    },
    /// A total is not what its parts come to.
    #[error("{what} should be {expected} and is {found}")]
    Total {
        /// Of what.
        what: &'static str,
        /// What the parts come to.
        expected: u64,
        /// What is counted.
        found: u64,
    },
}

impl<M> Pool<M> {
    /// Goes through every table and every block and compares what is found with what is counted; who answers for
    /// which blocks.
    ///
    /// # Errors
    /// The first thing that does not agree.
    pub fn audit(&self) -> Result<Account, Discrepancy> {
        self.audit_states()?;
        let held = self.audit_references()?;
        self.audit_prefixes()?;
        let account = self.account(&held);
        self.audit_totals(&account)?;
        Ok(account)
    }

    /// Tokens whose keys and values lie in blocks that tables refer to, those that are shared counted once: what is
    /// held beyond their bytes is waste.
    #[must_use]
    pub fn filled_tokens(&self) -> usize {
        let mut filled = vec![0; self.blocks.capacity()];
        for table in self.tables.iter() {
            for (index, block) in table.resident() {
                let here = table.tokens().saturating_sub(index * BLOCK_TOKENS).min(BLOCK_TOKENS);
                let most = &mut filled[block.index()];
                *most = here.max(*most);
            }
        }
        filled.into_iter().sum()
    }

    /// A block is in exactly one state.
    fn audit_states(&self) -> Result<(), Discrepancy> {
        let blocks = &self.blocks;
        let mut states = vec![0; blocks.capacity()];
        let not_used = blocks.lru().iter().chain(blocks.extents().free_blocks());
        not_used.chain(blocks.extents().absent_blocks()).for_each(|block| states[block.index()] += 1);
        for (block, states) in (0..).map(BlockId).zip(states) {
            let states = states + usize::from(blocks.references(block) > 0);
            if states != 1 {
                return Err(Discrepancy::States { block, states });
            }
        }
        Ok(())
    }

    /// Holders of each block in tables; together with what was forgotten they are its references.
    fn audit_references(&self) -> Result<Vec<u32>, Discrepancy> {
        let mut in_tables = vec![0; self.blocks.capacity()];
        let resident = self.tables.iter().flat_map(Table::resident);
        resident.for_each(|(_, block)| in_tables[block.index()] += 1);
        let mut held = in_tables.clone();
        self.forgotten.iter().for_each(|(block, lost)| held[block.index()] += lost);
        for (block, held) in (0..).map(BlockId).zip(held) {
            let counted = self.blocks.references(block);
            if counted != held {
                return Err(Discrepancy::References { block, counted, held });
            }
        }
        Ok(in_tables)
    }

    /// What a block is found by and what finds it are the same; a cached block can be found, a free one cannot.
    fn audit_prefixes(&self) -> Result<(), Discrepancy> {
        let mut found = 0;
        for block in (0..self.blocks.capacity() as u32).map(BlockId) {
            let hash = self.blocks.hash(block);
            if hash.is_some_and(|hash| self.prefixes.block(hash) != Some(block)) {
                return Err(Discrepancy::Prefix { block });
            }
            found += u64::from(hash.is_some());
        }
        let is_lost = |block: &BlockId| self.blocks.hash(*block).is_none();
        if let Some(block) = self.blocks.lru().iter().find(is_lost) {
            return Err(Discrepancy::Prefix { block });
        }
        total("blocks that can be found", found, self.prefixes.len() as u64)
    }

    fn account(&self, in_tables: &[u32]) -> Account {
        let extents = self.blocks.extents();
        Account {
            pool: self.blocks.capacity(),
            tables: in_tables.iter().filter(|held| **held > 0).count(),
            cached: self.blocks.lru().iter().count(),
            free: extents.free_blocks().count() + extents.absent_blocks().count(),
        }
    }

    fn audit_totals(&self, account: &Account) -> Result<(), Discrepancy> {
        let blocks = &self.blocks;
        total("cached blocks", account.cached as u64, blocks.cached() as u64)?;
        total("free blocks", account.free as u64, blocks.free() as u64)?;
        let only_forgotten = blocks.used().saturating_sub(account.tables);
        total("unexplained blocks", only_forgotten as u64, account.unexplained() as u64)?;
        let kept = (blocks.used() + blocks.cached()) as u64;
        total(
            "blocks allocated and not freed",
            kept,
            self.counters.allocated.saturating_sub(self.counters.freed),
        )?;
        let extents = self.counters.taken.saturating_sub(self.counters.given_back);
        total("extents held", extents, blocks.extents().held() as u64)?;
        let away = self.tables.iter().map(|table| table.offloaded().count() as u64).sum();
        let in_file = self.host_file.as_ref().map_or(0, HostFile::blocks);
        total("blocks in the host file", away, in_file as u64)
    }
}

fn total(what: &'static str, expected: u64, found: u64) -> Result<(), Discrepancy> {
    if expected == found { Ok(()) } else { Err(Discrepancy::Total { what, expected, found }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{BLOCK_TOKENS, Backing, Entry, Format, Geometry, PoolOptions, SequenceId};

    const TOKENS: [u32; 2 * BLOCK_TOKENS] = [7; 2 * BLOCK_TOKENS];

    /// A used and a cached block that can be found, a used one that cannot, and free ones.
    fn pool() -> (Pool, SequenceId) {
        let geometry = Geometry { layers: 1, kv_heads: 1, head_dim: 4 };
        let options = PoolOptions::with_capacity(6);
        let mut pool = Pool::on_host(geometry, Format::F16, Backing::File, options).unwrap();
        let closed = pool.open();
        pool.append(closed, TOKENS.len()).unwrap();
        pool.publish(closed, &TOKENS).unwrap();
        pool.close(closed).unwrap();
        let open = pool.open_with_prefix(&TOKENS[..BLOCK_TOKENS]);
        pool.append(open, 1).unwrap();
        (pool, open)
    }

    fn found(defect: impl FnOnce(&mut Pool, BlockId, SequenceId)) -> Discrepancy {
        let (mut pool, open) = pool();
        let block = pool.table(open).unwrap().resident().next().unwrap().1;
        defect(&mut pool, block, open);
        pool.audit().unwrap_err()
    }

    #[test]
    fn sound_books_balance() {
        let account = pool().0.audit().unwrap();
        assert_eq!(account, Account { pool: 6, tables: 2, cached: 1, free: 3 });
    }

    #[test]
    fn every_kind_of_defect_is_found() {
        let twice = found(|pool, block, _| pool.blocks.retain(block));
        assert!(matches!(twice, Discrepancy::References { counted: 2, held: 1, .. }), "{twice}");
        let lost = found(|pool, _, open| {
            pool.tables.get_mut(open).unwrap().entries[0] = Entry::Dropped;
        });
        assert!(matches!(lost, Discrepancy::References { counted: 1, held: 0, .. }), "{lost}");
        let freed = found(|pool, block, _| {
            pool.blocks.set_hash(block, None);
            pool.blocks.release(block);
        });
        assert!(matches!(freed, Discrepancy::References { counted: 0, held: 1, .. }), "{freed}");
        let both = found(|pool, block, _| assert_eq!(pool.blocks.extents_mut().put(block), None));
        assert!(matches!(both, Discrepancy::States { states: 2, .. }), "{both}");
        let unfound = found(|pool, block, _| pool.prefixes.remove(pool.blocks.hash(block).unwrap()));
        assert!(matches!(unfound, Discrepancy::Prefix { .. }), "{unfound}");
        let unsaid = found(|pool, _, _| pool.counters.allocated += 1);
        assert!(matches!(unsaid, Discrepancy::Total { expected: 3, found: 4, .. }), "{unsaid}");
    }
}

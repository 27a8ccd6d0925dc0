//! Numbers that look random and are the same in each run.

/// Xorshift of Marsaglia, 64 bits.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Numbers from a seed; zero would give zeros for ever, and stands for one.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(if seed == 0 { 1 } else { seed })
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// One of `0..count`; the upper bits are the better ones.
    pub(crate) const fn below(&mut self, count: u64) -> i64 {
        ((self.next() >> 20) % count).cast_signed()
    }

    pub(crate) const fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

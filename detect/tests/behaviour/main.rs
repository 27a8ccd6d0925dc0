//! What the detector says of whole histories.

mod demo;
mod player;

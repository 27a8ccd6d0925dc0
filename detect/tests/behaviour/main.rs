//! What the detector says of whole histories.

mod clocks;
mod demo;
mod families;
mod fast;
mod golden;

mod player;
mod properties;

//! What the detector says of whole histories.

mod demo;
mod families;
mod fast;
mod golden;

mod player;
mod properties;

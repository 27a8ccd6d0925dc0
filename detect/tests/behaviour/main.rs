//! What the detector says of whole histories.

mod demo;
mod families;
mod player;
mod properties;

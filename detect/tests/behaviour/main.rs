//! What the detector says of whole histories.

mod demo;
mod families;
mod fast;

mod player;
mod properties;

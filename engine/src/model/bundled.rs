//! The model that comes with the program.

use super::safetensors::{Config, Safetensors};
use super::source::Source;
use super::tokenizer::Bytes;
use super::{Loaded, ModelError};

const WEIGHTS: &[u8] = include_bytes!("../../models/tiny/model.safetensors");
const CONFIG: &[u8] = include_bytes!("../../models/tiny/config.json");

/// The tiny model: 0.77 million parameters over bytes, trained on novels of the 19th century
/// (`engine/models/tiny/README.md`).
///
/// # Errors
/// None in a program that was built whole; a test opens it.
pub fn bundled() -> Result<Loaded, ModelError> {
    let config =
        Config::parse(CONFIG).map_err(|_| ModelError::Geometry("the bundled config.json is no JSON"))?;
    let geometry = config.geometry().map_err(ModelError::Geometry)?;
    let weights = Safetensors::new(Source::Bundled(WEIGHTS), geometry)
        .map_err(|_| ModelError::Geometry("the bundled model is no safetensors"))?;
    Ok(Loaded { weights: Box::new(weights), tokenizer: Box::new(Bytes) })
}

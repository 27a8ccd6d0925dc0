//! Cards by name, with the size that the driver reports.

use ebbtide_core::{Bytes, text};

/// Name and total memory in MiB as `nvidia-smi` prints it; of cards that are sold in several sizes, the name without
/// a size is the commonest.
// tidy: table
const CARDS: [(&str, u64); 41] = [
    ("t4", 15_360),
    ("v100", 16_384),
    ("v100-16g", 16_384),
    ("v100-32g", 32_768),
    ("a2", 15_356),
    ("a10", 23_028),
    ("a10g", 23_028),
    ("a16", 15_356),
    ("a30", 24_576),
    ("a40", 46_068),
    ("a100", 81_920),
    ("a100-40g", 40_960),
    ("a100-80g", 81_920),
    ("a6000", 49_140),
    ("rtx-a6000", 49_140),
    ("rtx-6000-ada", 49_140),
    ("l4", 23_034),
    ("l40", 46_068),
    ("l40s", 46_068),
    ("h20", 97_871),
    ("h100", 81_559),
    ("h100-80g", 81_559),
    ("h100-94g", 95_830),
    ("h100-nvl", 95_830),
    ("gh200", 97_871),
    ("h200", 143_771),
    ("h200-141g", 143_771),
    ("b200", 183_359),
    ("rtx-2080-ti", 11_264),
    ("rtx-3060", 12_288),
    ("rtx-3080", 10_240),
    ("rtx-3090", 24_576),
    ("rtx-4060-ti", 16_380),
    ("rtx-4070", 12_282),
    ("rtx-4080", 16_376),
    ("rtx-4090", 24_564),
    ("rtx-5070-ti", 16_303),
    ("rtx-5080", 16_303),
    ("rtx-5090", 32_607),
    ("rtx-pro-4500", 32_623),
    ("rtx-pro-6000", 97_887),
];

/// A name that no card has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no card is called {0:?}: name one such as h100, a100-40g or rtx-4090, a size such as 24g, or the MiB that nvidia-smi prints with --gpu-mib"
)]
pub struct UnknownCard(pub String);

/// Memory of the card that is called so, more or less (`H100 80GB`, `h100-80g`, `RTX 4090`, `4090`), or of a card of
/// a stated size (`24g`).
///
/// # Errors
/// [`UnknownCard`].
pub fn memory(name: &str) -> Result<Bytes, UnknownCard> {
    let wanted = key(name);
    let found = CARDS.iter().find(|(known, _)| {
        let known = key(known);
        known == wanted || known.strip_prefix("rtx").is_some_and(|rest| rest == wanted)
    });
    if let Some((_, mib)) = found {
        return Ok(Bytes::from_mib(*mib));
    }
    let size = wanted.strip_suffix('g').and_then(|size| size.parse::<u64>().ok()).filter(|&gib| gib > 0);
    size.map(|gib| Bytes::from_mib(gib.saturating_mul(1024))).ok_or_else(|| UnknownCard(text::clean(name)))
}

/// Lower-case letters and digits, without makers' names, `GB` as `g`.
fn key(name: &str) -> String {
    let lower = name.to_lowercase().replace("gib", "g").replace("gb", "g");
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter(|word| !matches!(*word, "nvidia" | "geforce" | "tesla" | "sxm" | "pcie")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_answer_to_the_names_that_people_use() {
        for (name, mib) in [
            ("h100-80g", 81_559),
            ("NVIDIA H100 80GB", 81_559),
            ("H100", 81_559),
            ("rtx4090", 24_564),
            ("NVIDIA GeForce RTX 4090", 24_564),
            ("4090", 24_564),
            ("24g", 24_576),
            ("48 GiB", 49_152),
        ] {
            assert_eq!(memory(name), Ok(Bytes::from_mib(mib)), "{name}");
        }
        assert!(memory("voodoo2").is_err() && memory("").is_err() && memory("0g").is_err());
    }
}

//! Models by name, for a question asked before any file is at hand.
//!
//! Each line of `data/catalogue.jsonl` holds a name, a repository and the fields of its `config.json` that the
//! planner reads. Fine-tunes share the configuration of their base.

use serde::Deserialize;
use serde_json::Value;

use crate::config::ConfigError;
use crate::model::Model;

const LINES: &str = include_str!("../data/catalogue.jsonl");

/// A model of the catalogue.
#[derive(Debug, Clone, Deserialize)]
pub struct Entry {
    /// What people call it.
    pub name: &'static str,
    /// Its repository.
    pub repo: &'static str,
    /// Other names, of models with the same layers.
    #[serde(borrow)]
    pub also: Vec<&'static str>,
    config: Value,
}

impl Entry {
    /// The model.
    ///
    /// # Errors
    /// Never for the catalogue that is built in: a test reads all of it.
    pub fn model(&self) -> Result<Model, ConfigError> {
        Model::from_config_value(&self.config)
    }

    /// The fields of its `config.json` that the planner reads.
    #[must_use]
    pub fn config_json(&self) -> String {
        self.config.to_string()
    }
}

/// A name that no model, or more than one, answers to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// No model has all words of the name.
    #[error("no model of the catalogue is called {name:?}{}: name its config.json with --config, its GGUF file with --gguf or its folder with --dir", near(.close))]
    Unknown {
        /// The name that was asked for, cleaned.
        name: String,
        /// Names that share a word with it.
        close: Vec<&'static str>,
    },
    /// Several do, and differ in what they need.
    #[error("{name:?} could be {}: say which", .candidates.join(", "))]
    Ambiguous {
        /// The name that was asked for, cleaned.
        name: String,
        /// What it could be.
        candidates: Vec<&'static str>,
    },
}

fn near(close: &[&str]) -> String {
    if close.is_empty() { String::new() } else { format!(" (there are {})", close.join(", ")) }
}

/// Every model of the catalogue.
#[must_use]
pub fn entries() -> Vec<Entry> {
    LINES.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The model that is called so, more or less: case, owner, punctuation and words such as `instruct` do not matter,
/// and a shorter name is enough where only one model has all its words.
///
/// # Errors
/// [`NameError`], with what is close.
pub fn find(name: &str) -> Result<Entry, NameError> {
    let shown = || ebbtide_core::text::clean(name);
    let with_spellings = |entry| {
        let spellings = spellings(&entry);
        (entry, spellings)
    };
    let spelt: Vec<(Entry, Vec<Vec<String>>)> = entries().into_iter().map(with_spellings).collect();
    let called = |wanted: &Vec<String>| spelt.iter().find(|(_, spellings)| spellings.contains(wanted));
    let wanted = words(without_owner(name));
    if let Some((entry, _)) = called(&words(name)).or_else(|| called(&wanted)) {
        return Ok(entry.clone());
    }
    let holds = |spelling: &Vec<String>| {
        let sized = spelling.iter().all(|word| !SIZES.contains(&word.as_str()) || wanted.contains(word));
        !wanted.is_empty() && sized && wanted.iter().all(|word| spelling.contains(word))
    };
    let found: Vec<&Entry> =
        spelt.iter().filter(|(_, spellings)| spellings.iter().any(holds)).map(|(entry, _)| entry).collect();
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(NameError::Unknown { name: shown(), close: close(&spelt, &wanted) }),
        several => {
            Err(NameError::Ambiguous { name: shown(), candidates: several.iter().map(|e| e.name).collect() })
        }
    }
}

/// How many near names an error lists.
const MAX_CLOSE: usize = 8;

/// Names of the same make, those that share most words first.
fn close(spelt: &[(Entry, Vec<Vec<String>>)], wanted: &[String]) -> Vec<&'static str> {
    let Some(make) = wanted.first() else { return Vec::new() };
    let shared = |spelling: &Vec<String>| wanted.iter().filter(|word| spelling.contains(word)).count();
    let of_make = |spelling: &&Vec<String>| spelling.first() == Some(make);
    let mut near: Vec<(usize, &'static str)> = spelt
        .iter()
        .filter_map(|(entry, spellings)| {
            spellings.iter().filter(of_make).map(shared).max().map(|n| (n, entry.name))
        })
        .collect();
    near.sort_by_key(|(shared, _)| std::cmp::Reverse(*shared));
    near.into_iter().map(|(_, name)| name).take(MAX_CLOSE).collect()
}

/// The names that an entry answers to, in words.
fn spellings(entry: &Entry) -> Vec<Vec<String>> {
    let names = [entry.name, without_owner(entry.repo)];
    names.into_iter().chain(entry.also.iter().copied()).map(words).collect()
}

fn without_owner(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, rest)| rest)
}

/// Words that say how a model was tuned, which changes nothing here.
const IDLE: [&str; 11] =
    ["instruct", "chat", "it", "hf", "base", "meta", "model", "bf16", "fp16", "decoder", "nvidia"];

/// Words that stand for another size: a name without one of them does not mean the model that has it.
const SIZES: [&str; 2] = ["lite", "mini"];

/// Lower-case words: letters, or a number with its dots and the unit that follows it.
fn words(name: &str) -> Vec<String> {
    let lower = name.to_lowercase();
    let mut words: Vec<String> = Vec::new();
    let mut last = None;
    for c in lower.chars() {
        let class = match c {
            'a'..='z' => Some(false),
            '0'..='9' | '.' => Some(true),
            _ => None,
        };
        match (class, last, words.last_mut()) {
            (None, _, _) => {}
            // Letters after a number belong to it (70b), a number after letters begins a word (llama3 is llama 3).
            (Some(digit), Some(Some(before)), Some(word)) if before == digit || before => word.push(c),
            _ => words.push(c.to_string()),
        }
        last = Some(class);
    }
    words.retain(|word| !IDLE.contains(&word.as_str()));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_model_that_answers_to_its_name_and_repository() {
        let all = entries();
        assert_eq!(all.len(), LINES.lines().count());
        for entry in all {
            assert!(entry.model().is_ok(), "{}: {:?}", entry.name, entry.model());
            let found = find(entry.name).map(|found| found.name);
            assert_eq!(found, Ok(entry.name));
            assert_eq!(find(entry.repo).map(|found| found.name), Ok(entry.name));
        }
    }

    #[test]
    fn names_are_matched_loosely() {
        for (asked, name) in [
            ("llama-2-7b", "Llama-2-7B"),
            ("Llama2 7B chat", "Llama-2-7B"),
            ("llama-3.1-8b", "Llama-3-8B / 3.1-8B"),
            ("meta-llama/Llama-3-8B-Instruct", "Llama-3-8B / 3.1-8B"),
            ("llama3.3:70b", "Llama-3.1-70B / 3.3-70B"),
            ("deepseek-v3", "DeepSeek-V3 / R1"),
            ("deepseek-r1", "DeepSeek-V3 / R1"),
            ("qwen3-32b", "Qwen3-32B"),
            ("mistral-7b-v0.3", "Mistral-7B-v0.2/v0.3"),
            ("mistral-7b-v0.2", "Mistral-7B-v0.2/v0.3"),
            ("gemma3:27b", "Gemma-3-27B"),
            ("gpt-oss-120b", "gpt-oss-120b"),
            ("whisper-large-v3", "Whisper-large-v3 (decoder)"),
            ("phi-4", "Phi-4 (14B)"),
            ("kimi-k2", "Kimi-K2"),
        ] {
            assert_eq!(find(asked).map(|entry| entry.name), Ok(name), "{asked}");
        }
    }

    #[test]
    fn what_is_unknown_or_ambiguous_says_what_is_near() {
        assert!(
            matches!(find("qwen3"), Err(NameError::Ambiguous { candidates, .. }) if candidates.len() > 3)
        );
        assert!(matches!(find("llama-9-1t"), Err(NameError::Unknown { close, .. }) if !close.is_empty()));
        assert!(
            matches!(find("deepseek-v2"), Err(NameError::Unknown { close, .. }) if close.contains(&"DeepSeek-V2-Lite"))
        );
        assert!(matches!(find(""), Err(NameError::Unknown { .. })));
    }
}

//! Looking up fields of a `config.json`, each checked against what a model can have.

use std::borrow::Cow;

use ebbtide_core::text;
use serde_json::{Map, Value};

use super::ConfigError;

/// The most layers of a model; the deepest known has 160.
const MAX_LAYERS: u64 = 4096;
/// The largest number in any other field. Vocabularies, contexts and widths stay far below.
const MAX_NUMBER: u64 = 1 << 32;

/// Where multimodal models keep the language model's own fields.
const NESTED: [&str; 4] = ["text_config", "llm_config", "language_config", "thinker_config"];

/// The fields of the language model, and behind them those of the file.
pub(crate) struct Fields<'a> {
    inner: &'a Map<String, Value>,
    outer: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub(super) fn of(outer: &'a Map<String, Value>) -> Self {
        let inner = NESTED.iter().find_map(|name| outer.get(*name)?.as_object()).unwrap_or(outer);
        let inner = inner.get("text_config").and_then(Value::as_object).unwrap_or(inner);
        Self { inner, outer }
    }

    /// A field that is there and not null.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        let present = |map: &'a Map<String, Value>| map.get(name).filter(|value| !value.is_null());
        present(self.inner).or_else(|| present(self.outer))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Whether the file describes more than a language model.
    pub(crate) fn is_nested(&self) -> bool {
        !std::ptr::eq(self.inner, self.outer)
    }

    /// A whole number of at least 0.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, ConfigError> {
        self.get(name).map(|value| whole(name, value)).transpose()
    }

    /// The first of several names that is there.
    pub(crate) fn first(&self, names: &[&str]) -> Result<Option<u64>, ConfigError> {
        names.iter().find(|name| self.has(name)).map_or(Ok(None), |name| self.number(name))
    }

    /// A number of at least 1 under the first of several names.
    pub(crate) fn need(&self, names: &[&'static str]) -> Result<u64, ConfigError> {
        let missing = ConfigError::Missing(names.first().copied().unwrap_or("a field"));
        let number = self.first(names)?.ok_or(missing)?;
        if number == 0 { Err(out_of_range(names[0], &Value::from(0))) } else { Ok(number) }
    }

    /// Layers of the language model, of the decoder where there is an encoder too.
    pub(crate) fn layers(&self) -> Result<u64, ConfigError> {
        let names = [
            "num_hidden_layers",
            "decoder_layers",
            "num_decoder_layers",
            "n_layer",
            "n_layers",
            "num_layers",
        ];
        let names = if self.flag("is_encoder_decoder") { &names[1..] } else { &names[..] };
        let layers = match self.first(names)? {
            Some(_) => self.need(names)?,
            None => self.need(&["num_hidden_layers"])?,
        };
        if layers > MAX_LAYERS { Err(out_of_range(names[0], &Value::from(layers))) } else { Ok(layers) }
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        self.get(name).and_then(Value::as_str)
    }

    pub(crate) fn list(&self, name: &str) -> Option<&'a [Value]> {
        self.get(name).and_then(Value::as_array).map(Vec::as_slice)
    }

    pub(crate) fn object(&self, name: &str) -> Option<&'a Map<String, Value>> {
        self.get(name).and_then(Value::as_object)
    }

    /// `model_type`, that of the language model before that of the file.
    pub(crate) fn family(&self) -> String {
        text::clean(self.text("model_type").unwrap_or("unknown"))
    }

    /// A number inside an object among the fields.
    pub(crate) fn number_in(&self, object: &str, name: &str) -> Result<Option<u64>, ConfigError> {
        let value = self.object(object).and_then(|o| o.get(name)).filter(|value| !value.is_null());
        value.map(|value| whole(name, value)).transpose()
    }
}

fn whole(name: &str, value: &Value) -> Result<u64, ConfigError> {
    // Some writers put 4096.0; nothing else after the point is a number of layers or heads.
    let float = || value.as_f64().filter(|f| f.fract() == 0.0 && (0.0..=MAX_NUMBER as f64).contains(f));
    let number = value.as_u64().or_else(|| float().map(|f| f as u64));
    number.filter(|&n| n <= MAX_NUMBER).ok_or_else(|| out_of_range(name, value))
}

pub(super) fn out_of_range(name: &str, value: &Value) -> ConfigError {
    ConfigError::OutOfRange { field: name.to_owned(), value: text::clean(&value.to_string()) }
}

/// Replaces Python's `Infinity`, `-Infinity` and `NaN` outside of strings with `null`.
pub(super) fn strict(json: &[u8]) -> Cow<'_, [u8]> {
    const TOKENS: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];
    let mut out: Option<Vec<u8>> = None;
    let (mut at, mut in_string) = (0, false);
    while at < json.len() {
        let rest = &json[at..];
        let token = TOKENS.iter().find(|token| !in_string && rest.starts_with(token));
        if let Some(token) = token {
            out.get_or_insert_with(|| json[..at].to_vec()).extend_from_slice(b"null");
            at += token.len();
            continue;
        }
        let escaped = in_string && rest[0] == b'\\' && rest.len() > 1;
        in_string ^= rest[0] == b'"';
        let step = if escaped { 2 } else { 1 };
        if let Some(out) = &mut out {
            out.extend_from_slice(&rest[..step]);
        }
        at += step;
    }
    out.map_or(Cow::Borrowed(json), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pythons_infinities_become_null_outside_of_strings_only() {
        let json = br#"{"a":[0.0, Infinity,-Infinity],"b":"NaN \" Infinity","c":NaN}"#;
        assert_eq!(strict(json).as_ref(), br#"{"a":[0.0, null,null],"b":"NaN \" Infinity","c":null}"#);
        assert!(matches!(strict(br#"{"a":1}"#), Cow::Borrowed(_)));
    }
}

//! Against the package tokenizers (`tools/reference/tokens.py` made the fixtures), and encoding against decoding.

use proptest::prelude::*;
use serde::Deserialize;

use super::*;

const GPT2: &str = include_str!("../../../tests/fixtures/byte-pairs/gpt2.json");
const DIGITS: &str = include_str!("../../../tests/fixtures/byte-pairs/digits.json");

#[derive(Deserialize)]
struct Case {
    text: String,
    tokens: Vec<Token>,
}

#[test]
fn hostile_text_becomes_the_tokens_that_the_reference_finds() {
    let gpt2 = include_str!("../../../tests/fixtures/byte-pairs/gpt2-tokens.json");
    let digits = include_str!("../../../tests/fixtures/byte-pairs/digits-tokens.json");
    for (tokenizer, cases) in [(GPT2, gpt2), (DIGITS, digits)] {
        let tokenizer = hugging_face(tokenizer.as_bytes()).unwrap();
        let cases: Vec<Case> = serde_json::from_str(cases).unwrap();
        assert!(cases.len() > 20);
        for Case { text, tokens } in cases {
            assert_eq!(tokenizer.encode(&text), tokens, "{text:?}");
            assert_eq!(tokenizer.decode(&tokens), text.as_bytes());
        }
    }
}

fn vocabulary<'a>(tokens: Vec<&'a str>, merges: Vec<&'a str>) -> Vocabulary<'a> {
    Vocabulary { special: [0].into(), tokens, merges, begin: Some(0), end: Some(0) }
}

/// The 256 characters of GPT-2's alphabet, as texts.
fn alphabet() -> Vec<String> {
    let file: serde_json::Value = serde_json::from_str(GPT2).unwrap();
    let vocabulary = file["model"]["vocab"].as_object().unwrap();
    let single = vocabulary.keys().filter(|text| text.chars().count() == 1).cloned().collect::<Vec<_>>();
    assert_eq!(single.len(), 256);
    single
}

#[test]
fn special_tokens_are_neither_read_nor_written() {
    let alphabet = alphabet();
    let mut tokens = vec!["<|end|>"];
    tokens.extend(alphabet.iter().map(String::as_str));
    let tokenizer = BytePairs::new(&vocabulary(tokens, Vec::new()), Split::Gpt2).unwrap();
    assert_eq!((tokenizer.begin(), tokenizer.end()), (Some(0), Some(0)));
    assert_eq!(tokenizer.encode("<|end|>").len(), 7);
    assert_eq!(tokenizer.decode(&[0, 1_000_000]), b"");
}

#[test]
fn a_vocabulary_that_cannot_encode_plain_text_is_refused() {
    let alphabet = alphabet();
    let mut tokens = vec!["<|end|>"];
    tokens.extend(alphabet.iter().map(String::as_str).filter(|text| *text != "Z"));
    let refused = BytePairs::new(&vocabulary(tokens.clone(), Vec::new()), Split::Gpt2).unwrap_err();
    assert!(refused.to_string().contains("0x5a"), "{refused}");
    tokens.push("Z");
    let refused = BytePairs::new(&vocabulary(tokens, vec!["a b"]), Split::Gpt2).unwrap_err();
    assert!(refused.to_string().contains("merge 0"), "{refused}");
}

#[test]
fn bytes_without_a_token_are_left_out() {
    let alphabet = alphabet();
    let mut tokens = vec!["<|end|>"];
    // The byte 4, as GPT-2 writes it.
    tokens.extend(alphabet.iter().map(String::as_str).filter(|text| *text != "\u{104}"));
    let tokenizer = BytePairs::new(&vocabulary(tokens, Vec::new()), Split::Gpt2).unwrap();
    assert_eq!(tokenizer.decode(&tokenizer.encode("a\u{3}b\u{4}c")), b"a\x03bc");
}

#[test]
fn files_of_other_tokenizers_are_refused() {
    for (from, to) in [
        (r#""type":"BPE""#, r#""type":"Unigram""#),
        (r#""type":"ByteLevel""#, r#""type":"Metaspace""#),
        (r#""individual_digits":true"#, r#""individual_digits":false"#),
        (r#""!":0"#, r#""!":18446744073709551615"#),
    ] {
        assert!(DIGITS.contains(from));
        assert!(hugging_face(DIGITS.replacen(from, to, 1).as_bytes()).is_err(), "{to}");
    }
}

proptest! {
    #[test]
    fn decoding_gives_back_what_was_encoded(text in any::<String>(), plain in "[ -~\n]{0,80}") {
        for file in [GPT2, DIGITS] {
            let tokenizer = hugging_face(file.as_bytes()).unwrap();
            for text in [&text, &plain] {
                prop_assert_eq!(tokenizer.decode(&tokenizer.encode(text)), text.as_bytes());
            }
        }
        prop_assert_eq!(Bytes.decode(&Bytes.encode(&text)), text.as_bytes());
    }

    #[test]
    fn pieces_together_are_the_text(text in any::<String>()) {
        for split in [Split::Gpt2, Split::SingleDigits] {
            prop_assert_eq!(split.pieces(&text).concat(), text.as_str());
        }
    }
}

//! GGUF files written here, whole, of other kinds, and damaged.

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::model::synthetic;

const GEOMETRY: Geometry = Geometry {
    hidden: 64,
    layers: 1,
    heads: 2,
    kv_heads: 1,
    head_dim: 32,
    ffn: 32,
    vocab: 257,
    context: 128,
    rope_base: 10_000.0,
    rope_style: RopeStyle::Interleaved,
    rms_eps: 1e-5,
    tied: true,
};

const TENSORS: [Tensor; 11] = [
    Tensor::Embedding,
    Tensor::FinalNorm,
    Tensor::AttentionNorm(0),
    Tensor::Query(0),
    Tensor::Key(0),
    Tensor::Value(0),
    Tensor::AttentionOut(0),
    Tensor::FfnNorm(0),
    Tensor::Gate(0),
    Tensor::Up(0),
    Tensor::Down(0),
];

/// A file in the making.
#[derive(Default)]
struct Writer {
    values: Vec<u8>,
    count: u64,
    tensors: Vec<u8>,
    data: Vec<u8>,
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

impl Writer {
    fn value(&mut self, name: &str, kind: u32, bytes: &[u8]) {
        text(&mut self.values, name);
        self.values.extend(kind.to_le_bytes());
        self.values.extend(bytes);
        self.count += 1;
    }

    fn text(&mut self, name: &str, value: &str) {
        let mut bytes = Vec::new();
        text(&mut bytes, value);
        self.value(name, 8, &bytes);
    }

    fn texts<'a>(&mut self, name: &str, texts: impl Iterator<Item = &'a str>) {
        let texts: Vec<&str> = texts.collect();
        let mut bytes = [&8u32.to_le_bytes()[..], &(texts.len() as u64).to_le_bytes()].concat();
        texts.iter().for_each(|each| text(&mut bytes, each));
        self.value(name, LIST, &bytes);
    }

    fn tensor(&mut self, tensor: Tensor, kind: u32, bytes: &[u8]) {
        let (rows, columns) = GEOMETRY.shape(tensor);
        text(&mut self.tensors, &name_of(tensor));
        let sizes = if rows == 1 { vec![columns as u64] } else { vec![columns as u64, rows as u64] };
        self.tensors.extend((sizes.len() as u32).to_le_bytes());
        sizes.iter().for_each(|size| self.tensors.extend(size.to_le_bytes()));
        self.tensors.extend(kind.to_le_bytes());
        self.tensors.extend((self.data.len() as u64).to_le_bytes());
        self.data.extend(bytes);
        self.data.resize(self.data.len().next_multiple_of(32), 0);
    }

    fn file(self, version: u32) -> Vec<u8> {
        let count = TENSORS.len() as u64;
        let head = [&b"GGUF"[..], &version.to_le_bytes(), &count.to_le_bytes(), &self.count.to_le_bytes()];
        let mut file = [&head.concat()[..], &self.values, &self.tensors].concat();
        file.resize(file.len().next_multiple_of(32), 0);
        file.extend(self.data);
        file
    }
}

/// ggml's number for f32, and the specification's for a list.
const F32: u32 = 0;
const LIST: u32 = 9;

fn head(architecture: &str) -> Writer {
    let mut writer = Writer::default();
    writer.text("general.architecture", architecture);
    for (name, size) in [
        ("embedding_length", GEOMETRY.hidden),
        ("block_count", GEOMETRY.layers),
        ("attention.head_count", GEOMETRY.heads),
        ("attention.head_count_kv", GEOMETRY.kv_heads),
        ("feed_forward_length", GEOMETRY.ffn),
        ("context_length", GEOMETRY.context),
    ] {
        writer.value(&format!("llama.{name}"), 4, &(size as u32).to_le_bytes());
    }
    writer.value("llama.attention.layer_norm_rms_epsilon", 6, &GEOMETRY.rms_eps.to_le_bytes());
    writer.text("tokenizer.ggml.model", "gpt2");
    writer.text("tokenizer.ggml.pre", "smollm");
    let printable = (0..=u8::MAX).filter(|byte| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff));
    let others = (0x100..0x100 + 68).filter_map(char::from_u32);
    let alphabet: Vec<String> = printable.map(char::from).chain(others).map(String::from).collect();
    writer.texts("tokenizer.ggml.tokens", alphabet.iter().map(String::as_str).chain(["ab"]));
    writer.texts("tokenizer.ggml.merges", ["a b"].into_iter());
    writer.value("tokenizer.ggml.eos_token_id", 4, &2u32.to_le_bytes());
    writer
}

fn numbers(tensor: Tensor) -> Vec<f32> {
    let mut numbers = Vec::new();
    synthetic(GEOMETRY, 5).unwrap().read(tensor, &mut numbers).unwrap();
    numbers
}

/// A whole file, its tensors in f32.
fn plain(version: u32) -> Vec<u8> {
    let mut writer = head("llama");
    for tensor in TENSORS {
        let bytes: Vec<u8> = numbers(tensor).iter().flat_map(|number| number.to_le_bytes()).collect();
        writer.tensor(tensor, F32, &bytes);
    }
    writer.file(version)
}

fn opened(bytes: &[u8]) -> Result<Loaded, ModelError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    fs::write(&path, bytes).unwrap();
    crate::model::open(&path)
}

fn read(model: &Loaded, tensor: Tensor) -> Result<Vec<f32>, ModelError> {
    let mut out = Vec::new();
    model.weights.read(tensor, &mut out)?;
    Ok(out)
}

#[test]
fn a_whole_file_is_read_as_it_was_written() {
    for version in [2, 3] {
        let model = opened(&plain(version)).unwrap();
        assert_eq!(model.weights.geometry(), &GEOMETRY);
        for tensor in TENSORS {
            assert_eq!(read(&model, tensor).unwrap(), numbers(tensor), "{tensor:?}");
        }
        assert_eq!(model.tokenizer.decode(&model.tokenizer.encode("abba 12")), b"abba 12");
        assert_eq!(model.tokenizer.encode("ab"), [256]);
        assert_eq!((model.tokenizer.begin(), model.tokenizer.end()), (None, Some(2)));
        let missing = read(&model, Tensor::Query(1)).unwrap_err();
        assert!(matches!(missing, ModelError::Missing(Tensor::Query(1))), "{missing}");
    }
}

#[test]
fn quantised_tensors_are_read_by_block() {
    let mut writer = head("llama");
    let (rows, columns) = GEOMETRY.shape(Tensor::Embedding);
    let block = [&[0x00, 0x3c][..], &[3; 32]].concat(); // a scale of 1
    writer.tensor(Tensor::Embedding, 8, &block.repeat(rows * columns / 32));
    // Q6_K, which rows of 64 numbers could not even be written in.
    writer.tensor(Tensor::Query(0), 14, &[0; 4096]);
    for tensor in TENSORS.into_iter().filter(|tensor| !matches!(tensor, Tensor::Embedding | Tensor::Query(0)))
    {
        let bytes: Vec<u8> = numbers(tensor).iter().flat_map(|number| number.to_le_bytes()).collect();
        writer.tensor(tensor, F32, &bytes);
    }
    let model = opened(&writer.file(3)).unwrap();
    assert_eq!(read(&model, Tensor::Embedding).unwrap(), vec![3.0; rows * columns]);
    let unknown = read(&model, Tensor::Query(0)).unwrap_err().to_string();
    assert!(unknown.contains("Query(0)") && unknown.contains("type 14 of ggml"), "{unknown}");
    assert!(unknown.contains("Q8_0"), "{unknown}");
}

#[test]
fn other_models_are_refused_by_name() {
    let mut writer = head("mamba");
    TENSORS.iter().for_each(|tensor| writer.tensor(*tensor, F32, &[]));
    let refused = opened(&writer.file(3)).unwrap_err();
    assert!(matches!(&refused, ModelError::Architecture { found, .. } if found == "mamba"), "{refused}");
    let mut writer = head("llama");
    writer.text("llama.rope.scaling.type", "yarn");
    TENSORS.iter().for_each(|tensor| writer.tensor(*tensor, F32, &[]));
    let refused = opened(&writer.file(3)).unwrap_err();
    assert!(refused.to_string().contains("without scaling"), "{refused}");
    assert!(opened(b"GGML").unwrap_err().to_string().contains("does not begin as a GGUF"));
    assert!(opened(&plain(1)).unwrap_err().to_string().contains("version 2 nor 3"));
}

#[test]
fn a_file_that_is_cut_short_says_so() {
    let whole = plain(3);
    let model = opened(&whole[..whole.len() - 64]).unwrap();
    let cut = read(&model, Tensor::Down(0)).unwrap_err();
    assert!(matches!(cut, ModelError::Tensor { tensor: Tensor::Down(0), .. }), "{cut}");
    assert!(read(&model, Tensor::Embedding).is_ok());
    for length in [0, 3, 4, 23, 200, 3000] {
        assert!(opened(&whole[..length]).is_err(), "{length}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever is changed in the head, the file is refused or what is read has the size that was asked for.
    #[test]
    fn damage_is_refused_or_harmless(changes in prop::collection::vec((0usize..6000, any::<u8>()), 1..6)) {
        let mut file = plain(3);
        for (at, byte) in changes {
            file[at] = byte;
        }
        let Ok(model) = opened(&file) else { return Ok(()) };
        let geometry = model.weights.geometry().clone();
        for tensor in TENSORS {
            let mut out = Vec::new();
            match model.weights.read(tensor, &mut out) {
                Ok(()) => {
                    let (rows, columns) = geometry.shape(tensor);
                    prop_assert_eq!(out.len(), rows * columns);
                }
                Err(_) => prop_assert!(out.is_empty()),
            }
        }
    }
}

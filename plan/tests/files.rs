//! Headers of model files: real shapes, and files made to break the readers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use ebbtide_core::Bytes;
use ebbtide_plan::gguf::{GgufError, Header};
use ebbtide_plan::safetensors::{self, SafetensorsError};
use ebbtide_plan::{KvType, Model, catalogue};
use proptest::prelude::*;

/// Writes a GGUF header.
struct Gguf {
    architecture: &'static str,
    entries: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
}

impl Gguf {
    fn of(architecture: &'static str) -> Self {
        let mut gguf = Self { architecture, entries: Vec::new(), tensors: Vec::new() };
        gguf.entry("general.architecture", 8, &text(architecture));
        gguf.entry("general.name", 8, &text("a \u{1b}[31m model"));
        gguf.entry("general.some_float", 6, &1.5f32.to_le_bytes());
        gguf
    }

    fn entry(&mut self, key: &str, kind: u32, value: &[u8]) {
        self.entries.push([&text(key), &kind.to_le_bytes()[..], value].concat());
    }

    fn number(mut self, key: &str, value: u32) -> Self {
        let key = format!("{}.{key}", self.architecture);
        self.entry(&key, 4, &value.to_le_bytes());
        self
    }

    fn numbers(mut self, key: &str, values: impl IntoIterator<Item = u32>) -> Self {
        let values: Vec<u8> = values.into_iter().flat_map(u32::to_le_bytes).collect();
        let list = [&4u32.to_le_bytes()[..], &(values.len() as u64 / 4).to_le_bytes(), &values].concat();
        let key = format!("{}.{key}", self.architecture);
        self.entry(&key, 9, &list);
        self
    }

    fn vocabulary(mut self, tokens: u64) -> Self {
        let words: Vec<u8> = (0..tokens).flat_map(|n| text(&n.to_string())).collect();
        let list = [&8u32.to_le_bytes()[..], &tokens.to_le_bytes(), &words].concat();
        self.entry("tokenizer.ggml.tokens", 9, &list);
        self
    }

    fn tensor(mut self, sides: &[u64], kind: u32) -> Self {
        let mut tensor = text("blk.0.weight");
        tensor.extend((sides.len() as u32).to_le_bytes());
        tensor.extend(sides.iter().flat_map(|side| side.to_le_bytes()));
        tensor.extend(kind.to_le_bytes());
        tensor.extend(0u64.to_le_bytes());
        self.tensors.push(tensor);
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.entries.len() as u64).to_le_bytes());
        out.extend(self.entries.concat());
        out.extend(self.tensors.concat());
        out
    }

    fn model(&self) -> Model {
        Header::read(self.bytes().as_slice()).unwrap().model().unwrap()
    }
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

fn llama() -> Gguf {
    Gguf::of("llama")
        .number("block_count", 32)
        .number("context_length", 131_072)
        .number("embedding_length", 4096)
        .number("attention.head_count", 32)
        .number("attention.head_count_kv", 8)
}

fn gemma3() -> Gguf {
    Gguf::of("gemma3")
        .number("block_count", 62)
        .number("embedding_length", 5376)
        .number("attention.head_count", 32)
        .number("attention.head_count_kv", 16)
        .number("attention.key_length", 128)
        .number("attention.value_length", 128)
        .number("attention.sliding_window", 1024)
}

fn deepseek() -> Gguf {
    Gguf::of("deepseek2")
        .number("block_count", 61)
        .number("attention.head_count", 128)
        .number("attention.kv_lora_rank", 512)
        .number("attention.key_length", 576)
        .number("attention.value_length", 512)
        .number("rope.dimension_count", 64)
}

fn qwen_next() -> Gguf {
    Gguf::of("qwen3next")
        .number("block_count", 48)
        .number("embedding_length", 2048)
        .number("attention.head_count", 16)
        .number("attention.head_count_kv", 2)
        .number("attention.key_length", 256)
        .number("attention.value_length", 256)
        .number("ssm.conv_kernel", 4)
        .number("ssm.inner_size", 4096)
        .number("ssm.state_size", 128)
        .number("ssm.group_count", 16)
        .number("ssm.time_step_rank", 32)
}

/// 118 layers by their letters, as the file lists them: KV heads for attention, a width for feed-forward.
fn nemotron() -> Gguf {
    let config: serde_json::Value =
        serde_json::from_str(&catalogue::find("nemotron-h-56b").unwrap().config_json()).unwrap();
    let pattern = config["hybrid_override_pattern"].as_str().unwrap().to_owned();
    let list = |letter: char, value: u32| {
        pattern.chars().map(|c| if c == letter { value } else { 0 }).collect::<Vec<_>>()
    };
    Gguf::of("nemotron_h")
        .number("block_count", 118)
        .number("attention.head_count", 64)
        .number("attention.key_length", 128)
        .number("attention.value_length", 128)
        .numbers("attention.head_count_kv", list('*', 8))
        .numbers("feed_forward_length", list('-', 32_768))
        .number("ssm.conv_kernel", 4)
        .number("ssm.inner_size", 16_384)
        .number("ssm.state_size", 256)
        .number("ssm.group_count", 8)
}

/// A list of windows by layer, and two geometries.
fn gemma4() -> Gguf {
    let windowed = |layer: u32| u32::from(layer % 6 != 5);
    Gguf::of("gemma4")
        .number("block_count", 30)
        .number("attention.head_count", 16)
        .numbers("attention.head_count_kv", (0..30).map(|layer| if windowed(layer) == 1 { 8 } else { 2 }))
        .number("attention.key_length", 512)
        .number("attention.value_length", 512)
        .number("attention.key_length_swa", 256)
        .number("attention.value_length_swa", 256)
        .number("attention.sliding_window", 1024)
        .numbers("attention.sliding_window_pattern", (0..30).map(windowed))
}

#[test]
fn metadata_gives_the_same_cache_as_the_configuration() {
    let compressed = deepseek().number("attention.key_length_mla", 192);
    let llama4 = Gguf::of("llama4")
        .number("block_count", 48)
        .number("embedding_length", 5120)
        .number("attention.head_count", 40)
        .number("attention.head_count_kv", 8);
    let gemma3n = Gguf::of("gemma3n")
        .number("block_count", 35)
        .number("attention.head_count", 8)
        .number("attention.head_count_kv", 2)
        .number("attention.key_length", 256)
        .number("attention.sliding_window", 512)
        .number("attention.shared_kv_layers", 15);
    for (gguf, name) in [
        (llama(), "llama-3.1-8b"),
        (gemma3(), "gemma-3-27b"),
        (compressed, "deepseek-v3"),
        (qwen_next(), "qwen3-next-80b-a3b"),
        (nemotron(), "nemotron-h-56b"),
        (gemma4(), "gemma-4-26b-a4b"),
        (llama4, "llama-4-scout"),
        (gemma3n, "gemma-3n-e4b"),
    ] {
        let (read, known) = (gguf.model(), catalogue::find(name).unwrap().model().unwrap());
        let sizes = |model: &Model| {
            (
                model.kv_per_token(KvType::F16),
                model.kv_per_token_beyond(KvType::F16),
                model.window_per_request(KvType::F16),
                model.recurrent.map(|r| r.elements()),
                model.layers,
            )
        };
        assert_eq!(sizes(&read), sizes(&known), "{name}");
    }
}

#[test]
fn a_file_from_before_the_cache_was_compressed_keeps_all_heads() {
    // 128 heads of 192 + 128 elements in each of 61 layers.
    let old = Gguf::of("deepseek2")
        .number("block_count", 61)
        .number("attention.head_count", 128)
        .number("attention.head_count_kv", 128)
        .number("attention.kv_lora_rank", 512)
        .number("attention.key_length", 192)
        .number("attention.value_length", 128);
    assert_eq!(old.model().kv_per_token(KvType::F16).0, 61 * 40_960 * 2);
}

#[test]
fn tensors_are_counted_in_their_blocks() {
    // 4096 x 4096 in Q4_K (144 bytes for 256), 4096 in F32.
    let file = llama().vocabulary(300).tensor(&[4096, 4096], 12).tensor(&[4096], 0).bytes();
    let header = Header::read(file.as_slice()).unwrap();
    assert_eq!((header.tensors, header.tensor_bytes.0), (2, 4096 * 4096 / 256 * 144 + 4096 * 4));
    assert_eq!(header.model().unwrap().vocabulary, Some(300));
    assert_eq!(header.parts(), 1);
}

#[test]
fn what_is_no_gguf_says_so() {
    assert!(matches!(Header::read(&b"PK\x03\x04\0\0\0\0"[..]), Err(GgufError::NotGguf(_))));
    assert!(matches!(Header::read(&b"GGUF"[..]), Err(GgufError::Read(_))));
    let endless = [b"GGUF".as_slice(), &3u32.to_le_bytes(), &u64::MAX.to_le_bytes()].concat();
    assert!(matches!(Header::read(endless.as_slice()), Err(GgufError::TooLong { .. })));
    let unknown = llama().tensor(&[1], 4_000_000).bytes();
    assert!(matches!(Header::read(unknown.as_slice()), Err(GgufError::UnknownType { .. })));
}

fn safetensors_file(json: &str) -> Vec<u8> {
    [&(json.len() as u64).to_le_bytes()[..], json.as_bytes()].concat()
}

const TWO_TENSORS: &str = r#"{"__metadata__":{"format":"pt"},
    "a":{"dtype":"BF16","shape":[4,8],"data_offsets":[0,64]},
    "b":{"dtype":"F8_E4M3","shape":[16],"data_offsets":[64,80]}}"#;

#[test]
fn a_header_gives_the_bytes_of_its_tensors() {
    let tensors = safetensors::tensors(safetensors_file(TWO_TENSORS).as_slice()).unwrap();
    assert_eq!((tensors.count, tensors.bytes), (2, Bytes(80)));
    let index = br#"{"metadata":{"total_size":1},"weight_map":{"a":"x-1.safetensors","b":"x-2.safetensors","c":"x-1.safetensors"}}"#;
    assert_eq!(safetensors::indexed_files(index).unwrap(), ["x-1.safetensors", "x-2.safetensors"]);
}

#[test]
fn headers_that_lie_are_refused() {
    let read = |file: &[u8]| safetensors::tensors(file).unwrap_err();
    let lying = TWO_TENSORS.replace("[64,80]", "[64,96]");
    assert!(
        matches!(read(&safetensors_file(&lying)), SafetensorsError::Inconsistent(what) if what.contains('b'))
    );
    let overlapping = TWO_TENSORS.replace("[64,80]", "[48,64]");
    assert!(matches!(read(&safetensors_file(&overlapping)), SafetensorsError::Inconsistent(_)));
    assert!(matches!(read(&safetensors_file("[]")), SafetensorsError::NotJson(_)));
    assert!(matches!(read(&u64::MAX.to_le_bytes()), SafetensorsError::TooLarge(_)));
    let file = safetensors_file(TWO_TENSORS);
    assert!(matches!(read(&file[..file.len() - 1]), SafetensorsError::Read(_)));
}

proptest! {
    #[test]
    fn no_gguf_makes_the_reader_panic(
        which in 0usize..4, cut in any::<prop::sample::Index>(), noise in prop::collection::vec(any::<u8>(), 0..24),
    ) {
        let gguf = [llama().tensor(&[4, 4], 1), nemotron(), gemma4(), deepseek()].into_iter().nth(which).unwrap();
        let mut bytes = gguf.bytes();
        let at = cut.index(bytes.len());
        let end = (at + noise.len()).min(bytes.len());
        bytes.splice(at..end, noise);
        if let Ok(header) = Header::read(bytes.as_slice()) {
            let _ = header.model().map(|model| model.kv_per_token(KvType::F16));
        }
        let _ = Header::read(&bytes[..at]);
    }

    #[test]
    fn no_safetensors_makes_the_reader_panic(
        cut in any::<prop::sample::Index>(), noise in prop::collection::vec(any::<u8>(), 0..24),
    ) {
        let mut bytes = safetensors_file(TWO_TENSORS);
        let at = cut.index(bytes.len());
        let end = (at + noise.len()).min(bytes.len());
        bytes.splice(at..end, noise);
        let _ = safetensors::tensors(bytes.as_slice());
        let _ = safetensors::indexed_files(&bytes);
    }
}

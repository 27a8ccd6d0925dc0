//! safetensors files written here, whole, of other kinds, and damaged.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::model::synthetic;

const CONFIG: &str = r#"{"model_type":"llama","hidden_size":64,"num_hidden_layers":1,"num_attention_heads":2,
    "num_key_value_heads":1,"intermediate_size":32,"vocab_size":40,"max_position_embeddings":128,
    "rms_norm_eps":1e-5,"rope_theta":5e4,"rope_scaling":null,"hidden_act":"silu","tokenizer":"bytes"}"#;

const TENSORS: [Tensor; 12] = [
    Tensor::Embedding,
    Tensor::FinalNorm,
    Tensor::Output,
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

fn geometry() -> Geometry {
    Config::parse(CONFIG.as_bytes()).unwrap().geometry().unwrap()
}

fn numbers(tensor: Tensor) -> Vec<f32> {
    let mut numbers = Vec::new();
    synthetic(geometry(), 5).unwrap().read(tensor, &mut numbers).unwrap();
    numbers
}

/// A header and data, with the header changed by `change`.
fn file(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let (mut header, mut data) = (json!({"__metadata__": {"format": "pt"}}), Vec::new());
    for tensor in TENSORS {
        let (rows, columns) = geometry().shape(tensor);
        let shape = if rows == 1 { vec![columns] } else { vec![rows, columns] };
        let begin = data.len();
        data.extend(numbers(tensor).iter().flat_map(|number| number.to_le_bytes()));
        header[name_of(tensor)] =
            json!({"dtype": "F32", "shape": shape, "data_offsets": [begin, data.len()]});
    }
    change(&mut header);
    let header = header.to_string().into_bytes();
    [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()
}

fn written(folder: &Path, config: &str, file: &[u8]) -> Result<Loaded, ModelError> {
    fs::write(folder.join("config.json"), config).unwrap();
    fs::write(folder.join("model.safetensors"), file).unwrap();
    crate::model::open(folder)
}

fn opened(config: &str, file: &[u8]) -> Result<Loaded, ModelError> {
    written(tempfile::tempdir().unwrap().path(), config, file)
}

#[test]
fn a_whole_folder_is_read_as_it_was_written() {
    let model = opened(CONFIG, &file(|_| ())).unwrap();
    let geometry = model.weights.geometry();
    assert_eq!((geometry.head_dim, geometry.rope_base, geometry.tied), (32, 5e4, false));
    assert_eq!(geometry.rope_style, RopeStyle::HalfSplit);
    for tensor in TENSORS {
        let mut out = vec![7.0];
        model.weights.read(tensor, &mut out).unwrap();
        assert_eq!(out[0], 7.0);
        assert_eq!(out[1..], numbers(tensor), "{tensor:?}");
    }
    assert_eq!(model.tokenizer.encode("ok"), [111, 107]);
}

#[test]
fn a_tokenizer_beside_the_model_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let config = CONFIG.replace(r#","tokenizer":"bytes""#, "");
    let missing = written(folder.path(), &config, &file(|_| ())).unwrap_err();
    assert!(missing.to_string().contains("tokenizer.json"), "{missing}");
    fs::write(
        folder.path().join("tokenizer.json"),
        include_str!("../../../tests/fixtures/byte-pairs/gpt2.json"),
    )
    .unwrap();
    let model = written(folder.path(), &config, &file(|_| ())).unwrap();
    assert!(model.tokenizer.encode("something that was said").len() < 15);
}

#[test]
fn what_this_engine_lacks_is_refused_by_name() {
    for (from, to, named) in [
        (r#""model_type":"llama""#, r#""model_type":"gemma""#, "model_type"),
        (r#""rope_scaling":null"#, r#""rope_scaling":{"rope_type":"llama3"}"#, "scaling"),
        (r#""rope_scaling":null"#, r#""rope_parameters":{"rope_type":"yarn"}"#, "scaling"),
        (r#""hidden_act":"silu""#, r#""hidden_act":"gelu""#, "silu"),
        (r#""hidden_act":"silu""#, r#""attention_bias":true"#, "biases"),
        (r#""num_attention_heads":2"#, r#""num_attention_heads":3"#, "config.json"),
        (r#""hidden_size":64"#, r#""hidden_size":99999999999"#, "over a billion"),
    ] {
        assert!(CONFIG.contains(from), "{from}");
        let refused = opened(&CONFIG.replace(from, to), &file(|_| ()));
        let refused = match refused {
            Ok(model) => model.weights.read(Tensor::Query(0), &mut Vec::new()).unwrap_err(),
            Err(refused) => refused,
        };
        let words = refused.to_string();
        assert!(words.contains(named) || matches!(refused, ModelError::Size { .. }), "{to}: {words}");
    }
    let model =
        opened(CONFIG, &file(|header| header[name_of(Tensor::Up(0))]["dtype"] = "F8_E4M3".into())).unwrap();
    let refused = model.weights.read(Tensor::Up(0), &mut Vec::new()).unwrap_err().to_string();
    assert!(refused.contains("Up(0)") && refused.contains("F8_E4M3"), "{refused}");
}

#[test]
fn tensors_that_overlap_or_reach_beyond_the_end_are_refused() {
    let place = |offsets: [u64; 2]| {
        file(|header| header[name_of(Tensor::FinalNorm)]["data_offsets"] = json!(offsets))
    };
    let embedding = 40 * 64 * 4;
    assert!(opened(CONFIG, &place([embedding, embedding + 256])).is_ok());
    for offsets in
        [[0, 256], [embedding - 4, embedding + 252], [embedding + 256, embedding], [1 << 40, (1 << 40) + 256]]
    {
        let refused = opened(CONFIG, &place(offsets)).unwrap_err().to_string();
        assert!(refused.contains("overlap"), "{offsets:?}: {refused}");
    }
    let whole = file(|_| ());
    for length in [0, 7, 8, 100, whole.len() - 1] {
        assert!(opened(CONFIG, &whole[..length]).is_err(), "{length}");
    }
    let long = [&u64::MAX.to_le_bytes()[..], &whole[8..]].concat();
    assert!(opened(CONFIG, &long).unwrap_err().to_string().contains("64 MiB"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever is changed in the header, the file is refused or what is read has the size that was asked for.
    #[test]
    fn damage_is_refused_or_harmless(changes in prop::collection::vec((0usize..1100, b' '..=b'~'), 1..4)) {
        let mut file = file(|_| ());
        for (at, byte) in changes {
            file[at] = byte;
        }
        let Ok(model) = opened(CONFIG, &file) else { return Ok(()) };
        for tensor in TENSORS {
            let mut out = Vec::new();
            match model.weights.read(tensor, &mut out) {
                Ok(()) => {
                    let (rows, columns) = geometry().shape(tensor);
                    prop_assert_eq!(out.len(), rows * columns);
                }
                Err(_) => prop_assert!(out.is_empty()),
            }
        }
    }
}

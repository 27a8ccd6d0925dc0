//! What holds for every model, deployment and load; and files made to break the readers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use ebbtide_plan::{
    Cache, Deployment, Engine, KvType, LayerGroup, Load, Model, Reach, Recurrent, Shape, catalogue,
};
use proptest::prelude::*;
use proptest::sample::select;

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        (1u64..129, 8u64..513, 8u64..513).prop_map(|(heads, key, value)| Shape::Heads { heads, key, value }),
        (64u64..1025, 8u64..129, select(vec![0u64, 128])).prop_map(|(rank, rope, index)| Shape::Latent {
            rank,
            rope,
            index
        }),
    ]
}

fn reach() -> impl Strategy<Value = Reach> {
    prop_oneof![
        Just(Reach::Full),
        (16u64..8193).prop_map(Reach::Window),
        (16u64..8193).prop_map(Reach::Chunk)
    ]
}

fn recurrent() -> impl Strategy<Value = Recurrent> {
    (1u64..64, 1u64..1_000_000, 0u64..100_000, select(vec![2u64, 4])).prop_map(
        |(layers, state, convolution, state_bytes)| Recurrent {
            layers,
            state,
            convolution,
            state_bytes,
            convolution_bytes: 2,
        },
    )
}

/// A model of up to three kinds of layers, perhaps with recurrent ones.
fn model() -> impl Strategy<Value = Model> {
    let group =
        (1u64..100, shape(), reach()).prop_map(|(layers, shape, reach)| LayerGroup { layers, shape, reach });
    (prop::collection::vec(group, 1..4), prop::option::of(recurrent()), 0u64..3).prop_map(
        |(groups, recurrent, draft_layers)| {
            let base = catalogue::find("llama-3.1-8b").unwrap().model().unwrap();
            let layers = groups.iter().map(|group| group.layers).sum();
            Model { layers, groups, recurrent, draft_layers, ..base }
        },
    )
}

fn deployment() -> impl Strategy<Value = Deployment> {
    let settings = (1u64..9, 1u64..5, 1u64..5, 1u64..513, 16u64..16_385, any::<bool>());
    (select(Engine::ALL.to_vec()), select(KvType::ALL.to_vec()), settings).prop_map(
        |(engine, kv_type, (tp, pp, dp, block_tokens, batch_tokens, draft))| Deployment {
            tp,
            pp,
            dp,
            block_tokens,
            batch_tokens,
            draft,
            ..Deployment::new(engine, kv_type)
        },
    )
}

proptest! {
    #[test]
    fn more_context_or_requests_never_need_less(
        model in model(), deployment in deployment(),
        context in 1u64..200_000, more in 0u64..100_000, requests in 1u64..5000, others in 0u64..500,
    ) {
        let cache = Cache::new(&model, deployment);
        let load = Load { context, requests };
        let longer = Load { context: context + more, ..load };
        let busier = Load { requests: requests + others, ..load };
        prop_assert!(cache.load(load) <= cache.load(longer));
        prop_assert!(cache.load(load) <= cache.load(busier));
        prop_assert!(cache.request(context) <= cache.load(load));
    }

    #[test]
    fn the_shards_of_heads_add_up_and_latents_repeat(shape in shape(), tp in 1u64..17, kv in select(KvType::ALL.to_vec())) {
        let (whole, shard) = (shape.bytes(kv, 1), shape.bytes(kv, tp));
        match shape {
            Shape::Latent { .. } => prop_assert_eq!(shard, whole),
            Shape::Heads { heads, key, value } => {
                prop_assert!(shard * tp >= whole, "{} x {} < {}", tp, shard, whole);
                let blocks_divide = [key, value].iter().all(|dim| (heads / tp * dim) % 32 == 0);
                if heads % tp == 0 && blocks_divide {
                    prop_assert_eq!(shard * tp, whole);
                }
                if tp >= heads {
                    prop_assert_eq!(shard, Shape::Heads { heads: 1, key, value }.bytes(kv, 1));
                }
            }
        }
    }

    #[test]
    fn a_quantised_cache_is_never_larger(model in model()) {
        let wide = model.kv_per_token(KvType::F16);
        for kv in KvType::ALL.into_iter().filter(|&kv| kv != KvType::F32) {
            prop_assert!(model.kv_per_token(kv) <= wide, "{kv}");
        }
        prop_assert_eq!(model.kv_per_token(KvType::F32).0, 2 * wide.0);
    }

    #[test]
    fn blocks_waste_less_than_one_each(context in 1u64..100_000, block in 1u64..513) {
        let model = catalogue::find("llama-2-7b").unwrap().model().unwrap();
        let deployment = Deployment { block_tokens: block, ..Deployment::new(Engine::Vllm, KvType::F16) };
        let tokens = Cache::new(&model, deployment).request(context).0 / 524_288;
        prop_assert!((context..context + block).contains(&tokens));
        prop_assert_eq!(tokens % block, 0);
    }

    #[test]
    fn a_longer_window_never_keeps_less(
        model in model(), deployment in deployment(), context in 1u64..200_000, more in 0u64..10_000,
    ) {
        let mut longer = model.clone();
        for group in &mut longer.groups {
            group.reach = match group.reach {
                Reach::Window(tokens) => Reach::Window(tokens + more),
                other => other,
            };
        }
        prop_assert!(Cache::new(&model, deployment).request(context) <= Cache::new(&longer, deployment).request(context));
    }

    #[test]
    fn no_configuration_makes_the_reader_panic(
        base in 0usize..69, cut in any::<prop::sample::Index>(), noise in prop::collection::vec(any::<u8>(), 0..32),
    ) {
        let mut bytes = catalogue::entries()[base].config_json().into_bytes();
        let at = cut.index(bytes.len());
        let end = (at + noise.len()).min(bytes.len());
        bytes.splice(at..end, noise);
        let _ = Model::from_config(&bytes);
    }

    #[test]
    fn no_number_makes_the_arithmetic_panic(base in 0usize..69, values in prop::collection::vec(any::<u64>(), 1..200), context in any::<u64>()) {
        let entry = &catalogue::entries()[base];
        let mut value: serde_json::Value = serde_json::from_str(&entry.config_json()).unwrap();
        let mut values = values.into_iter().cycle();
        replace_numbers(&mut value, &mut || values.next().unwrap() >> 31);
        if let Ok(model) = Model::from_config(value.to_string().as_bytes()) {
            for engine in Engine::ALL {
                let cache = Cache::new(&model, Deployment { tp: context, ..Deployment::new(engine, KvType::F16) });
                let _ = (cache.load(Load { context, requests: context }), model.parameters.map(|p| p.bytes()));
            }
        }
    }
}

fn replace_numbers(value: &mut serde_json::Value, next: &mut dyn FnMut() -> u64) {
    match value {
        serde_json::Value::Number(number) if number.as_u64() != Some(0) => *value = next().into(),
        serde_json::Value::Array(list) => list.iter_mut().for_each(|inner| replace_numbers(inner, next)),
        serde_json::Value::Object(map) => map.values_mut().for_each(|inner| replace_numbers(inner, next)),
        _ => {}
    }
}

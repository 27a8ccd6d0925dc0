//! Real start-ups of vLLM against what is computed for them. Prints the worst case of each group of rows.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::print_stdout, reason = "the figures are what the tests are for")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ebbtide_core::Bytes;
use ebbtide_core::units::GIB;
use ebbtide_plan::{Cache, Deployment, Engine, KvType, Model, Remainder, catalogue, pool};
use serde_json::Value;

/// Logs round to 0.01 GiB.
const ROUNDING_GIB: f64 = 0.005;

struct Start {
    row: BTreeMap<String, String>,
    model: Model,
    deployment: Deployment,
}

impl Start {
    fn gib(&self, column: &str) -> f64 {
        self.row[column].parse().unwrap()
    }

    fn name(&self) -> String {
        let d = &self.deployment;
        format!("{} tp{} pp{} {}", self.row["model"], d.tp, d.pp, d.kv_type)
    }

    fn group(&self) -> &'static str {
        match (self.deployment.tp, self.deployment.pp, self.model.groups.len() > 1, self.model.experts) {
            (_, 2.., _, _) => "pipeline stages",
            (1, _, true, _) => "windows, one GPU",
            (1, _, _, true) => "experts, one GPU",
            (1, ..) => "dense, one GPU",
            _ => "tensor parallel",
        }
    }

    /// Everything but weights and cache that the log accounts for, in GiB.
    fn remainder(&self) -> f64 {
        let before = self.gib("total") - self.gib("init_free");
        before + self.gib("act") + self.gib("nontorch") + self.gib("graph_actual")
    }
}

fn starts() -> Vec<Start> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let models: Value =
        serde_json::from_slice(&fs::read(fixtures.join("corpus-models.json")).unwrap()).unwrap();
    let rows = csv::Reader::from_path(fixtures.join("vllm_startup_corpus.csv")).unwrap().into_deserialize();
    rows.map(|row| start(&models, row.unwrap())).collect()
}

fn start(models: &Value, row: BTreeMap<String, String>) -> Start {
    let said = &models[&row["model"]];
    let model = match said["catalogue"].as_str() {
        Some(name) => catalogue::find(name).unwrap().model().unwrap(),
        None => Model::from_config(said.to_string().as_bytes()).unwrap(),
    };
    let kv_type = match (row["kv_dtype"].as_str(), row["dtype"].as_str()) {
        ("fp8", _) => KvType::Fp8,
        (_, "float32") => KvType::F32,
        _ => KvType::F16,
    };
    let count = |column: &str| row[column].parse().unwrap();
    let deployment =
        Deployment { tp: count("tp"), pp: count("pp"), ..Deployment::new(Engine::Vllm020, kv_type) };
    Start { row, model, deployment }
}

/// The largest of a figure in each group of rows.
fn print_worst(what: &str, figures: impl Iterator<Item = (&'static str, f64, String)>) {
    let mut worst: BTreeMap<&str, (f64, String, usize)> = BTreeMap::new();
    for (group, figure, name) in figures {
        let entry = worst.entry(group).or_insert((f64::MIN, String::new(), 0));
        entry.2 += 1;
        if figure.abs() > entry.0.abs() || entry.0 == f64::MIN {
            (entry.0, entry.1) = (figure, name);
        }
    }
    for (group, (figure, name, rows)) in worst {
        println!("{what}: {group} ({rows} rows): worst {figure:+.3} ({name})");
    }
}

#[test]
fn bytes_a_token_match_the_logs() {
    let starts = starts();
    assert_eq!(starts.len(), 59);
    let (staged, whole): (Vec<_>, Vec<_>) = starts.iter().partition(|start| start.deployment.pp > 1);
    let difference = |start: &Start| {
        let tokens: f64 = start.row["kv_tokens"].parse().unwrap();
        let ours = Cache::new(&start.model, start.deployment).per_token().0 as f64 * tokens / GIB as f64;
        (ours - start.gib("kv_gib"), ours / start.gib("kv_gib") - 1.0)
    };
    print_worst("bytes a token, %", whole.iter().map(|s| (s.group(), difference(s).1 * 100.0, s.name())));
    for start in &whole {
        let (gib, relative) = difference(start);
        assert!(
            gib.abs() <= ROUNDING_GIB || relative.abs() <= 0.001,
            "{}: {gib:+.4} GiB, {relative:+.5}",
            start.name()
        );
    }
    // With stages, the log gives the pool of the first and the tokens of the last, which also samples. What lies
    // between is that stage's larger peak, and the same for two stages as for four.
    let gaps: Vec<f64> = staged.iter().map(|start| -difference(start).0).collect();
    println!("pipeline stages: the last stage's pool is smaller by {gaps:.2?} GiB");
    assert_eq!(gaps.len(), 2);
    assert!((gaps[0] - gaps[1]).abs() <= 2.0 * ROUNDING_GIB && gaps[0] > 0.5, "{gaps:?}");
}

#[test]
fn the_remainder_lies_within_its_range() {
    let starts = starts();
    let range = |start: &Start| Remainder::of(&start.model, &start.deployment).total();
    let off = |start: &Start| start.remainder() - range(start).likely.0 as f64 / GIB as f64;
    print_worst("remainder, GiB from the likely", starts.iter().map(|s| (s.group(), off(s), s.name())));
    let held = starts.iter().filter(|s| range(s).holds(Bytes((s.remainder() * GIB as f64) as u64))).count();
    let mut widths: Vec<f64> = starts
        .iter()
        .filter(|s| s.deployment.gpus() == 1)
        .map(|s| (range(s).high.0 - range(s).low.0) as f64 / GIB as f64)
        .collect();
    widths.sort_by(f64::total_cmp);
    let median = widths[widths.len() / 2];
    println!("remainder: {held} of {} rows within, median width {median:.2} GiB on one GPU", starts.len());
    assert!(held * 10 >= starts.len() * 9, "{held} of {}", starts.len());
    assert!(median <= 2.5, "{median}");
}

#[test]
fn the_pool_lies_within_its_range() {
    let starts = starts();
    let predicted = |start: &Start| {
        // NVML's total of that card; weights as the log has them, since what is judged is the pool.
        let card = Bytes::from_mib(81_559);
        let weights = Bytes((start.gib("weights") * GIB as f64) as u64);
        let share = start.gib("requested") / start.gib("total");
        let deployment = Deployment { share: Some(share), ..start.deployment };
        pool::pool(&deployment, &Remainder::of(&start.model, &deployment), card, weights)
    };
    let off = |start: &Start| start.gib("kv_gib") - predicted(start).likely.0 as f64 / GIB as f64;
    print_worst("pool, GiB from the likely", starts.iter().map(|s| (s.group(), off(s), s.name())));
    let pool_bytes = |start: &Start| Bytes((start.gib("kv_gib") * GIB as f64) as u64);
    let held = starts.iter().filter(|s| predicted(s).holds(pool_bytes(s))).count();
    println!("pool: {held} of {} rows within", starts.len());
    assert!(held * 10 >= starts.len() * 9, "{held} of {}", starts.len());
}

#[test]
fn weights_follow_from_the_configuration() {
    let plain = |start: &&Start| {
        start.row["quant"] == "None" && start.row["dtype"] != "float32" && start.deployment.pp == 1
    };
    let starts = starts();
    let error = |start: &Start| {
        let bytes = start.model.parameters.unwrap().bytes().0 / start.deployment.tp;
        bytes as f64 / GIB as f64 / start.gib("weights") - 1.0
    };
    let whole: Vec<_> = starts.iter().filter(plain).collect();
    print_worst("weights, %", whole.iter().map(|s| (s.group(), error(s) * 100.0, s.name())));
    for start in whole {
        let tower = !start.model.notes.is_empty() || start.row["model"].contains("Mistral-Small");
        let low = if tower { -0.07 } else { -0.01 };
        assert!((low..=0.01).contains(&error(start)), "{}: {:+.4}", start.name(), error(start));
    }
}

#[test]
fn as_many_requests_fit_into_the_logged_pool_as_the_log_says() {
    let starts = starts();
    let error = |start: &Start| {
        let context: u64 = start.row["max_len"].parse().unwrap();
        let request = Cache::new(&start.model, start.deployment).request(context).0 as f64;
        let ours = start.gib("kv_gib") * GIB as f64 / request;
        ours / start.row["conc"].parse::<f64>().unwrap() - 1.0
    };
    let whole: Vec<_> = starts.iter().filter(|start| start.deployment.pp == 1).collect();
    print_worst(
        "requests at the longest context, %",
        whole.iter().map(|s| (s.group(), error(s) * 100.0, s.name())),
    );
    for start in whole {
        // The log rounds the pool to 0.01 GiB and the requests to 0.01.
        assert!(error(start).abs() < 0.004, "{}: {:+.4}", start.name(), error(start));
    }
}

//! Whole files in every format, and files that are none.

use std::io::Cursor;
use std::path::Path;
use std::time::Duration;

use ebbtide_core::{Absent, Bytes, EventKind, Percent, Sample};
use ebbtide_probe::recorded::{self, Options, RecordedError, Recording, STAND_IN_PID};
use proptest::prelude::*;

fn fixture(name: &str) -> Recording {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/recorded").join(name);
    recorded::read_path(&path, &Options::default()).expect("a fixture is a recording")
}

fn text(content: &str) -> Result<Recording, RecordedError> {
    recorded::read(Cursor::new(content.as_bytes()), &Options::default())
}

/// Used memory of a GPU in MiB over all samples, where it was read.
fn used(recording: &Recording, gpu: usize) -> Vec<f64> {
    recording.samples().filter_map(|s| s.gpus.get(gpu)?.memory.ok()).map(|m| m.used.mib()).collect()
}

fn clock(recording: &Recording) -> Vec<u64> {
    recording.samples().map(|sample| sample.tick.mono_ms).collect()
}

#[test]
fn a_query_log_of_two_gpus_plays_one_sample_a_reading() {
    let recording = fixture("query-gpu.csv");
    assert_eq!(clock(&recording), [0, 1001, 2000]);
    assert_eq!(used(&recording, 0), [40000.0, 40010.0, 40020.0]);
    assert_eq!(used(&recording, 1), [7.0, 7.0]);
    let second: Sample = recording.samples().nth(1).unwrap();
    assert_eq!(second.gpus[1].memory, Err(Absent::NotSupported));
    assert_eq!(second.gpus[0].utilization, Ok(Percent(18)));
    assert_eq!(&*second.gpus[0].name, "NVIDIA A100-SXM4-80GB");
    assert_eq!(second.gpus[0].processes, Err(Absent::NotSupported));
    assert_eq!(recording.interval, Duration::from_millis(1001));
    assert_eq!(recording.report.skipped, 1);
    assert_eq!(recording.report.first_skipped[0].number, 6);
    assert!(recording.report.first_skipped[0].text.starts_with("Unable to determine"));
    assert_eq!(recording.report.warnings, [] as [String; 0]);
}

#[test]
fn a_log_without_header_and_units_is_read_in_the_order_of_nvidia_smi() {
    let recording = fixture("query-gpu-noheader-nounits.csv");
    assert_eq!(used(&recording, 0), [40000.0, 40010.0]);
    assert_eq!(recording.report.skipped, 0);
}

#[test]
fn a_log_of_processes_lists_each_while_it_lives() {
    let recording = fixture("query-compute-apps.csv");
    let lists: Vec<Vec<(u32, Option<f64>)>> = recording
        .samples()
        .map(|sample| {
            assert_eq!(sample.gpus[0].memory, Err(Absent::NotSupported));
            let list = sample.gpus[0].processes.clone().unwrap();
            assert_eq!(list.listed, sample.tick);
            list.entries.iter().map(|p| (p.key.pid, p.memory.ok().map(Bytes::mib))).collect()
        })
        .collect();
    assert_eq!(lists[0], [(4711, Some(30000.0)), (4712, Some(9000.0))]);
    assert_eq!(lists[1], [(4711, Some(30512.0))]);
    assert_eq!(lists[2], [(4711, Some(31024.0)), (4713, None)]);
    assert_eq!(recording.interval, Duration::from_secs(5));
}

#[test]
fn printed_tables_give_devices_and_processes_and_an_empty_list_is_a_list() {
    let recording = fixture("tables.txt");
    let samples: Vec<Sample> = recording.samples().collect();
    assert_eq!(samples.len(), 2);
    assert_eq!(used(&recording, 0), [30123.0, 23.0]);
    assert_eq!(samples[0].gpus[1].memory.unwrap().total, Bytes::from_mib(46068));
    assert_eq!(samples[0].gpus[0].utilization, Ok(Percent(7)));
    assert_eq!(&*samples[0].gpus[1].name, "NVIDIA L40S");
    let first = samples[0].gpus[0].processes.clone().unwrap();
    assert_eq!(first.entries[0].info.name, Ok("python3 -m vllm".to_owned()));
    assert_eq!(samples[0].gpus[1].processes.clone().unwrap().entries[0].key.pid, 903);
    assert!(samples[1].gpus.iter().all(|gpu| gpu.processes.clone().unwrap().entries.is_empty()));
    assert_eq!(recording.report.skipped, 0);
}

#[test]
fn a_generic_file_brings_engine_host_and_events() {
    let recording = fixture("generic.csv");
    let samples: Vec<Sample> = recording.samples().collect();
    assert_eq!(clock(&recording), [0, 500, 1000]);
    let list = samples[0].gpus[0].processes.clone().unwrap();
    let process = &list.entries[0];
    assert_eq!((process.key.pid, process.memory), (STAND_IN_PID, Err(Absent::NotSupported)));
    assert_eq!((process.rss, process.host_limit), (Ok(Bytes::from_mib(4000)), Ok(Bytes::from_mib(65536))));
    let engine = process.engine.clone().unwrap();
    assert_eq!((engine.kv_used, engine.running, engine.waiting), (Ok(Bytes::from_mib(1000)), Ok(3), Ok(0)));
    let last = samples[2].gpus[0].processes.clone().unwrap().entries[0].engine.clone().unwrap();
    assert_eq!((last.kv_used, last.running), (Err(Absent::NotYet), Err(Absent::NotYet)));
    assert_eq!(samples[0].host.available, Ok(Bytes::from_mib(60000)));
    let events: Vec<_> = samples[2].events.iter().map(|e| (e.gpu.is_some(), e.kind.clone())).collect();
    let load = EventKind::ModelLoad(Some("llama-3".to_owned()));
    assert_eq!(events, [(false, EventKind::Xid(79)), (true, load)]);
}

#[test]
fn semicolons_decimal_commas_and_grouping_mean_the_same() {
    let recording = fixture("generic-decimal-comma.csv");
    assert_eq!(used(&recording, 0), [20000.5, 20001.5]);
    let totals: Vec<Bytes> = recording.samples().map(|s| s.gpus[0].memory.unwrap().total).collect();
    assert_eq!(totals[1], Bytes::from_mib(24576));
    assert_eq!(recording.samples().next().unwrap().tick.at.0, 1_706_704_496_500);
}

#[test]
fn a_column_of_bare_numbers_plays_at_one_second_and_says_so() {
    let recording = text("100\n200\n300\n").unwrap();
    assert_eq!(clock(&recording), [0, 1000, 2000]);
    assert_eq!(used(&recording, 0), [100.0, 200.0, 300.0]);
    assert!(recording.report.warnings[0].contains("--interval"), "{:?}", recording.report.warnings);
    assert_eq!(recording.report.assumed_totals[0].1, Bytes(2 << 30));
}

#[test]
fn a_time_on_a_line_of_its_own_is_that_of_the_rows_below_it() {
    for dates in
        [["Wed Jan 31 12:34:56 UTC 2024", "Wed Jan 31 12:34:58 UTC 2024"], ["1706704496", "1706704498"]]
    {
        let [first, second] = dates;
        let recording =
            text(&format!("{first}\n0, 10 MiB\n1, 20 MiB\n{second}\n0, 11 MiB\n1, 21 MiB\n")).unwrap();
        assert_eq!(clock(&recording), [0, 2000]);
        assert_eq!(used(&recording, 1), [20.0, 21.0]);
        assert_eq!(recording.samples().next().unwrap().tick.at.0, 1_706_704_496_000);
        assert_eq!(recording.report.skipped, 0);
    }
}

#[test]
fn what_the_user_states_outranks_what_is_assumed() {
    let options = Options {
        columns: Some(["gpu", "-", "used_mib"].map(str::to_owned).to_vec()),
        interval: Some(Duration::from_millis(250)),
        total: Some(Bytes::from_mib(24564)),
    };
    let recording = recorded::read(Cursor::new("1,x,100\n1,y,200\n"), &options).unwrap();
    assert_eq!(clock(&recording), [0, 250]);
    let sample = recording.samples().next().unwrap();
    assert_eq!((sample.gpus[0].index, sample.gpus[0].memory.unwrap().total), (1, Bytes::from_mib(24564)));
    assert_eq!(recording.report.warnings, [] as [String; 0]);
}

#[test]
fn late_and_repeated_rows_are_put_in_order() {
    let recording = text("time,used_mib\n3,30\n1,10\n2,20\n2,21\n").unwrap();
    assert_eq!(used(&recording, 0), [10.0, 21.0, 30.0]);
    assert_eq!(recording.report.warnings.len(), 3, "{:?}", recording.report.warnings);
}

#[test]
fn a_last_line_that_was_cut_short_is_not_a_reading() {
    let recording = text("time,used_mib,total_mib\n1,10,100\n2,20").unwrap();
    assert_eq!(used(&recording, 0), [10.0]);
    assert_eq!(recording.report.first_skipped[0].reason, "cut short at the end of the file");
}

#[test]
fn what_cannot_be_read_says_what_to_do() {
    let error = text("1,2,3,4,5\n").unwrap_err().to_string();
    assert!(error.contains("line 1") && error.contains("--columns"), "{error}");
    assert!(matches!(text(""), Err(RecordedError::Empty)));
    assert!(matches!(text("time,used_mib\n"), Err(RecordedError::NoReadings { lines: 1 })));
    let unknown = Options { columns: Some(vec!["vram".to_owned()]), ..Options::default() };
    let error = recorded::read(Cursor::new("1\n"), &unknown).unwrap_err().to_string();
    assert!(error.contains("\"vram\"") && error.contains("used_mib"), "{error}");
    let missing = recorded::read_path(Path::new("no/such/file"), &Options::default()).unwrap_err();
    assert!(missing.to_string().contains("no/such/file"));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(recording) = recorded::read(Cursor::new(bytes), &Options::default()) {
            prop_assert!(recording.samples().count() > 0);
        }
    }

    #[test]
    fn no_text_like_a_recording_makes_it_panic(
        lines in proptest::collection::vec("[-|+0-9,;.:/ \"\\[\\]aeGMiBNPUtimpdusx=%\t\u{a0}_]{0,40}", 0..12),
        head in prop_oneof![
            Just("time,gpu,pid,used_mib,event"),
            Just("timestamp, index, memory.used [MiB]"),
            Just("| Processes: |"),
            Just("Wed Jan 31 12:34:56 2024\n|   0  L40S  On | 0:1 Off | 0 |"),
        ],
    ) {
        if let Ok(recording) = text(&format!("{head}\n{}", lines.join("\n"))) {
            let mut seq = 0;
            for sample in recording.samples() {
                prop_assert!(sample.tick.seq > seq);
                seq = sample.tick.seq;
            }
        }
    }

    #[test]
    fn a_generated_file_reads_back(
        start in 0_u64..4_000_000_000,
        step_ms in 100_u64..300_000,
        series in proptest::collection::vec((0_u64..200_000, 1_u64..200_000), 1..60),
    ) {
        let mut file = "time,used_mib,total_mib\n".to_owned();
        for (at, (used, more)) in series.iter().enumerate() {
            let ms = start * 1000 + at as u64 * step_ms;
            file += &format!("{}.{:03},{used},{}\n", ms / 1000, ms % 1000, used + more);
        }
        let recording = text(&file).unwrap();
        prop_assert_eq!(recording.report.skipped, 0);
        let back: Vec<(u64, u64, u64)> = recording
            .samples()
            .map(|sample| {
                let memory = sample.gpus[0].memory.unwrap();
                (sample.tick.mono_ms, memory.used.0 >> 20, memory.total.0 >> 20)
            })
            .collect();
        let written: Vec<(u64, u64, u64)> = series
            .iter()
            .enumerate()
            .map(|(at, (used, more))| (at as u64 * step_ms, *used, used + more))
            .collect();
        prop_assert_eq!(back, written);
    }
}

/// An answer of Prometheus with one series for each (metric, labels, values in MiB or bytes as they stand).
fn answer(series: &[(&str, &str, &[&str])]) -> String {
    let result: Vec<String> = series
        .iter()
        .map(|(metric, labels, values)| {
            let values: Vec<String> = values
                .iter()
                .enumerate()
                .map(|(at, value)| format!("[{}.5,\"{value}\"]", 1_790_000_000 + 60 * at))
                .collect();
            let labels = if labels.is_empty() { String::new() } else { format!(",{labels}") };
            format!(r#"{{"metric":{{"__name__":"{metric}"{labels}}},"values":[{}]}}"#, values.join(","))
        })
        .collect();
    format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{}]}}}}"#, result.join(","))
}

const DCGM_GPU: &str =
    r#""gpu":"3","UUID":"GPU-0f1e2d3c-0000-0000-0000-000000000001","modelName":"NVIDIA H100","pod":"a""#;

#[test]
fn what_dcgm_exported_is_read_with_the_size_that_it_adds_up_to() {
    let both = answer(&[("DCGM_FI_DEV_FB_USED", DCGM_GPU, &["1000", "1010", "1020"])])
        + "\n"
        + &answer(&[
            ("DCGM_FI_DEV_FB_FREE", DCGM_GPU, &["80000", "79990", "79980"]),
            ("DCGM_FI_DEV_FB_RESERVED", DCGM_GPU, &["559", "559", "559"]),
            ("DCGM_FI_DEV_SM_CLOCK", DCGM_GPU, &["1980", "1980", "1980"]),
        ]);
    let recording = text(&both).unwrap();
    assert_eq!(used(&recording, 0), [1000.0, 1010.0, 1020.0]);
    let first = recording.samples().next().unwrap();
    assert_eq!(first.gpus[0].memory.unwrap().total, Bytes::from_mib(81559));
    assert_eq!((first.gpus[0].index, &*first.gpus[0].name), (3, "NVIDIA H100"));
    assert_eq!(first.tick.at.0, 1_790_000_000_500);
    assert_eq!(recording.interval, Duration::from_secs(60));
    assert_eq!(
        (recording.report.skipped, recording.report.first_skipped[0].text.as_str()),
        (3, "DCGM_FI_DEV_SM_CLOCK")
    );
}

#[test]
fn what_nvidia_gpu_exporter_exported_names_the_same_gpu_and_its_processes() {
    let uuid = r#""uuid":"0f1e2d3c-0000-0000-0000-000000000001""#;
    let process = format!(r#"{uuid},"pid":"4711","process_name":"python""#);
    let recording = text(&answer(&[
        ("nvidia_smi_memory_used_bytes", uuid, &["1.048576e+09", "NaN"]),
        ("nvidia_smi_memory_total_bytes", uuid, &["8.589934592e+10", "8.589934592e+10"]),
        ("nvidia_smi_compute_app_used_memory_bytes", &process, &["1.048576e+08"]),
    ]))
    .unwrap();
    let samples: Vec<Sample> = recording.samples().collect();
    assert_eq!(samples[0].gpus[0].uuid.as_str(), "GPU-0f1e2d3c-0000-0000-0000-000000000001");
    assert_eq!(samples[0].gpus[0].memory.unwrap().used, Bytes(1_048_576_000));
    assert_eq!(samples[1].gpus[0].memory, Err(Absent::NotYet), "a stale value is none");
    let list = samples[0].gpus[0].processes.clone().unwrap();
    assert_eq!((list.entries[0].key.pid, list.entries[0].memory), (4711, Ok(Bytes(104_857_600))));
}

#[test]
fn an_answer_that_is_a_refusal_or_an_instant_says_what_to_do() {
    let refused = text(r#"{"status":"error","errorType":"bad_data","error":"invalid parameter \"step\""}"#);
    assert!(matches!(refused, Err(RecordedError::Refused { .. })), "{refused:?}");
    let instant = text(
        r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"DCGM_FI_DEV_FB_USED"},"value":[1790000000,"5"]}]}}"#,
    );
    assert!(instant.unwrap_err().to_string().contains("range"));
    let cut = answer(&[("DCGM_FI_DEV_FB_USED", DCGM_GPU, &["1"])]);
    assert!(matches!(text(&cut[..cut.len() - 3]), Err(RecordedError::NoAnswer { .. })));
}

#[test]
fn an_exported_file_is_a_recording_whose_lists_are_of_one_gpu_each() {
    let file = "time,gpu,pid,start_ticks,metric,value\n\
        2026-11-30T03:00:00Z,,,,host-available-bytes,7\n\
        2026-11-30T03:00:00Z,GPU-a,,,used-bytes,5\n\
        2026-11-30T03:00:00Z,GPU-a,,,total-bytes,10\n\
        2026-11-30T03:00:00Z,GPU-a,,,listed-processes,1\n\
        2026-11-30T03:00:00Z,GPU-a,7,70,process-bytes,4\n\
        2026-11-30T03:00:01Z,GPU-a,,,used-bytes,\n\
        2026-11-30T03:00:01Z,GPU-b,,,listed-processes,0\n\
        2026-11-30T03:00:01Z,GPU-b,,,used-bytes,1";
    let recording = text(file).unwrap();
    let samples: Vec<Sample> = recording.samples().collect();
    assert_eq!(samples.len(), 2);
    assert_eq!(samples[0].host.available, Ok(Bytes(7)));
    assert_eq!(samples[0].gpus[0].memory.unwrap().total, Bytes(10));
    let list = samples[1].gpus[0].processes.clone().unwrap();
    assert_eq!(
        (list.listed.seq, list.entries[0].key.start_ticks),
        (1, Some(70)),
        "no list of this GPU was read"
    );
    assert_eq!(samples[1].gpus[1].processes.clone().unwrap().entries, []);
    assert_eq!(recording.report.first_skipped[0].reason, "cut short at the end of the file");
}

proptest! {
    #[test]
    fn answers_give_back_their_values_whatever_stands_beside_them(
        values in proptest::collection::vec(0_u64..1 << 50, 1..20),
        noise in "[\\PC&&[^\"\\\\]]{0,20}",
        cut in 0_usize..400,
    ) {
        let words: Vec<String> = values.iter().map(ToString::to_string).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let labels = format!(r#""uuid":"u","note":"{noise}""#);
        let whole = answer(&[("nvidia_smi_memory_used_bytes", &labels, &words), (&noise, "", &["1"])]);
        let recording = text(&whole).unwrap();
        let read: Vec<u64> = recording.samples().map(|s| s.gpus[0].memory.unwrap().used.0).collect();
        prop_assert_eq!(read, values);
        let mut cut = cut.min(whole.len());
        while !whole.is_char_boundary(cut) {
            cut -= 1;
        }
        prop_assert!(cut == whole.len() || text(&whole[..cut]).is_err());
    }
}

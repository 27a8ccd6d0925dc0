//! Disks that fail, and processes that are killed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ebbtide_core::{TickRecord, Ts};
use sqlx::{Connection, SqliteConnection};

use crate::records::{self, record, sorted, stored};
use crate::run::Run;
use crate::{Extent, block_on, figure, times};

/// Kills a process that appends, again and again, on the same file.
pub(crate) fn kills(extent: Extent) {
    let dir = tempfile::tempdir().unwrap();
    let (mut acknowledged, mut opened) = (Vec::new(), Vec::new());
    for round in 0..extent.kills {
        let mut run = Run::start_in("writer", dir.path());
        // Counts without a common factor with the sixty ticks of a chain and of a checkpoint.
        run.wait_for_acknowledged(17 + round * 37 % 601);
        acknowledged.extend(run.kill());
        opened.extend(run.opened);
    }
    let lost = lost(&dir.path().join("history.db"), &acknowledged);
    figure(
        &format!("lost of {} acknowledged, {} kills", acknowledged.len(), extent.kills),
        &lost.to_string(),
        "0",
    );
    times("opening after a kill, middle / longest", opened, "");
    assert_eq!(lost, 0);
}

/// A fault comes and goes, the second time about when the first window is sealed; all that was acknowledged before, between
/// and after is in the file.
pub(crate) fn outages(fault: &str, names: &[&str], extent: Extent) {
    let mut run = Run::start("writer");
    let mut mended = Vec::new();
    for _ in 0..extent.outages {
        run.wait_for_acknowledged(465);
        mended.push(run.fault(fault, 20));
    }
    run.wait_for_acknowledged(100);
    let acknowledged = run.stop();
    let refused = &run.refused;
    let expected: usize = names.iter().filter_map(|name| refused.get(*name)).sum();
    // The fault may end in the middle of a call, which then cannot tell what it was: once for each time.
    assert!(
        expected + extent.outages >= refused.values().sum(),
        "each refusal says what is wrong: {refused:?}"
    );
    assert!(refused.contains_key(names[0]), "{refused:?}");
    let lost = lost(&run.database(), &acknowledged);
    figure(&format!("lost of {} acknowledged", acknowledged.len()), &lost.to_string(), "0");
    times("writing again after, middle / longest", mended, "");
    assert_eq!(lost, 0);
}

/// What was flushed is all that a power cut leaves at worst: the shim keeps a copy as of the last flush of each file.
pub(crate) fn power_cut(_: Extent) {
    let mut run = Run::start("verdicts");
    run.wait_for_acknowledged(333);
    let acknowledged = run.kill();
    let newest = acknowledged[acknowledged.len() - 1];
    let left = run.dir.join("shadow/history.db");
    block_on(async {
        assert_eq!(records::complaints(&left).await, [""; 0]);
        let reader = records::reader(&left);
        let findings = reader.findings(Ts(0)).await.unwrap();
        let opened: Vec<i64> = findings.iter().map(|finding| finding.opened_at.0).collect();
        let ended: Vec<Ts> = reader.incidents().await.unwrap().iter().map(|one| one.incident.at).collect();
        for seq in &run.recorded {
            assert!(opened.contains(&seq.cast_signed()), "the finding of tick {seq} was acknowledged");
            assert!(ended.contains(&records::tick(*seq).at), "the incident of tick {seq} was acknowledged");
        }
        assert!(run.recorded.len() >= 2, "{:?}", run.recorded);
        let (ticks, unreadable) = stored(&left).await;
        let lost = newest.saturating_sub(ticks[ticks.len() - 1].tick.seq);
        figure(&format!("newest of {newest} ticks lost"), &lost.to_string(), "<= 60");
        figure(&format!("of {} findings and incidents lost", 2 * run.recorded.len()), "0", "0");
        assert!(unreadable == 0 && lost <= 60 && ticks.len() as u64 + lost >= newest);
    });
}

/// The reason for the writer's one rule. When this fails the driver has been repaired: revise
/// `docs/adr/0001-one-writer-connection.md`.
pub(crate) fn kept_connection(_: Extent) {
    let mut run = Run::start("kept-connection");
    run.wait_for_acknowledged(50);
    run.fault("eio-write", 2);
    run.wait_for_acknowledged(200);
    let acknowledged = run.stop();
    let stored = block_on(async {
        let mut conn = SqliteConnection::connect(run.database().to_str().unwrap()).await.unwrap();
        let seqs: Vec<i64> = sqlx::query_scalar("SELECT seq FROM t").fetch_all(&mut conn).await.unwrap();
        BTreeSet::from_iter(seqs)
    });
    let lost = acknowledged.iter().filter(|seq| !stored.contains(&seq.cast_signed())).count();
    figure(
        &format!("lost of {} acknowledged, without our writer", acknowledged.len()),
        &lost.to_string(),
        "",
    );
    assert!(lost >= 100, "only {lost} of {} acknowledged rows are missing", acknowledged.len());
}

/// How many of the acknowledged ticks are not in the file as they were given; everything in it has to be readable.
fn lost(path: &Path, acknowledged: &[u64]) -> usize {
    block_on(async {
        assert_eq!(records::complaints(path).await, [""; 0]);
        let (ticks, unreadable) = stored(path).await;
        assert_eq!(unreadable, 0);
        let ticks: BTreeMap<u64, TickRecord> = ticks.into_iter().map(|tick| (tick.tick.seq, tick)).collect();
        acknowledged.iter().filter(|seq| ticks.get(seq) != Some(&sorted(record(**seq)))).count()
    })
}

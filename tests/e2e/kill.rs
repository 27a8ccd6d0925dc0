//! kill -9 at any moment loses no tick that was acknowledged, and the database opens clean.

use ebbtide_store::{Reader, Verification};

use crate::runner::{DEADLINE, World};

/// How often the daemon is killed.
const KILLS: u64 = 50;

#[test]
fn no_acknowledged_tick_is_lost_to_kill_9() {
    let world = World::new();
    let mut acknowledged = 0;
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    for round in 0..KILLS {
        let mut daemon = world.daemon_on_host(&[("probe.interval_ms", "100")]);
        // Between one and four ticks into the run, drawn by a fixed sequence.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let wanted = 1 + random % 4;
        let status = daemon.wait("stored ticks", |s| s.health.stored_ticks >= wanted);
        daemon.kill();
        let last = status.health.last_stored_seq.unwrap();
        assert!(last > acknowledged || round == 0, "sequence numbers go on: {last} after {acknowledged}");
        acknowledged = last;
        assert!(
            stored_up_to(&world) >= acknowledged,
            "round {round}: tick {acknowledged} was acknowledged and is lost"
        );
    }
}

/// The newest tick in the file, read as another process would, after SQLite's own check of it.
fn stored_up_to(world: &World) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let found = Verification::of(&world.database()).await.unwrap();
        assert!(found.is_sound(), "{found:?}");
        Reader::new(&world.database(), DEADLINE).next_seq().await.unwrap() - 1
    })
}

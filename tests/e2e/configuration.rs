//! A typo in the configuration is found before it costs a night.

use crate::runner::{World, stderr, stdout};

#[test]
fn a_typo_names_its_file_and_line_and_exits_with_78() {
    let world = World::new();
    let file = world.write("config.toml", "[probe]\nintervall_ms = 500\n");
    for args in [&["config", "check", "--config"][..], &["daemon", "--config"]] {
        let output = world.ebbtide(args).arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(78), "{args:?}");
        let text = stderr(&output);
        assert!(text.contains("config.toml:2:") && text.contains("interval_ms"), "{text}");
    }
}

#[test]
fn the_listing_shows_each_value_with_its_origin() {
    let world = World::new();
    let file = world.write("config.toml", "[probe]\ninterval_ms = 500\n");
    let output = world
        .ebbtide(&["config", "check", "--set", "store.replay_minutes=24", "--config"])
        .arg(&file)
        .env("EBBTIDE_LOG__LEVEL", "debug")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for (value, origin) in [
        ("probe.interval_ms = 500", "config.toml"),
        ("store.replay_minutes = 24", "command line"),
        ("log.level = \"debug\"", "environment EBBTIDE_LOG__LEVEL"),
        ("probe.source = \"nvml\"", "default"),
    ] {
        let line =
            text.lines().find(|line| line.starts_with(value)).unwrap_or_else(|| panic!("{value} in {text}"));
        assert!(line.ends_with(origin), "{line}");
    }
}

#[test]
fn the_example_configuration_says_the_defaults() {
    let world = World::new();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/config.example.toml");
    let shown = |args: &[&str]| {
        let output = world.run(args);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_str::<serde_json::Value>(&stdout(&output)).unwrap()["config"].clone()
    };
    assert_eq!(
        shown(&["config", "check", "--json", "--config", example]),
        shown(&["config", "check", "--json"])
    );
}

#[test]
fn a_sink_that_cannot_work_is_found_and_secrets_are_not_printed() {
    let world = World::new();
    let file = world.write("hook.toml", "[[sinks]]\nexec.argv = [\"/nowhere/hook\"]\n");
    let output = world.ebbtide(&["config", "check", "--config"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(78));
    assert!(stderr(&output).contains("/nowhere/hook"), "{}", stderr(&output));

    let file = world.write("web.toml", "[[sinks]]\nwebhook.url = \"https://example.net/s3cret\"\n");
    for form in [&["config", "check", "--config"][..], &["config", "check", "--json", "--config"]] {
        let output = world.ebbtide(form).arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = stdout(&output);
        assert!(text.contains("example.net") && !text.contains("s3cret"), "{text}");
    }
}

#[test]
fn no_file_is_read_from_wherever_the_program_was_started() {
    let world = World::new();
    std::fs::create_dir(world.path("ebbtide")).unwrap();
    world.write("ebbtide/config.toml", "[probe]\nintervall_ms = 500\n");
    let output = world.ebbtide(&["config", "check"]).env("XDG_CONFIG_HOME", "").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

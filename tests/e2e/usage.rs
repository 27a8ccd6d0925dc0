//! Wrong usage never looks like a page.

use crate::runner::{World, stderr, stdout};

#[test]
fn wrong_usage_exits_with_64_everywhere() {
    let world = World::new();
    for args in [
        &["--nonsense"][..],
        &["statsu"],
        &["status", "--jsno"],
        &["check"],
        &["demo", "--seconds", "soon"],
        &["daemon", "--set", "nothing"],
        &["config"],
        &[],
    ] {
        let output = world.run(args);
        assert_eq!(output.status.code(), Some(64), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn help_and_version_are_no_failure() {
    let world = World::new();
    let help = world.run(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(stdout(&help).contains("ebbtide demo"));
    assert_eq!(world.run(&["--version"]).status.code(), Some(0));
    assert_eq!(world.run(&["check", "--help"]).status.code(), Some(0));
}

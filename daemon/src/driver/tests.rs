//! A part that is gone ends the daemon with an error, and never in silence.

use super::*;

/// A driver, and the far ends of what it holds: ops, samples, API.
fn driver()
-> (Driver, mpsc::Receiver<Op>, mpsc::Sender<Sample>, mpsc::Receiver<Sample>, oneshot::Receiver<()>) {
    let (ops, queue) = mpsc::channel(1);
    let (end_api, api_ends) = oneshot::channel();
    let (sink, samples) = mpsc::channel(1);
    let driver = Driver {
        appraiser: Appraiser::start(PROC.into()),
        pipeline: Pipeline::new(PipelineConfig::default()),
        ops,
        audience: Audience::new().0,
        health: SharedHealth::default(),
        dropped: Arc::default(),
        costs: Costs::default(),
        noted: Vec::new(),
        end_api,
    };
    (driver, queue, sink, samples, api_ends)
}

/// Which part [`Driver::drive`] misses.
async fn missed(driver: &mut Driver, samples: &mut mpsc::Receiver<Sample>) -> &'static str {
    match driver.drive(samples, std::future::pending()).await {
        Err(RunError::Ended { part }) => part,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn whoever_goes_is_missed() {
    let (mut all, queue, _sink, mut samples, _api) = driver();
    drop(queue);
    assert_eq!(missed(&mut all, &mut samples).await, "the keeper of the history");
    let (mut all, _queue, sink, mut samples, _api) = driver();
    drop(sink);
    assert_eq!(missed(&mut all, &mut samples).await, "the probe");
    let (mut all, _queue, _sink, mut samples, api) = driver();
    drop(api);
    assert_eq!(missed(&mut all, &mut samples).await, "the API");
}

#[tokio::test]
async fn an_end_that_was_asked_for_is_no_error() {
    let (mut all, _queue, _sink, mut samples, _api) = driver();
    all.drive(&mut samples, std::future::ready(())).await.unwrap();
}

use super::*;
use crate::message::tests::firing;
use crate::sinks::receiver::Receiver;

fn attempt(receiver: &Receiver, headers: &[(&str, &str)]) -> Attempt {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let config = WebhookConfig { headers, ..WebhookConfig::new(receiver.url()) };
    Webhook::new(config).attempt(&Message::new(&firing()).unwrap())
}

#[test]
fn the_event_is_posted_as_json_with_its_key_and_the_given_headers() {
    let receiver = Receiver::answering(&["204 No Content"]);
    assert_eq!(attempt(&receiver, &[("Authorization", "Bearer s3cret")]), Attempt::Delivered);
    let request = receiver.next_request();
    let message = Message::new(&firing()).unwrap();
    assert!(request.head.starts_with("POST /hook HTTP/1.1\r\n"), "{}", request.head);
    let head = request.head.to_lowercase();
    for header in [
        "content-type: application/json".to_owned(),
        "authorization: bearer s3cret".to_owned(),
        format!("idempotency-key: {}", message.idempotency_key()),
    ] {
        assert!(head.contains(&header), "{header} is missing in {head}");
    }
    assert_eq!(request.body, message.json());
}

#[test]
fn trouble_passes_and_refusals_stay() {
    let receiver = Receiver::answering(&[
        "503 Service Unavailable",
        "429 Too Many Requests\r\nRetry-After: 7",
        "400 Bad Request",
        "302 Found\r\nLocation: http://127.0.0.1:1/elsewhere",
    ]);
    assert!(matches!(attempt(&receiver, &[]), Attempt::Retry { after: None, .. }));
    let Attempt::Retry { after, .. } = attempt(&receiver, &[]) else { panic!("429 is to be tried again") };
    assert_eq!(after, Some(Duration::from_secs(7)));
    let Attempt::Failed { reason } = attempt(&receiver, &[]) else { panic!("400 is final") };
    assert_eq!(reason, "answered 400: said the receiver");
    assert!(matches!(attempt(&receiver, &[]), Attempt::Failed { .. }), "a redirect is not followed");
}

#[test]
fn nobody_and_nonsense_are_tried_again() {
    let nonsense = Receiver::answering(&["\x07\x07\x07"]);
    assert!(matches!(attempt(&nonsense, &[]), Attempt::Retry { .. }));
    let gone = Receiver::answering(&[]);
    let config = WebhookConfig::new(gone.url());
    gone.close();
    let attempt = Webhook::new(config).attempt(&Message::new(&firing()).unwrap());
    assert!(matches!(attempt, Attempt::Retry { .. }), "{attempt:?}");
}

#[test]
fn a_silent_receiver_costs_the_time_out_only() {
    let silent = Receiver::silent();
    let config = WebhookConfig { timeout_ms: 200, ..WebhookConfig::new(silent.url()) };
    let attempt = Webhook::new(config).attempt(&Message::new(&firing()).unwrap());
    assert!(matches!(attempt, Attempt::Retry { .. }), "{attempt:?}");
}

#[test]
fn what_cannot_be_posted_to_is_said_without_its_secrets() {
    for url in ["", "example.org/hook", "ftp://example.org/", "http://"] {
        let error = WebhookConfig::new(url.to_owned()).check().unwrap_err();
        assert!(matches!(error, SinkError::Url { .. }), "{url}: {error}");
    }
    let mut config = WebhookConfig::new("https://hooks.example.org/T0/s3cret".into());
    config.headers.insert("X-Token".into(), "s3cret\n".into());
    let error = config.check().unwrap_err();
    assert!(matches!(error, SinkError::Header { .. }), "{error}");
    for text in [error.to_string(), format!("{config:?}"), config.name()] {
        assert!(!text.contains("s3cret"), "{text}");
    }
}

#[test]
fn a_misspelt_url_is_named_without_what_only_its_receiver_should_know() {
    let config = WebhookConfig::new("htps://user:pw@hooks.example/T0/s3cret?k=v".to_owned());
    let said = config.check().unwrap_err().to_string();
    assert!(said.contains("htps://hooks.example/…"), "{said}");
    assert!(!said.contains("s3cret") && !said.contains("pw") && !said.contains("k=v"), "{said}");
}

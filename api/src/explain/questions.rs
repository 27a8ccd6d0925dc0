//! The ten questions that are asked most.

mod growth;
mod holders;
mod pool;

use super::Answer;
use super::scene::Scene;
use super::words;

/// How one is answered.
type Answering = fn(&Scene<'_>) -> String;

/// All of them, in the order in which they are asked most.
pub(super) fn all(scene: &Scene<'_>) -> Vec<Answer> {
    let subject = if scene.process.is_some() { "it" } else { "this GPU" };
    let share = words::percent(scene.used(), scene.gpu.gpu.memory.map(|memory| memory.total));
    let much = share.map_or_else(|| "so much".to_owned(), |share| format!("{share} %"));
    let table: [(&str, String, Answering); 10] = [
        ("reserved", format!("Why is {much} used, even at idle?"), pool::reserved),
        ("kept", "Memory stays after the requests have ended: is that a leak?".to_owned(), pool::kept),
        ("growing", "Why does it keep growing, and when does it run out?".to_owned(), growth::growing),
        ("unseen", "Who holds memory for which no process is shown?".to_owned(), holders::unseen),
        ("dead", "I have killed it: is its memory still held?".to_owned(), holders::dead),
        ("released", "After an unload or a sleep, did the memory come back?".to_owned(), growth::released),
        ("fuller", format!("Why is {subject} fuller than the others?"), holders::fuller),
        ("headroom", "Why can it run out while the tools show free memory?".to_owned(), growth::headroom),
        ("climbs", "Is it normal that long contexts and images make it climb?".to_owned(), pool::climbs),
        ("host", "Does host memory grow, rather than the GPU's?".to_owned(), growth::host),
    ];
    let answer = |(topic, question, answer): (&str, String, Answering)| Answer {
        topic: topic.to_owned(),
        question,
        answer: answer(scene),
    };
    table.into_iter().map(answer).collect()
}
